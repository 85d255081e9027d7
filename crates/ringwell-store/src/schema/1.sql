-- The one row says how often the directory has changed, and which pool id is free.
CREATE TABLE directory (
    version BIGINT NOT NULL,
    next_pool_id BIGINT NOT NULL
);
INSERT INTO directory (version, next_pool_id) VALUES (0, 1);

CREATE TABLE networks (
    id TEXT PRIMARY KEY
);
CREATE TABLE advertisers (
    network TEXT NOT NULL REFERENCES networks (id),
    id TEXT NOT NULL,
    PRIMARY KEY (network, id)
);
CREATE TABLE campaigns (
    network TEXT NOT NULL,
    advertiser TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (network, advertiser, id),
    FOREIGN KEY (network, advertiser) REFERENCES advertisers (network, id)
);
CREATE TABLE publishers (
    network TEXT NOT NULL REFERENCES networks (id),
    id TEXT NOT NULL,
    PRIMARY KEY (network, id)
);

-- Where calls go, as the published API links them with pools.
CREATE TABLE destinations (
    network TEXT NOT NULL REFERENCES networks (id),
    phone_number TEXT NOT NULL,
    obfuscated_tag_id TEXT NOT NULL,
    PRIMARY KEY (network, phone_number)
);

CREATE TABLE ring_pools (
    id BIGINT PRIMARY KEY,
    version BIGINT NOT NULL,
    network TEXT NOT NULL,
    advertiser TEXT NOT NULL,
    campaign TEXT NOT NULL,
    id_from_network TEXT NOT NULL,
    name TEXT NOT NULL,
    ring_pool_key TEXT NOT NULL,
    next_ring_pool_key TEXT,
    lifetime_ms BIGINT NOT NULL,
    -- A longer lifetime that the pool had, as long as lockouts of then may last.
    former_lifetime_ms BIGINT,
    former_version BIGINT,
    former_until_ms BIGINT,
    max_pool_size BIGINT NOT NULL,
    preferred BIGINT NOT NULL,
    fill_immediately BIGINT NOT NULL,
    allow_overflow BIGINT NOT NULL,
    overflow_number BIGINT,
    destination TEXT,
    tracking_url TEXT NOT NULL,
    destination_url TEXT NOT NULL,
    -- Members of the published API that are kept and shown as they came: a JSON object.
    kept TEXT NOT NULL,
    UNIQUE (network, id_from_network),
    FOREIGN KEY (network, advertiser, campaign) REFERENCES campaigns (network, advertiser, id)
);
CREATE INDEX ring_pools_by_version ON ring_pools (version);
CREATE INDEX ring_pools_by_overflow_number ON ring_pools (overflow_number);

-- Pools that are gone: their ids are never given again.
CREATE TABLE removed_pools (
    id BIGINT PRIMARY KEY,
    version BIGINT NOT NULL
);

-- Numbers in a row that share everything but the number. No two rows overlap.
CREATE TABLE numbers (
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
    CHECK (first_number BETWEEN 2000000000 AND last_number AND last_number <= 9999999999)
);
CREATE INDEX numbers_by_pool ON numbers (pool, first_number);
CREATE INDEX numbers_by_state ON numbers (state, first_number);
CREATE INDEX numbers_by_left_version ON numbers (left_version);

-- Servers that take the directory, and how far they have come.
CREATE TABLE nodes (
    name TEXT PRIMARY KEY,
    applied_version BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
);

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    network TEXT,
    created_ms BIGINT NOT NULL
);

CREATE TABLE audit_log (
    version BIGINT NOT NULL,
    place BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    before_change TEXT,
    after_change TEXT,
    PRIMARY KEY (version, place)
);
