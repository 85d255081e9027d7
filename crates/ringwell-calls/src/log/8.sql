-- Few calls ring at a time; among millions those that ring for too long are found by this index.
CREATE INDEX calls_ringing ON calls (started_ms) WHERE state = 'ringing';
