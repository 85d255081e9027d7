//! Shard time: the wall clock when the process started, and since then the time that has passed.
//!
//! Steps of the wall clock have no effect while the process runs. `CLOCK_BOOTTIME` goes on while
//! the machine is suspended, so lockouts do not outlive a night in sleep mode.
//! Source: docs/spec/allocation.md, "Time".

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwell_core::Millis;
use rustix::time::{ClockId, clock_gettime};

/// Reads shard time. All shards of a process share one.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The wall clock then, with the part of a millisecond: rounding happens once.
    anchor: Duration,
    started: Duration,
}

impl Clock {
    /// Takes the wall clock as it is now.
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { anchor: wall, started: boot_time() }
    }

    /// The same clock, moved forward if it is behind `known`: the newest time in a journal.
    #[must_use]
    pub fn not_before(self, known: Millis) -> Self {
        let behind = known.since(self.now());
        Self { anchor: self.anchor + Duration::from_millis(behind.0), ..self }
    }

    /// Shard time now.
    #[must_use]
    pub fn now(&self) -> Millis {
        millis(self.anchor + boot_time().saturating_sub(self.started))
    }
}

/// Time that has passed since some moment, to a few milliseconds: enough for limits of seconds,
/// and a fifth of the price of an exact reading.
pub(crate) fn coarse_time() -> Duration {
    read(ClockId::MonotonicCoarse)
}

fn boot_time() -> Duration {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
