//! The facts about a number in all shards' answers, and the order of its allocations.

use ringwell_core::Millis;
use ringwell_engine::{Missing, Past, PastAllocation};

use crate::canary::{Bug, planted};

/// The facts in all shards' answers.
pub(super) struct Facts {
    /// The newest allocation by the requested time, according to each shard that knows one.
    pub(super) held: Vec<PastAllocation>,
    /// The newest allocation of all, if the owner's answer shows which one it is.
    pub(super) present: Option<PastAllocation>,
    /// The times of the allocations that a sure answer reports: see [`is_sure`].
    sure: Vec<Millis>,
    pub(super) later: Vec<Later>,
    /// The times at which shards next handed the number out.
    pub(super) nexts: Vec<Millis>,
    pub(super) gaps: Vec<Gap>,
    /// Whether an unreachable shard may have handed the number out.
    has_unknown: bool,
    /// See [`lost_elsewhere`].
    lost: Option<Millis>,
}

/// Allocations that a shard may have made but no longer has records of.
pub(super) struct Gap {
    pub(super) missing: Missing,
    /// The time of the newest allocation that the shard has recorded, according to the shard that
    /// made it. Set only if another shard made it.
    pub(super) newest: Option<Millis>,
    /// The wall-clock time of the allocation at `newest`, if its record has been found. Otherwise,
    /// a wall-clock time by which the allocation had been made, if one is known.
    pub(super) newest_wall: Option<Millis>,
    /// The value of [`Past::lost_until`].
    pub(super) lost_until: Option<Millis>,
}

/// An allocation that was made after the one that a shard reports.
pub(super) struct Later {
    /// The time of the allocation, according to the shard that made it.
    pub(super) made_at: Millis,
    /// The time at which the allocation arrived at the reporting shard, if that time is known.
    pub(super) arrived: Option<Millis>,
}

impl Facts {
    pub(super) fn new(
        mut answers: Vec<(u16, Past)>,
        owner: Option<u16>,
        has_unreachable: bool,
    ) -> Self {
        let is_owner = |shard: u16| owner == Some(shard);
        // The nodes' clocks differ, but the owner has recorded which allocation is the newest.
        let of_owner = answers.iter().find(|(shard, past)| is_owner(*shard) && !past.is_doubted);
        // An unreachable shard may have handed the number out.
        let is_ignored = planted(Bug::UnreachableIgnored) && of_owner.is_some();
        let present = of_owner.and_then(|(_, past)| newest_of_owner(past, &answers));
        let present = present.filter(|_| !planted(Bug::OwnerNotBelieved)).cloned();
        let sure = answers.iter().filter(|(shard, past)| is_sure(past, is_owner(*shard)));
        let sure = sure.filter_map(|(_, past)| Some(past.held.as_ref()?.allocated_at)).collect();
        let nexts = answers.iter().filter_map(|(_, past)| past.next);
        let nexts = nexts.filter(|_| !planted(Bug::EndsStayBehind)).collect();
        Self {
            present,
            sure,
            nexts,
            gaps: answers.iter().filter_map(|(_, past)| Gap::new(past)).collect(),
            has_unknown: has_unreachable && !is_ignored,
            lost: lost_elsewhere(&answers),
            later: answers.iter_mut().filter_map(|(_, past)| Later::take(past)).collect(),
            held: answers.into_iter().filter_map(|(_, past)| past.held).collect(),
        }
    }

    /// Whether the owner's answer shows that `held` is the newest allocation of all.
    pub(super) fn is_present(&self, held: &PastAllocation) -> bool {
        self.present.as_ref().is_some_and(|present| present.allocated_at == held.allocated_at)
    }

    /// Returns the newest of the reported allocations, one of which is `received`. That allocation
    /// may be much older than its arrival at the reporting shard, so another one may be newer.
    pub(super) fn newest_with(&self, received: PastAllocation) -> Option<PastAllocation> {
        if received.pool.is_none() || self.is_present(&received) {
            return Some(received);
        }
        let others = self.held.iter().filter(|held| held.pool.is_some());
        newest(others.chain([&received]))
    }

    /// Returns the gaps of shards that did not answer, and of those that may have handed the number
    /// out in a period until [`Self::lost`]. There are none if a sure answer reports `held`.
    pub(super) fn unsure(&self, held: Option<&PastAllocation>, at: Millis) -> Vec<Gap> {
        let is_believed = match held {
            Some(held) => self.sure.contains(&held.allocated_at),
            None => planted(Bug::AbsenceBelieved),
        };
        if is_believed {
            return Vec::new();
        }
        let was_free = |until: &Millis| held.is_none_or(|held| held.locked_until < at.min(*until));
        let lost = self.lost.filter(was_free).map(|until| Gap::unknown(Some(until)));
        let unknown = self.has_unknown.then_some(Gap::unknown(None));
        unknown.into_iter().chain(lost).collect()
    }
}

impl Gap {
    fn new(past: &Past) -> Option<Self> {
        // A shard that could not read the record of an allocation still reports the allocation's
        // time, so it leaves no gap.
        let is_unread = past.held.is_some() && past.missing == Some(Missing::TooLong);
        let missing = past.missing.filter(|_| !is_unread)?;
        let newest_wall = past.later_by;
        let newest = past.later.filter(|_| !past.is_later_sure);
        Some(Self { missing, newest, newest_wall, lost_until: past.lost_until })
    }

    /// Returns the gap of a shard that did not answer, or that lost the number's state for a period
    /// that ended at `lost_until`.
    const fn unknown(lost_until: Option<Millis>) -> Self {
        Self { missing: Missing::NotKept, newest: None, newest_wall: None, lost_until }
    }

