//! Finds the holder of a number from the answers of all shards.
//!
//! A number may have moved between shards, and its history stays where it was written. So every
//! shard is asked; [`crate::lookup`] implements a shard's part of the look-up. The result is the
//! newest allocation that began at or before the requested time, according to the wall clock.

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::Entry;
use ringwell_engine::{Missing, Moment, Past, PastAllocation};
use tokio::sync::oneshot;

use crate::canary::{Bug, planted};
use crate::message::Message;
use crate::node::{JournalState, Node};
use crate::queue::Peers;

/// The reason why a shard of this process did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The shard's queue is full.
    #[error("a shard is busy; try again")]
    Busy,
    /// The shard's thread has ended.
    #[error("a shard has stopped")]
    Stopped,
}

/// The reason why a holder cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// A shard of this process did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// A shard did not answer. Its answer is required, because the shard belongs to this process or
    /// owns the number. Contains the reason.
    #[error("{0}")]
    Unanswered(String),
}

/// Asks all shards in `peers` for the holder of `number` at `at`, and returns their answers. If
/// `keep_alives` is set, the answers include the keep-alives of the holder's allocation, but nodes
/// whose release cannot report keep-alives do not answer. A shard that did not answer is listed
/// with the reason.
///
/// # Errors
/// [`AskError`].
pub async fn ask(
    peers: &Peers,
    (number, at): (PromoNumber, Moment),
    keep_alives: bool,
) -> Result<Vec<(u16, Result<Past, String>)>, AskError> {
    let mut asked = Vec::new();
    for shard in peers.shards() {
        let (reply, answer) = oneshot::channel();
        let message = Message::Attribution { number, at, keep_alives, reply };
        if !peers.send(shard, message) {
            return Err(AskError::Busy);
        }
        asked.push((shard, answer));
    }
    let mut answers = Vec::with_capacity(asked.len());
    for (shard, answer) in asked {
        answers.push((shard, answer.await.map_err(|_| AskError::Stopped)?));
    }
    Ok(answers)
}

/// The combined answer of the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The holder. If there is one, [`Missing::TooLong`] means that the record of its allocation
    /// could not be read in time.
    pub past: Past,
    /// Shards of other nodes that could not be reached. They may have other allocations of the
    /// number.
    pub unreachable: Vec<u16>,
}

impl Joined {
    /// If a record is missing, returns a shard that could not be reached and may have that record.
    /// Asking this shard again may help.
    #[must_use]
    pub fn lacks(&self) -> Option<u16> {
        let Past { held, missing, .. } = &self.past;
        let lacks_record = held.as_ref().map_or(missing.is_some(), |held| held.pool.is_none());
        self.unreachable.first().copied().filter(|_| lacks_record)
    }
}

/// Returns the holder of `number` at `at`, according to the wall clock.
///
/// # Errors
/// Returns [`HolderError`], for example if the number's owner does not answer.
pub async fn holder(
    node: &Node,
    peers: &Peers,
    number: PromoNumber,
    at: Millis,
) -> Result<Joined, HolderError> {
    // If another process has taken a shard over, this process's state of the shard has been out of
    // date since then.
    if let Some((shard, _)) = node.journals().find(|(_, state)| *state == JournalState::Taken) {
        let reason = format!("another process serves shard {shard}: query that process");
        return Err(HolderError::Unanswered(reason));
    }
    let directory = node.directory();
    let pool = directory.pool_by_number(number).and_then(|pool| directory.lookup(pool));
    let owner = pool.map(Entry::shard);
    LookUp { node, peers, number, owner }.holder(at).await
}

/// One look-up.
struct LookUp<'a> {
    node: &'a Node,
    peers: &'a Peers,
    number: PromoNumber,
    /// The shard whose pool currently contains the number.
    owner: Option<u16>,
}

