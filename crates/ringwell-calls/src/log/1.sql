-- One row a call. `facts` holds what providers have reported, joined; the columns beside it are
-- derived from it.
CREATE TABLE calls (
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
    -- pending, allocated, overflow, none or unknown; the whole of it as JSON beside it.
    attributed TEXT NOT NULL,
    attribution TEXT,
    stir TEXT,
    facts TEXT NOT NULL,
    -- Which events have been published: s(tarted), a(nswered), c(ompleted).
    published TEXT NOT NULL,
    redacted_ms BIGINT,
    UNIQUE (account, provider_call_id)
);
CREATE INDEX calls_by_start ON calls (started_ms, id);
CREATE INDEX calls_by_number ON calls (number, started_ms);
CREATE INDEX calls_by_pool ON calls (pool, started_ms);
CREATE INDEX calls_by_caller ON calls (caller, started_ms);
CREATE INDEX calls_by_attributed ON calls (attributed, started_ms);

-- Reports of providers, each once.
CREATE TABLE call_timeline (
    call TEXT NOT NULL,
    report TEXT NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT,
    at_ms BIGINT NOT NULL,
    received_ms BIGINT NOT NULL,
    PRIMARY KEY (call, report)
);

-- Results of calls, as the users' programs report them.
CREATE TABLE call_outcomes (
    call TEXT NOT NULL,
    external_id TEXT NOT NULL,
    type TEXT NOT NULL,
    value TEXT,
    currency TEXT,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (call, external_id)
);

-- What has happened, in the order in which it can be read: `place` has no gaps and never goes back.
CREATE TABLE call_events (
    place BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    call TEXT,
    at_ms BIGINT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX call_events_by_call ON call_events (call, place);
CREATE INDEX call_events_by_time ON call_events (at_ms);
CREATE TABLE call_counter (last_place BIGINT NOT NULL);
INSERT INTO call_counter (last_place) VALUES (0);

-- Where events are sent.
CREATE TABLE webhook_endpoints (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    -- Names between spaces, with one at each end; empty for all.
    types TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until_ms BIGINT,
    -- Signs an additional header as CallRail does.
    company_key TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    failing_since_ms BIGINT,
    created_ms BIGINT NOT NULL
);
CREATE TABLE webhook_deliveries (
    endpoint TEXT NOT NULL,
    event BIGINT NOT NULL,
    -- pending, delivered, failed or held: the endpoint is disabled.
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    next_ms BIGINT NOT NULL,
    last_ms BIGINT,
    last_status BIGINT,
    last_error TEXT,
    PRIMARY KEY (endpoint, event)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (state, endpoint, next_ms);
CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (event);

-- Keys by which callers are hashed, one a month. Without its key a month's callers cannot be told.
CREATE TABLE caller_keys (
    month TEXT PRIMARY KEY,
    secret TEXT NOT NULL
);
