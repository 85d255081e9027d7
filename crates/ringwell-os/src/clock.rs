//! The clocks of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwell_core::Millis;
use ringwell_driver::clock;
use ringwell_engine::{Clocks, Reading, Recorded};
use rustix::time::{ClockId, clock_gettime};

/// The clock for the time since boot, which also advances while the machine sleeps. On macOS, where
/// an engine in a gem can run, it is the monotonic clock.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

#[cfg(target_os = "linux")]
const COARSE: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(target_os = "linux"))]
const COARSE: ClockId = ClockId::Monotonic;

/// Shard time according to this machine's clocks.
#[derive(Clone, Debug)]
pub struct Clock(clock::Clock);

impl Clock {
    /// Starts a clock for a process that has no history.
    #[must_use]
    pub fn start() -> Self {
        Self::resume(&[])
    }

    /// Starts a clock that continues from the times recorded in the shards' files.
    #[must_use]
    pub fn resume(recorded: &[Recorded]) -> Self {
        let reading = reading();
        Self::going_on(reading.resume(recorded), reading.since_boot)
    }

    /// Starts a clock that continues from `clocks`, which were read at `since_boot`.
    #[must_use]
    pub fn going_on(clocks: Clocks, since_boot: Millis) -> Self {
        Self(clock::Clock::going_on(clocks, since_boot))
    }

    /// Shard time now.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.0.now(boot_time())
    }

    /// Returns the current readings of the clocks.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        self.0.clocks(boot_time(), wall_time())
    }

    /// Returns the driver's clock, which computes shard time from readings that the caller passes.
    #[must_use]
    pub fn shard_time(&self) -> clock::Clock {
        self.0.clone()
    }
}

/// Returns the time since an arbitrary origin, with an error of a few milliseconds. This is precise
/// enough for limits of a second or more, and takes a fifth as long as an exact reading.
#[must_use]
pub fn coarse_time() -> Duration {
    read(COARSE)
}

/// Reads the machine's clocks.
#[must_use]
pub fn reading() -> Reading {
    clock::reading(boot(), boot_time(), wall_time())
}

/// Returns a number that identifies the machine's current boot. If the system provides no boot id,
/// each reading counts as a new boot.
fn boot() -> u64 {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    let mut id = read("/proc/sys/kernel/random/boot_id");
    if id.is_empty() {
        id = wall_time().as_nanos().to_le_bytes().to_vec();
    }
    // A process in a separate time namespace may get a different time since boot.
    id.extend(read("/proc/self/timens_offsets"));
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(&id).as_bytes()[..8]);
    u64::from_le_bytes(first).max(1)
}

/// Returns the time since 1970 according to the wall clock.
#[must_use]
pub fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the machine was booted, including the time that it was suspended.
#[must_use]
pub fn boot_time() -> Duration {
    read(SINCE_BOOT)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}
