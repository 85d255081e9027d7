-- The network that a removed pool was in: sites may still name the pool. NULL for pools that were
-- removed before.
ALTER TABLE removed_pools ADD COLUMN network TEXT;
