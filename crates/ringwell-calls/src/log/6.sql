-- Callers who are not connected: a number, the beginning of one with a star, a SIP address or `withheld`.
CREATE TABLE call_blocks (
    id TEXT PRIMARY KEY,
    caller TEXT NOT NULL,
    -- -1 for all pools.
    pool BIGINT NOT NULL,
    answer TEXT NOT NULL,
    note TEXT,
    created_ms BIGINT NOT NULL
);
-- The entry by which a call was refused.
ALTER TABLE calls ADD COLUMN blocked TEXT;
-- How much speaks for a robot as the caller, 0 to 100, and what.
ALTER TABLE calls ADD COLUMN robocall BIGINT;
ALTER TABLE calls ADD COLUMN robocall_reasons TEXT;
