ALTER TABLE numbers ADD CONSTRAINT numbers_do_not_overlap
EXCLUDE USING gist (int8range(first_number, last_number, '[]') WITH &&);
