-- The name of the data directory that the server served last.
ALTER TABLE nodes ADD COLUMN journal TEXT;
