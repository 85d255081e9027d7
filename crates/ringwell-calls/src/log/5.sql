-- Numbers that were called although no visitor can have seen them, and when that was reported last.
CREATE TABLE number_leaks (
    number TEXT PRIMARY KEY,
    at_ms BIGINT NOT NULL
);
