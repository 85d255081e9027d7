-- Calls of a rare result are found among a million others.
CREATE INDEX calls_by_outcome ON calls (outcome, started_ms, id);
