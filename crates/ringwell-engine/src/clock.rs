//! Shard time and the clocks of the machine: how shard time continues at startup from the clocks in
//! a journal, and how it approaches the wall clock.
//!
//! Within one boot of the machine, the time since boot runs evenly even if the wall clock is set,
//! so the length of an interruption is known exactly. After another boot only the wall clock
//! remains, and it may be wrong: lengthening lockouts limits the damage. Source:
//! docs/spec/allocation.md, "Time".

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Tip};

/// A wall clock that is further ahead of the journal than this after a boot is not trusted.
pub const CLOCK_GAP_MAX: Millis = Millis(24 * 60 * 60 * 1000);

/// A wall clock that differs by less than this has not been set: reading two clocks one after the
/// other takes time.
pub const WALL_STEP_MIN: Millis = Millis(5);

/// Shard time approaches the wall clock by one millisecond in this many: 500 parts in a million.
const SLEW_ONE_IN: u64 = 2_000;

/// Shard time moves by one millisecond when this much time has passed since its last move.
pub const SLEW_EVERY: Millis = Millis(SLEW_ONE_IN + 1);

/// The clocks of the machine, read at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// See [`Clocks::boot`].
    pub boot: u64,
    /// Time since boot.
    pub since_boot: Millis,
    /// The wall clock.
    pub wall: Millis,
}

/// The times in one shard's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The newest time that has certainly passed; zero if nothing is recorded.
    pub last_at: Millis,
    /// The clocks at that time, if they were recorded.
    pub clocks: Option<Clocks>,
}

impl Recorded {
    /// The data at the end of a journal.
    #[must_use]
    pub fn at_end(tip: &Tip) -> Self {
        Self { last_at: tip.last_at, clocks: tip.clocks }
    }

    /// The newer of two.
    #[must_use]
    pub fn or_newer(self, other: Self) -> Self {
        let is_newer = other.last_at > self.last_at || self.clocks.is_none();
        if is_newer { Self { last_at: other.last_at.max(self.last_at), ..other } } else { self }
    }
}

impl Reading {
    /// The clocks from which all shards of the process continue.
    ///
    /// Within a boot, shard time continues from its newest record by the time since boot; after
    /// another boot it continues from its newest record by the wall clock. It never falls. A
    /// journal of format 1 recorded no clocks; the wall clock then counts, unless the journal is
    /// ahead of it.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    #[must_use]
    pub fn resume(&self, recorded: &[Recorded]) -> Clocks {
        let newest = recorded.iter().map(|it| it.last_at).max().unwrap_or_default();
        let noted = recorded.iter().filter_map(|it| Some((it.last_at, it.clocks?)));
        // The newest record in true time, which has the last shard time of the process. An idle
        // shard's record is older, but its shard time may have been ahead.
        let last = noted.max_by_key(|(last_at, clocks)| {
            let is_here = clocks.boot == self.boot;
            (is_here, if is_here { clocks.since_boot(*last_at) } else { *last_at }, *last_at)
        });
        let now = match last {
            Some((_, clocks)) if clocks.boot == self.boot => clocks.shard(self.since_boot),
            Some((last_at, clocks)) => last_at + self.wall.since(clocks.wall(last_at)),
            None => self.wall,
        };
        // A file may contain any time; no clock comes near the limit.
        let now = now.max(newest).min(Millis(i64::MAX.cast_unsigned()));
        let shard_offset = now.0.cast_signed() - self.since_boot.0.cast_signed();
        let seen = self.wall.0.cast_signed() - self.since_boot.0.cast_signed();
        let noted = last.filter(|(_, clocks)| clocks.boot == self.boot);
        let wall_offset = noted.map_or(shard_offset, |(_, clocks)| clocks.wall_offset);
        let clocks = Clocks { boot: self.boot, shard_offset, wall_offset };
        assert!(clocks.shard(self.since_boot) == now, "shard time continues elsewhere");
        observed(clocks, seen)
    }
}

/// The clocks after the wall clock was read again: `seen` is the wall clock less the time since
/// boot.
#[must_use]
pub fn observed(clocks: Clocks, seen: i64) -> Clocks {
    let is_set = seen.abs_diff(clocks.wall_offset) >= WALL_STEP_MIN.0;
    Clocks { wall_offset: if is_set { seen } else { clocks.wall_offset }, ..clocks }
}

/// The clocks with shard time moved towards the wall clock by a millisecond. Call this no sooner
/// than [`SLEW_EVERY`] after the last call, and only once even after a longer time, because a
/// lockout's allowance must not be used up at once.
#[must_use]
pub fn slewed(clocks: Clocks) -> Clocks {
    let moved = clocks.wall_less_shard().signum();
    Clocks { shard_offset: clocks.shard_offset.saturating_add(moved), ..clocks }
}

/// The time for which a number must be locked to be locked for `lifetime` in true time: shard time
/// is in whole milliseconds, rounded down, and may run ahead of true time while it approaches the
/// wall clock.
#[must_use]
pub fn lockout(lifetime: Millis) -> Millis {
    lifetime + Millis(lifetime.0.div_ceil(SLEW_ONE_IN)) + Millis(1)
}

/// The lifetime that belongs to a [`lockout`].
#[must_use]
pub fn lifetime(lockout: Millis) -> Millis {
    let Millis(scaled) = lockout.since(Millis(1));
    // In 128 bits nothing overflows, and the result is smaller than the input.
    let lifetime = u128::from(scaled) * u128::from(SLEW_ONE_IN) / u128::from(SLEW_ONE_IN + 1);
    Millis(u64::try_from(lifetime).unwrap_or(u64::MAX))
}

/// The part of the time from `before` to `at` that may not have passed; lockouts that ran before
/// are lengthened by it.
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
        (_, Some(_)) => ahead.min(skew_max),
        (_, None) => Millis::ZERO,
    };
    assert!(by <= ahead, "more time is in doubt than there was");
    by
}

#[cfg(test)]
mod tests;
