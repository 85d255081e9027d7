-- What `EXCLUDE` does in PostgreSQL: a range that begins before the new one's end must end before
-- it begins. As no others overlap, the last of those is the only one to look at.
CREATE TRIGGER numbers_do_not_overlap BEFORE INSERT ON numbers
WHEN (
    SELECT last_number FROM numbers WHERE first_number <= NEW.last_number
    ORDER BY first_number DESC LIMIT 1
) >= NEW.first_number
BEGIN
    SELECT RAISE(ABORT, 'numbers_do_not_overlap');
END;
CREATE TRIGGER numbers_stay_where_they_are
BEFORE UPDATE OF first_number, last_number ON numbers
BEGIN
    SELECT RAISE(ABORT, 'numbers_do_not_overlap: delete and insert instead');
END;
