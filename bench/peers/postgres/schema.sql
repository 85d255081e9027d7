-- The numbers of all pools. free_at is in milliseconds since 1970.
CREATE TABLE number (
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    lifetime bigint NOT NULL,
    free_at bigint NOT NULL,
    PRIMARY KEY (number)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.1
);
CREATE INDEX number_free ON number (pool_id, free_at);
