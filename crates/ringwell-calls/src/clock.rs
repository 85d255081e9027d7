//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use ringwell_core::Millis;

/// The current wall-clock time.
#[must_use]
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
