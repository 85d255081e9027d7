//! Reads the machine's clocks, and the CPU time of this process, as integers.
//!
//! Unless stated otherwise, times are nanoseconds of `CLOCK_MONOTONIC`. All processes on a machine
//! share this clock, so the histories of several clients can be joined. `std::time::Instant` reads
//! the same clock but does not reveal its value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) fn now_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// The CPU time that this process has used (user and system), in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// The wall clock, in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a duration to nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn as_ns(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in seconds, for output and for calculations with rates.
#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days, and a run is shorter")]
pub(crate) fn as_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn nanos(time: Timespec) -> u64 {
    // The monotonic clock and the CPU time start at 0 and never decrease.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
