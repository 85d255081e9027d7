//! The clocks of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwell_core::Millis;
use ringwell_driver::clock;
use ringwell_engine::{Clocks, Reading, Recorded};
use rustix::time::{ClockId, clock_gettime};

/// Time since boot, which continues while the machine sleeps. On macOS, where an engine in a gem
/// runs, that is the monotonic clock.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

#[cfg(target_os = "linux")]
const COARSE: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(target_os = "linux"))]
const COARSE: ClockId = ClockId::Monotonic;

/// Shard time by the clocks of this machine.
#[derive(Clone, Debug)]
pub struct Clock(clock::Clock);

impl Clock {
    /// A clock for a process without history.
    #[must_use]
    pub fn start() -> Self {
        Self::resume(&[])
    }

    /// A clock that continues from the shards' files.
    #[must_use]
    pub fn resume(recorded: &[Recorded]) -> Self {
        let reading = reading();
        Self::going_on(reading.resume(recorded), reading.since_boot)
    }

    /// A clock that continues from readings taken at the given time since boot.
    #[must_use]
    pub fn going_on(clocks: Clocks, since_boot: Millis) -> Self {
        Self(clock::Clock::going_on(clocks, since_boot))
    }

    /// Shard time now.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.0.now(boot_time())
    }

    /// The current readings of the clocks.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        self.0.clocks(boot_time(), wall_time())
    }

    /// Shard time without the clocks of a machine, for tests.
    #[must_use]
    pub fn shard_time(&self) -> clock::Clock {
        self.0.clone()
    }
}

/// Time since some origin, accurate to a few milliseconds: precise enough for limits of seconds,
/// and a fifth of the cost of an exact reading.
#[must_use]
pub fn coarse_time() -> Duration {
    read(COARSE)
}

/// The clocks of the machine.
#[must_use]
pub fn reading() -> Reading {
    clock::reading(boot(), boot_time(), wall_time())
}

/// Identifies this boot of the machine. If the system does not report it, each start counts as a
/// boot.
fn boot() -> u64 {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    let mut id = read("/proc/sys/kernel/random/boot_id");
    if id.is_empty() {
        id = wall_time().as_nanos().to_le_bytes().to_vec();
    }
    // In a separate time namespace, a process has a different time since boot.
    id.extend(read("/proc/self/timens_offsets"));
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(&id).as_bytes()[..8]);
    u64::from_le_bytes(first).max(1)
}

/// The wall clock's time since 1970.
#[must_use]
pub fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time since the machine was booted, suspension included.
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
