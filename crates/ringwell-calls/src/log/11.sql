-- The time at which a result was recorded. For results that were recorded earlier, the best known time is their own.
ALTER TABLE call_outcomes ADD COLUMN recorded_ms BIGINT NOT NULL DEFAULT 0;
UPDATE call_outcomes SET recorded_ms = at_ms;
