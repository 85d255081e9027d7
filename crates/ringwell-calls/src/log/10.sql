-- Blocking a caller twice changes the entry.
CREATE UNIQUE INDEX call_blocks_by_caller ON call_blocks (caller, pool);
