-- Results that are recorded from now on get at least this time: earlier periods were listed: see log/outcome.rs.
ALTER TABLE call_counter ADD COLUMN results_from_ms BIGINT NOT NULL DEFAULT 0;
