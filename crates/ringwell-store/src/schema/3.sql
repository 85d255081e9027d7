-- Web sites whose pages show visitors numbers of their own. Lists are JSON.
CREATE TABLE sites (
    site_key TEXT PRIMARY KEY,
    origins TEXT NOT NULL,
    swaps TEXT NOT NULL,
    params TEXT NOT NULL,
    consent TEXT NOT NULL,
    edge_key TEXT,
    leases_per_minute BIGINT NOT NULL
);
-- The version in which a site was made, changed or removed last.
ALTER TABLE directory ADD COLUMN sites_version BIGINT NOT NULL DEFAULT 0;