/// An allocation that was made after the one that a shard reports.
struct Later {
    /// The time of the allocation, according to the shard that made it.
    made_at: Millis,
    /// The time at which the allocation arrived at the reporting shard, if that time is known.
    arrived: Option<Millis>,
}

/// Allocations that a shard may have made but of which it no longer has records.
struct Gap {
    missing: Missing,
    /// The time of the newest allocation that the shard has recorded, according to the shard that
    /// made it. Set only if another shard made it.
    newest: Option<Millis>,
    /// The wall-clock time of the allocation at `newest`, if its record has been found. Otherwise,
    /// a wall-clock time by which the allocation had been made, if one is known.
    newest_wall: Option<Millis>,
    /// The value of [`Past::lost_until`].
    lost_until: Option<Millis>,
}

/// The record of an allocation, from the shard that made it.
#[derive(Default)]
struct Made {
    found: Option<PastAllocation>,
    /// Whether a shard could not read its records in time.
    took_long: bool,
    /// Shards of other nodes that could not be reached.
    unreachable: Vec<u16>,
}

impl LookUp<'_> {
    async fn holder(&self, at: Millis) -> Result<Joined, HolderError> {
        let (answers, unreachable) = self.ask_all(Moment::Wall(at)).await?;
        // Other nodes may have recorded an overflow period that is missing from this node's
        // records.
        let overflow_until = answers.iter().filter_map(|(_, past)| past.overflow_until).max();
        let joined = self.join_all(at, answers, unreachable).await?;
        let past = not_before_overflow(joined.past, at, overflow_until);
        let lacks_record = past.held.as_ref().is_some_and(|held| held.pool.is_none());
        // The record is lost if every shard that might have it has answered in time and none has
        // it.
        let is_lost = lacks_record && past.missing.is_none() && joined.unreachable.is_empty();
        let past = if is_lost && !planted(Bug::LostRecordsNamed) { not_kept() } else { past };
        Ok(Joined { past, ..joined })
    }

    async fn join_all(
        &self,
        at: Millis,
        mut answers: Vec<(u16, Past)>,
        mut unreachable: Vec<u16>,
    ) -> Result<Joined, HolderError> {
        // A shard that could not read the record of an allocation still reports the allocation's
        // time, so it leaves no gap.
        let is_unread = |past: &Past| past.held.is_some() && past.missing == Some(Missing::TooLong);
        let mut gaps: Vec<_> =
            { answers.iter() }.filter(|(_, past)| !is_unread(past)).filter_map(Gap::new).collect();
        // The clocks of the nodes differ, but the owner has recorded which allocation is the
        // newest.
        let of_owner = answers.iter().find(|(shard, _)| self.owner == Some(*shard));
        let of_owner = of_owner.filter(|(_, past)| !past.is_doubted);
        // An unreachable shard may have handed the number out.
        let is_ignored = planted(Bug::UnreachableIgnored) && of_owner.is_some();
        let has_unknown = !unreachable.is_empty() && !is_ignored;
        let present = of_owner.and_then(|(_, past)| newest_of_owner(past, &answers));
        let present = present.filter(|_| !planted(Bug::OwnerNotBelieved)).cloned();
        let is_present = |held: &PastAllocation| {
            present.as_ref().is_some_and(|present| present.allocated_at == held.allocated_at)
        };
        let mut took_long = answers.iter().any(|(_, past)| past.missing == Some(Missing::TooLong));
        let nexts = answers.iter().filter_map(|(_, past)| past.next);
        let nexts: Vec<_> = nexts.filter(|_| !planted(Bug::EndsStayBehind)).collect();
        let sure = self.sure(&answers);
        let lost = lost_elsewhere(&answers);
        let later: Vec<_> = answers.iter_mut().filter_map(|(_, past)| Later::take(past)).collect();
        let answers: Vec<PastAllocation> =
            answers.into_iter().filter_map(|(_, past)| past.held).collect();
        let mut held = present.clone().or_else(|| newest(&answers));
        if let Some(received) = held.as_ref().filter(|held| held.pool.is_none()) {
            let is_it = |held: &&PastAllocation| {
                held.pool.is_some() && held.allocated_at == received.allocated_at
            };
            // The shard that made the allocation has usually answered with the record already. If
            // it were asked again, its wall clock might have been set meanwhile.
            let found = answers.iter().find(is_it).filter(|_| !planted(Bug::RecordsStayBehind));
            let made = match found.filter(|_| !planted(Bug::RecordAskedAgain)) {
                Some(found) => Made { found: Some(found.clone()), ..Made::default() },
                None => self.record(received.allocated_at).await?,
            };
            took_long = made.took_long;
            unreachable.extend(made.unreachable);
            unreachable.sort_unstable();
            unreachable.dedup();
            if made.found.as_ref().is_some_and(|made| made.allocated_wall > at) {
                // According to the clocks, the allocation arrived at the reporting shard before it
                // was made, so a clock was wrong.
                return Ok(Joined { past: not_kept(), unreachable });
            }
            let received = completed(received, made.found);
            let others = answers.iter().filter(|held| held.pool.is_some());
            // The allocation may be much older than its arrival at the reporting shard, so another
            // allocation may be newer.
            held = match received.pool {
                Some(_) if !is_present(&received) => newest(others.chain([&received])),
                _ => Some(received),
            };
        }
        let is_certain = held.as_ref().is_some_and(is_present);
        gaps.extend(unsure(held.as_ref(), &sure, (has_unknown, lost), at));
        let (held, missing) = match held {
            Some(held) if is_certain => (Some(held), None),
            // A running lockout does not prove that `held` is the newest allocation: another shard
            // may have ended the lockout, or the reporting shard may have lengthened it.
            Some(held) => {
                self.date(&mut gaps, &answers, held.allocated_at).await?;
                Gap::judge(&gaps, held)
            }
            None => (None, gaps.first().map(|gap| gap.missing)),
        };
        let is_unread = held.as_ref().is_some_and(|held| held.pool.is_none() && took_long);
        let missing = missing.or(is_unread.then_some(Missing::TooLong));
        let past = Past { held, missing, ..Past::default() };
        if is_certain {
            return Ok(Joined { past, unreachable });
        }
        let mut past = self.before(past, later, (at, &gaps)).await?;
        if let Some(held) = &mut past.held {
            held.next_allocated_at = nexts.into_iter().chain(held.next_allocated_at).min();
        }
        Ok(Joined { past, unreachable })
    }

    /// Returns the time of the newest allocation by the requested time according to each answer
    /// that [`is_sure`].
    fn sure(&self, answers: &[(u16, Past)]) -> Vec<Millis> {
        let is_owner = |shard: u16| self.owner == Some(shard);
        let sure = answers.iter().filter(|(shard, past)| is_sure(past, is_owner(*shard)));
        sure.filter_map(|(_, past)| Some(past.held.as_ref()?.allocated_at)).collect()
    }

    /// Determines the wall-clock times of the newest allocations in `gaps`, except for the
    /// allocation that was made at `named_at`.
    async fn date(
        &self,
        gaps: &mut [Gap],
        answers: &[PastAllocation],
        named_at: Millis,
    ) -> Result<(), HolderError> {
        for gap in gaps {
            let Some(newest) = gap.newest.filter(|at| *at != named_at) else { continue };
            let mut known = answers.iter().filter(|held| held.pool.is_some());
            let found = match known.find(|held| held.allocated_at == newest) {
                Some(found) => Some(found.allocated_wall),
                None => self.record(newest).await?.found.map(|found| found.allocated_wall),
            };
            gap.newest_wall = found.or(gap.newest_wall);
        }
        Ok(())
    }

    /// Corrects `past` with the exact times of the `later` allocations. Only the shards that made
    /// these allocations have recorded the times. If the record of such an allocation cannot be
    /// found, no holder is named, because that allocation's visitor may have had the number at
    /// `at`.
    async fn before(
        &self,
        mut past: Past,
        later: Vec<Later>,
        (at, gaps): (Millis, &[Gap]),
    ) -> Result<Past, HolderError> {
        for Later { made_at, arrived } in later {
            let is_before = |held: &PastAllocation| {
                held.allocated_at != made_at && arrived.is_none_or(|it| it > held.allocated_wall)
            };
            if !past.held.as_ref().is_none_or(is_before) {
                continue;
            }
            let Some(made) = self.record(made_at).await?.found else {
                return Ok(not_kept());
            };
            // The node with the record did not answer at first, but answers now.
            if made.allocated_wall <= at {
                let newer = newest(past.held.iter().chain([&made])).unwrap_or(made);
                let (held, missing) = Gap::judge(gaps, newer);
                past = Past { held, missing, ..Past::default() };
            } else if let Some(held) = &mut past.held {
                let next = held.next_allocated_at.into_iter().chain([made.allocated_wall]);
                held.next_allocated_at = next.min();
            }
        }
        Ok(past)
    }

    /// Returns the record of the allocation that was made at `made_at` according to the clock of
    /// the node that made it.
    async fn record(&self, made_at: Millis) -> Result<Made, HolderError> {
        let (there, unreachable) = self.ask_all(Moment::Shard(made_at)).await?;
        let took_long = there.iter().any(|(_, past)| past.missing == Some(Missing::TooLong));
        let is_it = |held: &PastAllocation| held.pool.is_some() && held.allocated_at == made_at;
        let found = there.into_iter().filter_map(|(_, past)| past.held).find(is_it);
        let found = found.filter(|_| !planted(Bug::RecordsStayBehind));
        Ok(Made { found, took_long, unreachable })
    }

    /// Returns the answer of each shard, and the shards of other nodes that could not be reached.
    async fn ask_all(&self, at: Moment) -> Result<(Vec<(u16, Past)>, Vec<u16>), HolderError> {
        let (mut answers, mut unreachable) = (Vec::new(), Vec::new());
        for (shard, answer) in ask(self.peers, (self.number, at), false).await? {
            match answer {
                Ok(past) => answers.push((shard, past)),
                Err(reason) if self.node.is_own(shard) || self.owner == Some(shard) => {
                    return Err(HolderError::Unanswered(reason));
                }
                Err(_) => unreachable.push(shard),
            }
        }
        Ok((answers, unreachable))
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

/// Returns the end of the newest period in which a shard may have handed the number out although it
/// does not know the number now, because it has lost data.
fn lost_elsewhere(answers: &[(u16, Past)]) -> Option<Millis> {
    let complete = answers.iter().filter(|(_, past)| past.missing.is_none());
    complete.filter_map(|(_, past)| past.lost_until).max()
}

/// Returns the gaps of shards that did not answer (`has_unknown`) and of those that have lost their
/// state of the number in a period until `lost`. There are none if `held` is one of the allocations
/// in `sure`.
fn unsure(
    held: Option<&PastAllocation>,
    sure: &[Millis],
    (has_unknown, lost): (bool, Option<Millis>),
    at: Millis,
) -> impl Iterator<Item = Gap> {
    let is_believed = match held {
        Some(held) => sure.contains(&held.allocated_at),
        None => planted(Bug::AbsenceBelieved),
    };
    let was_free = |until: &Millis| held.is_none_or(|held| held.locked_until < at.min(*until));
    let lost = lost.filter(was_free).map(|until| Gap::unknown(Some(until)));
    let unknown = has_unknown.then_some(Gap::unknown(None));
    unknown.into_iter().chain(lost).filter(move |_| !is_believed)
}

/// Whether a shard's answer rules out that another shard handed the number out between the
/// allocation that the shard reports and the requested time. The reported allocation was the newest
/// of all shards when this shard handed the number out next, or still is. A shard that reports no
/// allocation is never sure: the number may have come from another shard after its lockout, and then
/// nothing is known of its former visitors.
fn is_sure(past: &Past, is_owner: bool) -> bool {
    let is_complete = past.missing.is_none_or(|missing| missing == Missing::TooLong);
    let next = past.held.as_ref().and_then(|held| held.next_allocated_at);
    let is_newest = is_owner && !past.is_doubted;
    let was_doubted = past.was_doubted && !planted(Bug::DoubtForgotten);
    is_complete && past.later.is_none() && !was_doubted && (next.is_some() || is_newest)
}

impl Gap {
    fn new((_, past): &(u16, Past)) -> Option<Self> {
        let missing = past.missing?;
        let newest_wall = past.later_by;
        let newest = past.later.filter(|_| !past.is_later_sure);
        Some(Self { missing, newest, newest_wall, lost_until: past.lost_until })
    }

    /// Returns the gap of a shard that did not answer, or that lost its state of the number in a
    /// period that ended at `lost_until`.
    const fn unknown(lost_until: Option<Millis>) -> Self {
        Self { missing: Missing::NotKept, newest: None, newest_wall: None, lost_until }
    }

    /// Returns `held`, or the reason why `held` may not be the newest allocation.
    fn judge(gaps: &[Self], held: PastAllocation) -> (Option<PastAllocation>, Option<Missing>) {
        match gaps.iter().find(|gap| gap.may_follow(&held)) {
            Some(gap) => (None, Some(gap.missing)),
            None => (Some(held), None),
        }
    }

    /// Whether an allocation that is missing because of this gap may have been made after `held`.
    fn may_follow(&self, held: &PastAllocation) -> bool {
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

/// Returns an answer without a holder: a visitor may have had the number but cannot be named.
fn not_kept() -> Past {
    Past { missing: Some(Missing::NotKept), ..Past::default() }
}

/// Removes the holder if the lockout was over at `at` and the number was an overflow number at any
/// time between the allocation and `at`. Many visitors see an overflow number, so the holder need
/// not be the caller. If there is no holder, the answer likewise does not state that no visitor saw
/// the number.
fn not_before_overflow(past: Past, at: Millis, overflow_until: Option<Millis>) -> Past {
    let is_before = |held: &PastAllocation| {
        let is_later = overflow_until.is_some_and(|until| held.allocated_wall < until);
        is_later && held.locked_until <= at
    };
    // An overflow period that still lasts is visible in the list of pools.
    let was_shared = overflow_until.is_some_and(|until| until < Millis(u64::MAX));
    let had_none = past.held.is_none() && past.missing.is_none() && was_shared;
    if had_none || past.held.as_ref().is_some_and(is_before) {
        return not_kept();
    }
    past
}

/// Completes an allocation that a shard received without its record, using the record from the
/// shard that made it.
fn completed(foreign: &PastAllocation, made: Option<PastAllocation>) -> PastAllocation {
    let Some(made) = made else { return foreign.clone() };
    PastAllocation {
        pool: made.pool,
        params: made.params,
        // The receiving shard has recorded only the time at which the number arrived.
        allocated_wall: made.allocated_wall.min(foreign.allocated_wall),
        ..foreign.clone()
    }
}

/// Returns the newest of the allocations in `all`, according to the wall clocks of their nodes. The
/// answers about one allocation are combined first: a shard that received the number dates only the
/// arrival, so its answer alone may make the allocation seem newer than it is.
fn newest<'a>(all: impl IntoIterator<Item = &'a PastAllocation>) -> Option<PastAllocation> {
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

/// Returns the earlier of the times of the next allocation. A shard reports the next allocation
/// only if it made that allocation itself.
fn earlier_next(one: &PastAllocation, other: &PastAllocation) -> Option<Millis> {
    [one.next_allocated_at, other.next_allocated_at].into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
