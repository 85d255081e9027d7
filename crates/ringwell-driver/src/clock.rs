//! Shard time, which runs steadily, and its relation to the wall clock.
//!
//! Shard time is the time since boot plus an offset that is determined at startup. The time since
//! boot includes any time during which the machine was suspended. While the process runs, shard
//! time does not follow wall-clock steps. It approaches the wall clock by at most half a
//! millisecond per second. This module reads no clock; readings are passed to it. Source:
//! docs/spec/allocation.md, "Time".

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_engine::{Clocks, Reading, SLEW_EVERY, observed, slewed};

use crate::canary::{Bug, planted};

/// If the wall clock differs from shard time by more than this, a warning is logged.
pub const WALL_APART_WARNED: Millis = Millis(1_000);

/// Shard time. All shards of a process share one clock, so lockouts that they report to each other
/// need no conversion.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    boot: u64,
    shard_offset: AtomicI64,
    wall_offset: AtomicI64,
    /// The time since boot at which shard time was last adjusted.
    slewed_at: AtomicU64,
}

impl Clock {
    /// Creates a clock that continues from `clocks`, which were read at `since_boot`.
    #[must_use]
    pub fn going_on(clocks: Clocks, since_boot: Millis) -> Self {
        Self(Arc::new(Shared {
            boot: clocks.boot,
            shard_offset: AtomicI64::new(clocks.shard_offset),
            wall_offset: AtomicI64::new(clocks.wall_offset),
            slewed_at: AtomicU64::new(since_boot.0),
        }))
    }

    /// Shard time. May go back by a millisecond while it approaches the wall clock; an engine's
    /// time never goes back.
    #[must_use]
    pub fn now(&self, since_boot: Duration) -> Millis {
        let noted = self.noted();
        if planted(Bug::WallClock) {
            return Millis(millis(since_boot).0.saturating_add_signed(noted.wall_offset));
        }
        noted.shard(millis(since_boot))
    }

    /// Returns the current state of the clocks. Also adjusts shard time toward the wall clock if an
    /// adjustment is due.
    #[must_use]
    pub fn clocks(&self, since_boot: Duration, wall: Duration) -> Clocks {
        let before = self.noted();
        let clocks = observed(before, wall_offset(wall, since_boot));
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
        // One thread makes the adjustment, which is then no longer due for the other threads.
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

/// Returns the machine's clocks, read at startup; `boot` identifies the current boot.
#[must_use]
pub fn reading(boot: u64, since_boot: Duration, wall: Duration) -> Reading {
    let since_boot_ms = millis(since_boot);
    // `wall` is computed from the offset and not rounded separately, so that `wall` minus
    // `since_boot` is exactly the offset.
    let offset = wall_offset(wall, since_boot);
    let wall = Millis(since_boot_ms.0.saturating_add_signed(offset));
    Reading { boot, since_boot: since_boot_ms, wall }
}

/// Returns the wall clock minus the time since boot, in milliseconds.
fn wall_offset(wall: Duration, since_boot: Duration) -> i64 {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match wall.checked_sub(since_boot) {
        Some(ahead) => ms(ahead),
        None => -ms(since_boot.saturating_sub(wall)),
    }
}

/// Whole milliseconds, rounded down.
fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_time_follows_the_wall_clock_a_step_at_a_time() {
        let begun = Duration::from_secs(1_000);
        let clocks = Clocks { boot: 1, shard_offset: 0, wall_offset: 0 };
        let clock = Clock::going_on(clocks, millis(begun));
        let offset_after = |passed: Millis| {
            let since_boot = begun + Duration::from_millis(passed.0);
            // The wall clock is set an hour ahead.
            let read = clock.clocks(since_boot, since_boot + Duration::from_hours(1));
            assert_eq!(read.wall_offset, 3_600_000);
            assert_eq!(clock.now(since_boot).since(millis(since_boot)).0, offset(read));
            offset(read)
        };
        assert_eq!(offset_after(Millis::ZERO), 0);
        assert_eq!(offset_after(SLEW_EVERY - Millis(1)), 0);
        let first = offset_after(SLEW_EVERY);
        assert!(first > 0 && first < 1_000, "a step of {first} ms");
        assert_eq!(offset_after(SLEW_EVERY), first, "not twice at the same time");
        assert_eq!(offset_after(SLEW_EVERY + SLEW_EVERY - Millis(1)), first);
        assert_eq!(offset_after(SLEW_EVERY + SLEW_EVERY), 2 * first);
    }

    fn offset(clocks: Clocks) -> u64 {
        clocks.shard_offset.unsigned_abs()
    }
}
