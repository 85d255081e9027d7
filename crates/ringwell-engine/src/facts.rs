//! The combined state of a process's shards for numbers that move to another owner.
//!
//! The shards share a clock, so this process can decide which of two allocations is later, and
//! which answers still hold. The next owner, whose clock may differ, could not. Source:
//! docs/spec/cluster.md, "Moving buckets".

use std::collections::BTreeMap;

use ringwell_core::{Millis, PoolId, PromoNumber, Retired, VisitorId, is_doubted};
use ringwell_journal::{AnswerEntry, RecordedAnswer, RowKey};

/// The state that goes to an owner on another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// The newest allocation of each number, in rising order.
    pub numbers: Vec<Retired>,
    /// The answers that rows would get, oldest first.
    pub answers: Vec<AnswerEntry>,
    /// Pools with omitted allocations, and the time until which the next owner must doubt its own
    /// state of their numbers. Most of these are expired holds.
    pub doubts: Vec<(PoolId, Millis)>,
}

/// Collects the reports of the shards; [`Facts::settle`] and [`Facts::settle_apart`] return the
/// valid ones.
#[derive(Debug, Default)]
pub struct Facts {
    numbers: BTreeMap<PromoNumber, Retired>,
    answers: BTreeMap<RowKey, AnswerEntry>,
    /// The end of each pool's hold, present or past; `None` stands for all pools.
    holds: BTreeMap<Option<PoolId>, Millis>,
}

impl Facts {
    /// Adds one shard's state of numbers, and its answers to repeatable batches.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    pub fn add(&mut self, numbers: Vec<Retired>, answers: Vec<AnswerEntry>) {
        for retired in numbers {
            let newest = self.numbers.entry(retired.slot.number).or_insert(retired);
            let locked_until = newest.slot.locked_until.max(retired.slot.locked_until);
            let local_at = newest.local_at.max(retired.local_at);
            // A shard that had an allocation earlier may have an earlier end of its lockout, and
            // lack the visitor, although it received the report later than the shard that handed
            // the number out.
            let is_newer = if retired.slot.allocated_at == newest.slot.allocated_at {
                retired.slot.locked_until > newest.slot.locked_until
            } else {
                retired.local_at > newest.local_at
            };
            if is_newer {
                *newest = retired;
            }
            newest.slot.locked_until = locked_until;
            newest.local_at = local_at;
            assert!(locked_until >= retired.slot.locked_until, "a lockout was shortened");
        }
        for entry in answers {
            let newest = self.answers.entry(entry.row).or_insert(entry);
            // The row's answer was forgotten, and the row got a new one.
            if entry.at > newest.at {
                *newest = entry;
            }
        }
    }

    /// Adds the time until which one shard holds pools, or has held them; `None` is for all.
    pub fn add_holds(&mut self, holds: Vec<(Option<PoolId>, Millis)>) {
        for (pool, until) in holds {
            let known = self.holds.entry(pool).or_default();
            *known = until.max(*known);
        }
    }

    /// Like [`Facts::settle`], for an owner on another node. `pool_of` returns the moving pool that
    /// a number is in.
    ///
    /// Allocations made elsewhere during a hold are unknown here, so the next owner may have a
    /// newer allocation. Allocations whose lockout ended before the hold does are therefore
    /// omitted. Their lockouts are over or end with the hold, which is sent to the next owner; rows
    /// that got their numbers get the overflow number.
    ///
    /// A number of another pool is omitted as well if its lockout is over at `at`: a shard may have
    /// only an old allocation, although another pool has handed the number out since, and the next
    /// owner would treat the old one as the newest. While the lockout runs, the number cannot have
    /// been handed out.
    ///
    /// The next owner may have an even older allocation of an omitted number, and would report it
    /// as the newest once the number has returned. [`Apart::doubts`] prevents that.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    #[must_use]
    pub fn settle_apart(
        mut self,
        at: Millis,
        pool_of: impl Fn(PromoNumber) -> Option<PoolId>,
        is_listed: impl Fn(PoolId) -> bool,
    ) -> Apart {
        let holds = std::mem::take(&mut self.holds);
        let held_until = |pool: PoolId| {
            let of = |pool| holds.get(&pool).copied().unwrap_or_default();
            of(Some(pool)).max(of(None))
        };
        let is_outlasted = |known: &Retired| {
            let until = known.slot.locked_until;
            match pool_of(known.slot.number) {
                Some(pool) => is_doubted(until, held_until(pool)),
                None => until <= at,
            }
        };
        let (mut numbers, mut answers) = self.settle();
        let outlasted: Vec<Retired> = numbers.extract_if(.., |known| is_outlasted(known)).collect();
        assert!(outlasted.is_sorted_by_key(|known| known.slot.number), "they cannot be searched");
        let mut doubts = BTreeMap::new();
        for known in &outlasted {
            let pool = pool_of(known.slot.number).unwrap_or(known.pool);
            let since = if is_listed(pool) { known.slot.locked_until } else { at };
            let until = doubts.entry(pool).or_insert(since);
            *until = since.max(held_until(pool)).max(*until);
        }
        for entry in &mut answers {
            if let RecordedAnswer::Number(number) = entry.answer
                && outlasted.binary_search_by_key(&number, |known| known.slot.number).is_ok()
            {
                entry.answer = RecordedAnswer::Overflow;
            }
        }
        Apart { numbers, answers, doubts: doubts.into_iter().collect() }
    }

    /// The newest allocation of each number, in rising order, with the latest end of its lockout,
    /// and its visitor if that is the visitor's newest number. Also returns the answers that rows
    /// would get, oldest first: a row whose number has gone to another visitor gets the overflow
    /// number.
    #[must_use]
    pub fn settle(self) -> (Vec<Retired>, Vec<AnswerEntry>) {
        let Self { numbers, answers, .. } = self;
        let mut answers: Vec<AnswerEntry> = answers.into_values().collect();
        answers.sort_by_key(|entry| (entry.at, entry.row));
        for entry in &mut answers {
            if let RecordedAnswer::Number(number) = entry.answer
                && numbers.get(&number).is_some_and(|newest| newest.local_at > entry.at)
            {
                entry.answer = RecordedAnswer::Overflow;
            }
        }
        (with_visitors_at_their_newest(numbers.into_values().collect()), answers)
    }
}

/// If a visitor's lockout ended and the visitor got another number later, only the later one is
/// theirs. For the next owner, all of these allocations have the same time.
fn with_visitors_at_their_newest(mut numbers: Vec<Retired>) -> Vec<Retired> {
    let of = |retired: &Retired| retired.visitor.map(|visitor| (retired.pool, visitor));
    let rank =
        |retired: &Retired| (retired.local_at, retired.slot.locked_until, retired.slot.number);
    let mut newest: BTreeMap<(PoolId, VisitorId), _> = BTreeMap::new();
    for retired in &numbers {
        if let Some(visitor) = of(retired) {
            let newest = newest.entry(visitor).or_insert(rank(retired));
            *newest = rank(retired).max(*newest);
        }
    }
    for retired in &mut numbers {
        let is_newest = |visitor| newest.get(&visitor) == Some(&rank(retired));
        if !of(retired).is_some_and(is_newest) {
            retired.visitor = None;
        }
    }
    let kept = numbers.iter().filter(|retired| retired.visitor.is_some()).count();
    assert!(kept == newest.len(), "a visitor has two numbers of a pool");
    numbers
}
