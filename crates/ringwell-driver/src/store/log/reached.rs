//! The ends of logs that other processes reported while this one waited. If a log is later found to
//! end before its reported end, it has lost groups or has been replaced.
//!
//! A process reports only groups that its log has stored. So a process that takes a shard over must
//! find all groups that were reported for it. Source: docs/spec/log.md, "Lost streams".

use std::collections::BTreeMap;
use std::time::Duration;

use ringwell_core::Millis;

use super::end::{LogEnd, Peak, Reached};
use super::interface::{LastOwner, Sign};
use crate::canary::{Bug, planted};
use crate::platform::Moment;

/// The age at which a report stops counting, in multiples of the longest lockout. All numbers that
/// were handed out before such a report are free.
const LOCKOUTS: u64 = 2;

/// Returns the ends of logs that `last_owner` and earlier owners reported. A report is ignored if
/// all numbers that were handed out before it must be free. `lockout_max` is the longest lockout.
#[must_use]
pub fn reached_ends(
    shards: &[u16],
    last_owner: Option<&LastOwner>,
    lockout_max: Millis,
) -> BTreeMap<u16, LogEnd> {
    let most = Duration::from_millis(lockout_max.0.saturating_mul(LOCKOUTS));
    let recent = |peak: Peak| {
        if peak.ago > most || planted(Bug::ReachedIgnored) { 0 } else { peak.value }
    };
    let reached = last_owner.into_iter().flat_map(|owner| &owner.reached);
    let end =
        |reached: &Reached| LogEnd { epoch: recent(reached.epoch), group: recent(reached.group) };
    shards.iter().copied().zip(reached.map(end)).collect()
}

/// The highest value, and the time when it was last reported.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    value: u64,
    at: Moment,
}

impl Highest {
    fn report(&mut self, value: u64, now: Moment) {
        if value >= self.value {
            *self = Self { value, at: now };
        }
    }

    fn peak(self, now: Moment) -> Peak {
        Peak { value: self.value, ago: now.since(self.at) }
    }
}

/// The reports that were received during a wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports(Vec<(Highest, Highest)>);

impl Reports {
    pub(super) fn add(&mut self, sign: &Sign, now: Moment) {
        if self.0.len() < sign.epochs.len() {
            self.0.resize_with(sign.epochs.len(), Default::default);
        }
        for ((epoch, _), value) in self.0.iter_mut().zip(&sign.epochs) {
            epoch.report(*value, now);
        }
        for ((_, group), value) in self.0.iter_mut().zip(&sign.stored) {
            group.report(*value, now);
        }
    }

    pub(super) fn reached(&self, now: Moment) -> Vec<Reached> {
        let of = |(epoch, group): &(Highest, Highest)| Reached {
            epoch: epoch.peak(now),
            group: group.peak(now),
        };
        self.0.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use ringwell_engine::Recorded;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default() + Duration::from_secs(seconds)
    }

    fn ends(signs: &[(u64, u64, u64)], now: u64) -> BTreeMap<u16, LogEnd> {
        let mut reports = Reports::default();
        for (seconds, epoch, group) in signs {
            let at_ms = Millis(seconds * 1_000);
            let sign = Sign { at: at_ms, epochs: vec![1, *epoch], stored: vec![0, *group] };
            reports.add(&sign, at(*seconds));
        }
        let recorded = Recorded { last_at: Millis::ZERO, clocks: None };
        let reached = reports.reached(at(now));
        let owner = LastOwner { recorded, epochs: Vec::new(), reached };
        reached_ends(&[3, 4], Some(&owner), Millis(10_000))
    }

    #[test]
    fn an_owner_of_a_replaced_log_does_not_hide_what_the_log_had_reached() {
        let served = [(0, 5, 90), (1, 5, 100), (2, 1, 7), (3, 1, 8)];
        let known = ends(&served, 4);
        assert_eq!(known[&4], LogEnd { epoch: 5, group: 100 });
        assert_eq!(known[&3], LogEnd { epoch: 1, group: 0 });
        // A report no longer counts once all numbers that were handed out before it are free.
        assert_eq!(ends(&served, 21)[&4], LogEnd { epoch: 5, group: 100 });
        assert_eq!(ends(&served, 22)[&4], LogEnd { epoch: 0, group: 0 });
        assert_eq!(reached_ends(&[0], None, Millis(10_000)), BTreeMap::new());
    }

    #[test]
    fn a_log_is_another_one_if_its_epochs_or_its_groups_begin_again() {
        let known = LogEnd { epoch: 5, group: 100 };
        assert!(!known.is_beyond(6, 101));
        assert!(known.is_beyond(5, 101) && known.is_beyond(6, 100));
        assert!(!LogEnd::default().is_beyond(1, 1));
    }
}
