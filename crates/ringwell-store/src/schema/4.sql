-- Numbers have their country code: those from before are of country code 1. The table's check cannot
-- be changed in place in both databases, so the table is made again.
CREATE TABLE numbers_e164 (
    first_number BIGINT PRIMARY KEY,
    last_number BIGINT NOT NULL,
    -- available | overflow | waiting | free | quarantined | retired
    state TEXT NOT NULL,
    -- available, quarantined: the pool. waiting: the pool that it waits for.
    pool BIGINT,
    -- What waiting numbers become: available | overflow.
    goal TEXT,
    network TEXT,
    -- The pool whose lockouts the number may still carry.
    left_pool BIGINT,
    -- The version in which it left, until every node has confirmed that; then NULL.
    left_version BIGINT,
    lockout_ms BIGINT NOT NULL,
    -- Not before that moment may it enter another rotation; counts once left_version is NULL.
    ready_ms BIGINT NOT NULL,
    CHECK (first_number BETWEEN 2000000 AND last_number AND last_number <= 999999999999999)
);
INSERT INTO numbers_e164 (first_number, last_number, state, pool, goal, network, left_pool,
    left_version, lockout_ms, ready_ms)
SELECT first_number + 10000000000, last_number + 10000000000, state, pool, goal, network, left_pool,
    left_version, lockout_ms, ready_ms FROM numbers;
DROP TABLE numbers;
ALTER TABLE numbers_e164 RENAME TO numbers;
CREATE INDEX numbers_by_pool ON numbers (pool, first_number);
CREATE INDEX numbers_by_state ON numbers (state, first_number);
CREATE INDEX numbers_by_left_version ON numbers (left_version);
UPDATE ring_pools SET overflow_number = overflow_number + 10000000000;
