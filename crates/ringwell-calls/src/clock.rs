//! The wall clock, and the format for times.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use ringwell_core::Millis;

/// The current wall-clock time.
#[must_use]
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a time in UTC, as the API shows it.
#[must_use]
pub fn moment(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}