    /// Returns `held`, or the reason why `held` may not be the newest allocation.
    pub(super) fn judge(
        gaps: &[Self],
        held: PastAllocation,
    ) -> (Option<PastAllocation>, Option<Missing>) {
        match gaps.iter().find(|gap| gap.may_follow(&held)) {
            Some(gap) => (None, Some(gap.missing)),
            None => (Some(held), None),
        }
    }

    /// Whether an allocation that is missing because of this gap may have been made after `held`.
    pub(super) fn may_follow(&self, held: &PastAllocation) -> bool {
        let is_lost = self.lost_until.is_some_and(|until| until > held.allocated_wall);
        // All other allocations in the shard's history of the number were made before `newest`.
        let is_older = self.newest_wall.is_some_and(|wall| wall < held.allocated_wall);
        let is_known = match self.newest {
            Some(newest) => newest == held.allocated_at || is_older,
            None => self.lost_until.is_some(),
        };
        is_lost || !is_known
    }
}

impl Later {
    fn take(past: &mut Past) -> Option<Self> {
        let is_known = past.held.is_some() || past.missing.is_none() || past.is_later_sure;
        let made_at = past.later.take().filter(|_| is_known)?;
        let arrived = past.held.as_mut().and_then(|held| held.next_allocated_at.take());
        Some(Self { made_at, arrived })
    }
}

/// Returns the newest allocation of a number, if the owner's answer shows which one it is. If
/// another shard made it, the record is taken from that shard's answer.
fn newest_of_owner<'a>(
    of_owner: &'a Past,
    answers: &'a [(u16, Past)],
) -> Option<&'a PastAllocation> {
    let later = of_owner.later.filter(|_| !planted(Bug::LaterIgnored));
    match (&of_owner.held, later) {
        (Some(held), None) => Some(held).filter(|held| held.next_allocated_at.is_none()),
        (None, Some(made_at)) if of_owner.next.is_none() => {
            let named = answers.iter().filter_map(|(_, past)| past.held.as_ref());
            named.filter(|held| held.pool.is_some()).find(|held| held.allocated_at == made_at)
        }
        _ => None,
    }
}

/// Returns the end of the newest period for which a shard has lost its data about the number. The
/// shard may have handed the number out in that period.
fn lost_elsewhere(answers: &[(u16, Past)]) -> Option<Millis> {
    let complete = answers.iter().filter(|(_, past)| past.missing.is_none());
    complete.filter_map(|(_, past)| past.lost_until).max()
}

/// Whether a shard's answer rules out that another shard handed the number out between the
/// allocation that the shard reports and the requested time. If it does, the reported allocation is
/// the newest in any shard, or was when this shard next handed the number out. A shard that reports
/// no allocation is never sure: the number may have come from another shard after its lockout, and
/// its former visitors are then unknown.
fn is_sure(past: &Past, is_owner: bool) -> bool {
    let is_complete = past.missing.is_none_or(|missing| missing == Missing::TooLong);
    let next = past.held.as_ref().and_then(|held| held.next_allocated_at);
    let is_newest = is_owner && !past.is_doubted;
    let was_doubted = past.was_doubted && !planted(Bug::DoubtForgotten);
    is_complete && past.later.is_none() && !was_doubted && (next.is_some() || is_newest)
}

/// Completes an allocation that a shard received without its record, using the record from the
/// shard that made it.
pub(super) fn completed(foreign: &PastAllocation, made: Option<PastAllocation>) -> PastAllocation {
    let Some(made) = made else { return foreign.clone() };
    PastAllocation {
        pool: made.pool,
        params: made.params,
        // The receiving shard has recorded only the time at which the number arrived.
        allocated_wall: made.allocated_wall.min(foreign.allocated_wall),
        ..foreign.clone()
    }
}

/// Returns the newest allocation in `all`, according to the wall clocks of the allocations' nodes.
/// The answers about one allocation are combined first: a shard that received the number has
/// recorded only the time of its arrival. Its answer alone may make the allocation seem newer than
/// it is.
pub(super) fn newest<'a>(
    all: impl IntoIterator<Item = &'a PastAllocation>,
) -> Option<PastAllocation> {
    let mut known: Vec<PastAllocation> = Vec::new();
    for held in all {
        if let Some(other) = known.iter_mut().find(|it| it.allocated_at == held.allocated_at) {
            *other = same(other, held);
        } else {
            known.push(held.clone());
        }
    }
    known.into_iter().reduce(|one, other| newer(&one, &other))
}

/// Combines two answers about the same allocation.
fn same(one: &PastAllocation, other: &PastAllocation) -> PastAllocation {
    let (less, more) = if one.pool.is_some() { (other, one) } else { (one, other) };
    PastAllocation {
        // Only the shard that took the number over has recorded the current end of the lockout.
        locked_until: less.locked_until.max(more.locked_until),
        next_allocated_at: earlier_next(less, more),
        ..more.clone()
    }
}

/// Returns the newer of two allocations.
fn newer(one: &PastAllocation, other: &PastAllocation) -> PastAllocation {
    let rank = |held: &PastAllocation| (held.allocated_wall, held.pool.is_some());
    let (older, newer) = if rank(one) < rank(other) { (one, other) } else { (other, one) };
    PastAllocation { next_allocated_at: earlier_next(older, newer), ..newer.clone() }
}

/// Returns the earlier of the two recorded times of the next allocation. A shard reports the next
/// allocation only if it made that allocation itself.
fn earlier_next(one: &PastAllocation, other: &PastAllocation) -> Option<Millis> {
    [one.next_allocated_at, other.next_allocated_at].into_iter().flatten().min()
}
