//! Finds a number's holder from all shards' answers.
//!
//! A number may have moved between shards, and its history stays where it was written. So every
//! shard is asked; [`crate::lookup`] implements a shard's part of the look-up. The result is the
//! newest allocation that began at or before the requested time, according to the wall clock.

mod facts;

use ringwell_core::{Millis, PromoNumber};
use ringwell_directory::Entry;
use ringwell_engine::{Missing, Moment, Past, PastAllocation};
use tokio::sync::oneshot;

use self::facts::{Facts, Gap, Later, completed, newest};
use crate::canary::{Bug, planted};
use crate::message::Message;
use crate::node::{JournalState, Node};
use crate::queue::Peers;

/// The reason why one of this process's shards did not answer.
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
    /// One of this process's shards did not answer.
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

/// The shards' combined answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The holder. If there is one, [`Missing::TooLong`] means that the record of its allocation
    /// could not be read in time.
    pub past: Past,
    /// Other nodes' shards that could not be reached. They may have other allocations of the
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
    // If another process has taken a shard over, this process's state of that shard is outdated.
    if let Some((shard, _)) = node.journals().find(|(_, state)| *state == JournalState::Taken) {
        let reason = format!("another process serves shard {shard}: query that process");
        return Err(HolderError::Unanswered(reason));
    }
    // The newer file may contain nodes that this node cannot ask.
    if let Some((own, newest)) = node.outdated().filter(|_| !planted(Bug::OlderFileNames)) {
        let reason = format!(
            "this node's cluster file has version {own}, but another node uses version \
             {newest}: query that node, or restart this node with the newer file"
        );
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

/// The record of an allocation, from the shard that made it.
#[derive(Default)]
struct Made {
    found: Option<PastAllocation>,
    /// Whether a shard could not read its records in time.
    took_long: bool,
    /// Other nodes' shards that could not be reached.
    unreachable: Vec<u16>,
}

impl LookUp<'_> {
    async fn holder(&self, at: Millis) -> Result<Joined, HolderError> {
        let (answers, unreachable) = self.ask_all(Moment::Wall(at)).await?;
        // Other nodes may have recorded an overflow period that is missing from this node's
        // records.
        let overflow_until = answers.iter().filter_map(|(_, past)| past.overflow_until).max();
        let joined = self.join(at, answers, unreachable).await?;
        let past = not_before_overflow(joined.past, at, overflow_until);
        let lacks_record = past.held.as_ref().is_some_and(|held| held.pool.is_none());
        // The record is lost if every shard that might have it has answered in time and none has
        // it.
        let is_lost = lacks_record && past.missing.is_none() && joined.unreachable.is_empty();
        let past = if is_lost && !planted(Bug::LostRecordsNamed) { not_kept() } else { past };
        Ok(Joined { past, ..joined })
    }

    /// Combines the shards' answers.
    async fn join(
        &self,
        at: Millis,
        answers: Vec<(u16, Past)>,
        mut unreachable: Vec<u16>,
    ) -> Result<Joined, HolderError> {
        let facts = Facts::new(answers, self.owner, !unreachable.is_empty());
        let mut took_long = false;
        let mut held = facts.present.clone().or_else(|| newest(&facts.held));
        if let Some(received) = held.take_if(|held| held.pool.is_none()) {
            let made = self.made(&facts.held, received.allocated_at).await?;
            took_long = made.took_long;
            unreachable.extend(made.unreachable);
            unreachable.sort_unstable();
            unreachable.dedup();
            if made.found.as_ref().is_some_and(|made| made.allocated_wall > at) {
                // According to the clocks, the allocation arrived at the reporting shard before it
                // was made, so a clock was wrong.
                return Ok(Joined { past: not_kept(), unreachable });
            }
            held = facts.newest_with(completed(&received, made.found));
        }
        let past = self.judge(facts, (held, took_long), at).await?;
        Ok(Joined { past, unreachable })
    }

    /// Returns the record of the allocation that was made at `made_at`. `held` contains the
    /// allocations that the shards have reported.
    async fn made(&self, held: &[PastAllocation], made_at: Millis) -> Result<Made, HolderError> {
        let is_it = |held: &&PastAllocation| held.pool.is_some() && held.allocated_at == made_at;
        // The shard that made the allocation has usually answered with the record already. If it
        // were asked again, its wall clock might have been set in the meantime.
        let found = held.iter().find(is_it).filter(|_| !planted(Bug::RecordsStayBehind));
        match found.filter(|_| !planted(Bug::RecordAskedAgain)) {
            Some(found) => Ok(Made { found: Some(found.clone()), ..Made::default() }),
            None => self.record(made_at).await,
        }
    }

    /// Returns `held`, the newest allocation that the shards have reported, unless another one may
    /// be newer. `took_long` is set if its record could not be read in time.
    async fn judge(
        &self,
        facts: Facts,
        (held, took_long): (Option<PastAllocation>, bool),
        at: Millis,
    ) -> Result<Past, HolderError> {
        let is_unread = |held: &PastAllocation| held.pool.is_none() && took_long;
        let unread =
            |held: Option<&PastAllocation>| held.is_some_and(is_unread).then_some(Missing::TooLong);
        if held.as_ref().is_some_and(|held| facts.is_present(held)) {
            return Ok(Past { missing: unread(held.as_ref()), held, ..Past::default() });
        }
        let unsure = facts.unsure(held.as_ref(), at);
        let Facts { held: reported, mut gaps, later, nexts, .. } = facts;
        gaps.extend(unsure);
        let (held, missing) = match held {
            // A running lockout does not prove that `held` is the newest allocation: another shard
            // may have ended the lockout, or the reporting shard may have lengthened it.
            Some(held) => {
                self.date(&mut gaps, &reported, held.allocated_at).await?;
                Gap::judge(&gaps, held)
            }
            None => (None, gaps.first().map(|gap| gap.missing)),
        };
        let missing = missing.or(unread(held.as_ref()));
        let past = Past { held, missing, ..Past::default() };
        let mut past = self.before(past, later, (at, &gaps)).await?;
        if let Some(held) = &mut past.held {
            held.next_allocated_at = nexts.into_iter().chain(held.next_allocated_at).min();
        } else {
            past.next = nexts.into_iter().min();
            past.lost_until = gaps.iter().filter_map(|gap| gap.lost_until).max();
        }
        Ok(past)
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
            let found = self.made(answers, newest).await?.found;
            gap.newest_wall = found.map(|found| found.allocated_wall).or(gap.newest_wall);
        }
        Ok(())
    }

    /// Corrects `past` with the exact times of the `later` allocations. Only the shards that made
    /// these allocations have recorded the times. If such an allocation's record cannot be found,
    /// no holder is named, because that allocation's visitor may have had the number at `at`.
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

    /// Returns the record of the allocation that was made at `made_at` by its node's clock.
    async fn record(&self, made_at: Millis) -> Result<Made, HolderError> {
        let (there, unreachable) = self.ask_all(Moment::Shard(made_at)).await?;
        let took_long = there.iter().any(|(_, past)| past.missing == Some(Missing::TooLong));
        let is_it = |held: &PastAllocation| held.pool.is_some() && held.allocated_at == made_at;
        let found = there.into_iter().filter_map(|(_, past)| past.held).find(is_it);
        let found = found.filter(|_| !planted(Bug::RecordsStayBehind));
        Ok(Made { found, took_long, unreachable })
    }

    /// Returns each shard's answer, and the other nodes' shards that could not be reached.
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

/// Returns an answer without a holder: a visitor may have had the number but cannot be named.
fn not_kept() -> Past {
    Past { missing: Some(Missing::NotKept), ..Past::default() }
}

/// Removes the holder if the lockout was over at `at` and the number was an overflow number at any
/// time between the allocation and `at`. Many visitors see an overflow number, so the holder need
/// not be the caller. An answer without a holder is also replaced, because visitors saw the number
/// while it was an overflow number.
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

#[cfg(test)]
mod tests;
