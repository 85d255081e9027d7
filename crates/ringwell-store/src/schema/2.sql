-- The most numbers that a network's pools may have together; NULL: what the configuration says.
ALTER TABLE networks ADD COLUMN numbers_max BIGINT;
