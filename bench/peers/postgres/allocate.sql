-- Allocates the numbers for one batch. $1 lists each pool once, and $2 lists the count of numbers
-- to take from each. Numbers that another batch has locked are skipped, because that batch will get
-- them.
-- The update finds its rows by number. If it used ctid, it would miss rows that another batch has
-- updated since this statement's snapshot, even if their lockouts have ended.
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
