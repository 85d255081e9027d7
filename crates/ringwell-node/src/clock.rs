//! The clocks of the machine: shard time, which goes on evenly, beside the wall clock.
//!
//! Shard time is the time since boot (`CLOCK_BOOTTIME`, which goes on while the machine is
//! suspended) and an offset that a start finds out. Steps of the wall clock have no effect on it while
//! the process runs; it rejoins the wall clock by half a millisecond a second at most.
//! Source: docs/spec/allocation.md, "Time".

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwell_core::Millis;
use ringwell_engine::{Clocks, Reading, Recorded, SLEW_EVERY, observed, slewed};
use rustix::time::{ClockId, clock_gettime};

/// A wall clock that is further from shard time than this is reported.
pub(crate) const WALL_APART_WARNED: Millis = Millis(1_000);

/// Reads shard time. All shards of a process share one.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    boot: u64,
    shard_offset: AtomicI64,
    wall_offset: AtomicI64,
    /// The time since boot up to which shard time was moved.
    slewed_at: AtomicU64,
}

impl Clock {
    /// A clock for a process that goes on from nothing.
    #[must_use]
    pub fn start() -> Self {
        Self::resume(&[])
    }

    /// A clock that goes on from what the shards' files say.
    #[must_use]
    pub fn resume(recorded: &[Recorded]) -> Self {
        let reading = reading();
        let clocks = reading.resume(recorded);
        Self(Arc::new(Shared {
            boot: clocks.boot,
            shard_offset: AtomicI64::new(clocks.shard_offset),
            wall_offset: AtomicI64::new(clocks.wall_offset),
            slewed_at: AtomicU64::new(reading.since_boot.0),
        }))
    }

    /// Shard time now. May fall by a millisecond while it waits for the wall clock: an engine's time
    /// never does.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.noted().shard(millis(boot_time()))
    }

    /// The clocks as they stand: reads the wall clock, and moves shard time towards it if that is
    /// due.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        let (since_boot, wall) = (boot_time(), wall_time());
        let before = self.noted();
        let clocks = observed(before, offset(wall, since_boot));
        if clocks != before {
            self.0.wall_offset.store(clocks.wall_offset, Ordering::Relaxed);
        }
        self.slew(clocks, millis(since_boot));
        self.noted()
    }

    fn slew(&self, clocks: Clocks, since_boot: Millis) {
        let before = self.0.slewed_at.load(Ordering::Relaxed);
        if since_boot.since(Millis(before)) < SLEW_EVERY {
            return;
        }
        // One thread moves it, the others find it done.
        let order = Ordering::Relaxed;
        let mine = self.0.slewed_at.compare_exchange(before, since_boot.0, order, order);
        if mine.is_ok() {
            self.0.shard_offset.store(slewed(clocks).shard_offset, order);
        }
    }

    fn noted(&self) -> Clocks {
        Clocks {
            boot: self.0.boot,
            shard_offset: self.0.shard_offset.load(Ordering::Relaxed),
            wall_offset: self.0.wall_offset.load(Ordering::Relaxed),
        }
    }
}

/// Time that has passed since some moment, to a few milliseconds: enough for limits of seconds,
/// and a fifth of the price of an exact reading.
pub(crate) fn coarse_time() -> Duration {
    read(ClockId::MonotonicCoarse)
}

fn reading() -> Reading {
    let (since_boot, wall) = (boot_time(), wall_time());
    let since_boot_ms = millis(since_boot);
    // Rounded once: with the offset, whole milliseconds since boot give the wall clock.
    let wall = Millis(since_boot_ms.0.saturating_add_signed(offset(wall, since_boot)));
    Reading { boot: boot(), since_boot: since_boot_ms, wall }
}

/// Identifies this boot of the machine. Where the system does not say, each start counts as one.
fn boot() -> u64 {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    let mut id = read("/proc/sys/kernel/random/boot_id");
    if id.is_empty() {
        id = wall_time().as_nanos().to_le_bytes().to_vec();
    }
    // In a time namespace of its own a process has another time since boot.
    id.extend(read("/proc/self/timens_offsets"));
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(&id).as_bytes()[..8]);
    u64::from_le_bytes(first).max(1)
}

/// The wall clock less the time since boot, in milliseconds.
fn offset(wall: Duration, since_boot: Duration) -> i64 {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match wall.checked_sub(since_boot) {
        Some(ahead) => ms(ahead),
        None => -ms(since_boot.saturating_sub(wall)),
    }
}

fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
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
