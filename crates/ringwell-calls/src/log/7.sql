-- An endpoint's secret before the one before: after two rotations within a day, three secrets sign.
ALTER TABLE webhook_endpoints ADD COLUMN older_secret TEXT;
ALTER TABLE webhook_endpoints ADD COLUMN older_secret_until_ms BIGINT;
