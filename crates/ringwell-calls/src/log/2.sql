-- When visitors of web pages tapped a number: the newest tap of each minute, so that many taps take no
-- more than that.
CREATE TABLE number_taps (
    number TEXT NOT NULL,
    minute BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (number, minute)
);
CREATE INDEX number_taps_by_time ON number_taps (at_ms);
