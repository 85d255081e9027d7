-- The id of a call is derived from its account and the provider's id: it is unique already. The index that
-- kept the two unique cost each call one more page, at a random place. SQLite drops it with the table only.
CREATE TABLE calls_9 (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    provider TEXT NOT NULL,
    provider_call_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    started_ms BIGINT NOT NULL,
    answered_ms BIGINT,
    ended_ms BIGINT,
    state TEXT NOT NULL,
    outcome TEXT,
    ring_ms BIGINT,
    talk_seconds BIGINT,
    number TEXT,
    caller TEXT,
    first_time BIGINT,
    destination TEXT,
    pool BIGINT,
    attributed TEXT NOT NULL,
    attribution TEXT,
    stir TEXT,
    facts TEXT NOT NULL,
    published TEXT NOT NULL,
    redacted_ms BIGINT,
    blocked TEXT,
    robocall BIGINT,
    robocall_reasons TEXT
);
INSERT INTO calls_9 SELECT id, account, provider, provider_call_id, sequence, started_ms, answered_ms,
    ended_ms, state, outcome, ring_ms, talk_seconds, number, caller, first_time, destination, pool,
    attributed, attribution, stir, facts, published, redacted_ms, blocked, robocall, robocall_reasons
    FROM calls;
DROP TABLE calls;
ALTER TABLE calls_9 RENAME TO calls;
CREATE INDEX calls_by_start ON calls (started_ms, id);
CREATE INDEX calls_by_number ON calls (number, started_ms);
CREATE INDEX calls_by_pool ON calls (pool, started_ms);
CREATE INDEX calls_by_caller ON calls (caller, started_ms);
CREATE INDEX calls_by_attributed ON calls (attributed, started_ms);
CREATE INDEX calls_by_outcome ON calls (outcome, started_ms, id);
CREATE INDEX calls_ringing ON calls (started_ms) WHERE state = 'ringing';
