//! Shard time and the machine's clocks: at startup, shard time continues from the clocks recorded
//! in a journal, and then slowly approaches the wall clock.
//!
//! Within one boot of the machine, the time since boot advances evenly even if the wall clock is
//! set. The process's downtime is therefore known exactly. After a reboot only the wall clock is
//! available, and it may be wrong. Lockouts are therefore lengthened, so that a wrong wall clock
//! does not end them early. Source: docs/spec/allocation.md, "Time".

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Tip};

/// After a reboot, the wall clock is not trusted if it is ahead of the journal by more than this.
pub const CLOCK_GAP_MAX: Millis = Millis(24 * 60 * 60 * 1000);

/// The wall clock counts as set if the difference between it and the time since boot changes by at
/// least this much. Smaller changes arise because two clocks cannot be read at the same moment.
pub const WALL_STEP_MIN: Millis = Millis(5);

/// While shard time approaches the wall clock, it gains or loses one millisecond in this many
/// milliseconds: 500 parts per million.
const SLEW_ONE_IN: u64 = 2_000;

/// The time after which shard time may gain or lose one more millisecond.
pub const SLEW_EVERY: Millis = Millis(SLEW_ONE_IN + 1);

/// The machine's clocks, read at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// See [`Clocks::boot`].
    pub boot: u64,
    /// Time since boot.
    pub since_boot: Millis,
    /// The wall clock.
    pub wall: Millis,
}

/// The times that are recorded in one shard's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The newest recorded time, which has certainly passed, or zero if no time is recorded.
    pub last_at: Millis,
    /// The clocks at that time, if the files contain them.
    pub clocks: Option<Clocks>,
}

impl Recorded {
    /// Returns the times recorded at the end of a journal.
    #[must_use]
    pub fn at_end(tip: &Tip) -> Self {
        Self { last_at: tip.last_at, clocks: tip.clocks }
    }

    /// Returns the newer of two recorded times.
    #[must_use]
    pub fn or_newer(self, other: Self) -> Self {
        let is_newer = other.last_at > self.last_at || self.clocks.is_none();
        if is_newer { Self { last_at: other.last_at.max(self.last_at), ..other } } else { self }
    }
}

impl Reading {
    /// Returns the clocks that all shards of the process continue from.
    ///
    /// Shard time continues from the newest recorded time. The elapsed time is measured with the
    /// time since boot, or with the wall clock if the machine has rebooted since then. Shard time
    /// never goes back. A journal of format 1 contains no clocks. Shard time then starts at the
    /// wall clock, unless the journal is ahead of the wall clock.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    #[must_use]
    pub fn resume(&self, recorded: &[Recorded]) -> Clocks {
        let newest = recorded.iter().map(|it| it.last_at).max().unwrap_or_default();
        let noted = recorded.iter().filter_map(|it| Some((it.last_at, it.clocks?)));
        // Chooses the record that was written last in true time, which contains the last shard time
        // of the process. An idle shard's record was written earlier, although the shard time in it
        // may be later.
        let last = noted.max_by_key(|(last_at, clocks)| {
            let is_here = clocks.boot == self.boot;
            (is_here, if is_here { clocks.since_boot(*last_at) } else { *last_at }, *last_at)
        });
        let now = match last {
            Some((_, clocks)) if clocks.boot == self.boot => clocks.shard(self.since_boot),
            Some((last_at, clocks)) => last_at + self.wall.since(clocks.wall(last_at)),
            None => self.wall,
        };
        // Limits the time to values that `i64` can represent, because a file may contain any time.
        // No real clock comes near that limit.
        let now = now.max(newest).min(Millis(i64::MAX.cast_unsigned()));
        let shard_offset = now.0.cast_signed() - self.since_boot.0.cast_signed();
        let seen = self.wall.0.cast_signed() - self.since_boot.0.cast_signed();
        let noted = last.filter(|(_, clocks)| clocks.boot == self.boot);
        let wall_offset = noted.map_or(shard_offset, |(_, clocks)| clocks.wall_offset);
        let clocks = Clocks { boot: self.boot, shard_offset, wall_offset };
        assert!(
            clocks.shard(self.since_boot) == now,
            "shard time does not continue at the given time"
        );
        observed(clocks, seen)
    }
}

/// Returns the clocks, updated with a new reading of the wall clock. `seen` is the wall clock minus
/// the time since boot.
#[must_use]
pub fn observed(clocks: Clocks, seen: i64) -> Clocks {
    let is_set = seen.abs_diff(clocks.wall_offset) >= WALL_STEP_MIN.0;
    Clocks { wall_offset: if is_set { seen } else { clocks.wall_offset }, ..clocks }
}

/// Returns the clocks with shard time moved one millisecond toward the wall clock. Call this no
/// sooner than [`SLEW_EVERY`] after the last call. Call it only once even if more time has passed,
/// because lockouts allow only for steps that are spread evenly over time.
#[must_use]
pub fn slewed(clocks: Clocks) -> Clocks {
    let moved = clocks.wall_less_shard().signum();
    Clocks { shard_offset: clocks.shard_offset.saturating_add(moved), ..clocks }
}

/// Returns the lockout, in shard time, that keeps a number locked for `lifetime` in true time.
/// Shard time is rounded down to whole milliseconds, and may run faster than true time while it
/// approaches the wall clock.
#[must_use]
pub fn lockout(lifetime: Millis) -> Millis {
    lifetime + Millis(lifetime.0.div_ceil(SLEW_ONE_IN)) + Millis(1)
}

/// Returns the lifetime for which [`lockout`] returns this lockout.
#[must_use]
pub fn lifetime(lockout: Millis) -> Millis {
    let Millis(scaled) = lockout.since(Millis(1));
    // The product fits into 128 bits, and the result is smaller than the input.
    let lifetime = u128::from(scaled) * u128::from(SLEW_ONE_IN) / u128::from(SLEW_ONE_IN + 1);
    Millis(u64::try_from(lifetime).unwrap_or(u64::MAX))
}

/// Returns the maximum time that shard time may have gained on true time between `before` and `at`.
/// Lockouts that were running at `before` are lengthened by this time.
pub(crate) fn doubtful(
    before: Recorded,
    at: Millis,
    clocks: Option<Clocks>,
    skew_max: Millis,
) -> Millis {
    let ahead = at.since(before.last_at);
    let by = match (before.clocks, clocks) {
        _ if before.last_at == Millis::ZERO => Millis::ZERO,
        (Some(then), Some(now)) if then.boot == now.boot => {
            let passed = now.since_boot(at).since(then.since_boot(before.last_at));
            ahead.since(passed + Millis(passed.0 / SLEW_ONE_IN) + Millis(1))
        }
        _ if ahead > CLOCK_GAP_MAX => ahead,
        // The wall clock may have been behind at `before`, and may be ahead now.
        (_, Some(_)) => ahead.min(skew_max + skew_max),
        (_, None) => Millis::ZERO,
    };
    assert!(by <= ahead, "more time is in doubt than has passed");
    by
}

#[cfg(test)]
mod tests;
