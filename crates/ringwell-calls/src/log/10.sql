-- The time by which the age of calls and events is judged, and for how long the wall clock has been in doubt
-- (NULL: it is not): see log/age.rs.
ALTER TABLE call_counter ADD COLUMN age_ms BIGINT;
ALTER TABLE call_counter ADD COLUMN doubted_ms BIGINT;
