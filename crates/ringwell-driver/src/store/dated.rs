//! Wall-clock times that are dated in the same way as records. If the wall clock was wrong, they
//! are corrected together with the allocations. Source: docs/spec/journal.md, "History".

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Noted, shifted, wall_less_shard};
use serde::{Deserialize, Serialize};

use crate::canary::{Bug, planted};

/// A wall-clock time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Dated {
    /// The wall-clock time, by the wall clock's setting when the time was recorded.
    pub(super) recorded: Millis,
    /// The shard time, and the clocks from which the wall-clock time was computed. `None` if they
    /// are unknown or belong to another node.
    pub(super) noted: Option<Noted>,
}

/// The form of a [`Dated`] in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Plain(u64),
    Noted(StoredNoted),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNoted {
    wall: u64,
    at: u64,
    boot: u64,
    shard_offset: i64,
    wall_offset: i64,
}

impl Dated {
    /// Creates the time for `at`, a shard time that `clocks` show or that was recorded with them.
    #[must_use]
    pub fn new(at: Millis, clocks: Option<Clocks>) -> Self {
        let recorded = clocks.map_or(at, |clocks| clocks.wall(at));
        Self { recorded, noted: clocks.map(|clocks| Noted { at, clocks }) }
    }

    /// Returns the wall-clock time, by the clock's current setting or by its last setting in the
    /// boot in which the time was recorded.
    #[must_use]
    pub fn wall(&self, dating: Dating<'_>) -> Millis {
        let Some(own) = self.noted.filter(|_| !planted(Bug::GapsNotDated)) else {
            return self.recorded;
        };
        let noted = dating.noted.iter().copied().chain([own]);
        shifted(own.at, wall_less_shard(Some(own.clocks), Some(dating.now), noted))
    }

    /// Whether both times are records of the same event. The wall clock's setting may have been
    /// corrected in one of them.
    pub(super) fn is_same_record(&self, other: &Self) -> bool {
        match (self.noted, other.noted) {
            (Some(own), Some(other)) => (own.at, own.clocks.boot) == (other.at, other.clocks.boot),
            _ => self.recorded == other.recorded,
        }
    }

    /// Records the wall clock's last setting, because the clocks in `dating` are dropped with old
    /// history. Returns whether this changed anything.
    pub(super) fn settle(&mut self, dating: Dating<'_>) -> bool {
        let Some(Noted { at, clocks }) = &mut self.noted else { return false };
        let here = dating.noted.iter().filter(|it| it.clocks.boot == clocks.boot && it.at >= *at);
        let last = here.max_by_key(|it| it.at).map(|it| it.clocks);
        let last = if dating.now.boot == clocks.boot { Some(dating.now) } else { last };
        let before = clocks.wall_offset;
        clocks.wall_offset = last.map_or(before, |last| last.wall_offset);
        clocks.wall_offset != before
    }
}

impl From<Millis> for Dated {
    fn from(wall: Millis) -> Self {
        Self { recorded: wall, noted: None }
    }
}

impl From<Stored> for Dated {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Plain(wall) => Millis(wall).into(),
            Stored::Noted(StoredNoted { wall, at, boot, shard_offset, wall_offset }) => {
                let clocks = Clocks { boot, shard_offset, wall_offset };
                Self { recorded: Millis(wall), noted: Some(Noted { at: Millis(at), clocks }) }
            }
        }
    }
}

impl From<Dated> for Stored {
    fn from(Dated { recorded: Millis(wall), noted }: Dated) -> Self {
        noted.map_or(Self::Plain(wall), |Noted { at: Millis(at), clocks }| {
            let Clocks { boot, shard_offset, wall_offset } = clocks;
            Self::Noted(StoredNoted { wall, at, boot, shard_offset, wall_offset })
        })
    }
}

/// The clocks used to date times.
#[derive(Clone, Copy, Debug)]
pub struct Dating<'a> {
    /// The current clocks.
    pub now: Clocks,
    /// The clocks that the node's journals have recorded in earlier boots.
    pub noted: &'a [Noted],
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn clocks(boot: u64, ahead: i64) -> Clocks {
        Clocks { boot, shard_offset: 5_000, wall_offset: 5_000 + ahead }
    }

    #[test]
    fn a_time_follows_the_last_setting_of_the_wall_clock_in_its_boot() {
        let at = Millis(1_700_000_000_000);
        let wall = |dated: &Dated, now, noted: &[Noted]| dated.wall(Dating { now, noted });
        let by = |ahead| shifted(at, ahead);
        let mut dated = Dated::new(at, Some(clocks(1, HOUR)));
        assert_eq!(wall(&dated, clocks(1, HOUR), &[]), by(HOUR));
        assert_eq!(wall(&dated, clocks(1, 7), &[]), by(7));
        assert_eq!(wall(&dated, clocks(2, 7), &[]), by(HOUR), "the boot ended with this setting");
        let noted = |at: Millis, ahead| Noted { at, clocks: clocks(1, ahead) };
        let all = [noted(Millis(at.0 - 9), -HOUR), noted(Millis(at.0 + 9), 3)];
        assert_eq!(wall(&dated, clocks(2, 7), &all), by(3));
        assert_eq!(wall(&dated, clocks(2, 7), &all[..1]), by(HOUR), "from before");
        let dating = Dating { now: clocks(2, 7), noted: &all };
        assert!(dated.settle(dating) && !dated.settle(dating));
        assert_eq!(wall(&dated, clocks(3, 7), &[]), by(3), "the clocks were dropped");
        assert_eq!(wall(&Dated::new(at, None), clocks(1, HOUR), &all), at);
    }

    #[test]
    fn a_time_is_stored_with_its_clocks() {
        for dated in [Dated::from(Millis(5)), Dated::new(Millis(7_000), Some(clocks(u64::MAX, -9)))]
        {
            let stored = serde_json::to_string(&dated).unwrap();
            assert_eq!(serde_json::from_str::<Dated>(&stored).unwrap(), dated, "{stored}");
        }
        assert_eq!(serde_json::to_string(&Dated::from(Millis(5))).unwrap(), "5");
    }
}
