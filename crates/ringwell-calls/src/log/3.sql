-- Results of all calls are listed by their moments.
CREATE INDEX call_outcomes_by_time ON call_outcomes (at_ms, call, external_id);
