//! Calls: telephony providers, the call log, attribution at the ring, webhooks out.
