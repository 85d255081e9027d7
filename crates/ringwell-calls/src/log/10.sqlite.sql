-- The id of an entry was a hash of the caller's number, from which the number could be computed. All ids are
-- replaced by random ones.
CREATE TEMPORARY TABLE renamed_blocks AS
    SELECT id AS old_id, 'b_' || lower(hex(randomblob(16))) AS new_id FROM call_blocks;
UPDATE calls SET blocked = COALESCE((SELECT new_id FROM renamed_blocks WHERE old_id = blocked), 'b_removed')
    WHERE blocked IS NOT NULL;
UPDATE call_blocks SET id = (SELECT new_id FROM renamed_blocks WHERE old_id = id);
DROP TABLE renamed_blocks;
