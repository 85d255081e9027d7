-- One batch: $1 pools, each once, $2 how many numbers each of them is to give.
-- What another batch has locked is skipped; that batch will have it.
-- The update finds its rows by number: by ctid it would miss those that another batch has updated,
-- and whose lockout has ended, since this statement's snapshot was taken.
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), chosen AS MATERIALIZED (
    SELECT head.number, clock.now
    FROM clock, unnest($1::bigint[], $2::bigint[]) AS asked (pool_id, count),
    LATERAL (
        SELECT number.number FROM number
        WHERE number.pool_id = asked.pool_id AND number.free_at <= clock.now
        ORDER BY number.free_at
        LIMIT asked.count
        FOR UPDATE SKIP LOCKED
    ) AS head
)
UPDATE number SET free_at = chosen.now + number.lifetime
FROM chosen
WHERE number.number = chosen.number
RETURNING number.pool_id, number.number
