-- The id of a call is derived from its account and the provider's id: it is unique already.
ALTER TABLE calls DROP CONSTRAINT IF EXISTS calls_account_provider_call_id_key;
