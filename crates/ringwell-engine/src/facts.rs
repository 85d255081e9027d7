//! The combined state of a process's shards, for numbers that move to another owner.
//!
//! The shards share a clock, so this process can determine which of two allocations is later and
//! which answers are still valid. The next owner could not, because its clock may differ. Source:
//! docs/spec/cluster.md, "Moving buckets".

use std::collections::BTreeMap;

use ringwell_core::{Millis, PoolId, PromoNumber, Retired, VisitorId, is_doubted};
use ringwell_journal::{AnswerEntry, RecordedAnswer, RowKey};

/// The state that is sent to the next owner if that owner is on another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// The newest allocation of each number, sorted by number.
    pub numbers: Vec<Retired>,
    /// The answers that repeated rows would get, oldest first.
    pub answers: Vec<AnswerEntry>,
    /// The pools from which allocations were omitted, each with a time. If a number's lockout ended
    /// before that time, the next owner must treat its own state of the number as uncertain. Most
    /// of these times are the ends of expired holds.
    pub doubts: Vec<(PoolId, Millis)>,
}

/// Collects the reports of all of a process's shards. [`Facts::settle`] and [`Facts::settle_apart`]
/// return the facts that are valid.
#[derive(Debug, Default)]
pub struct Facts {
    numbers: BTreeMap<PromoNumber, Retired>,
    answers: BTreeMap<RowKey, AnswerEntry>,
    /// The end of each pool's present or past hold. `None` stands for all pools.
    holds: BTreeMap<Option<PoolId>, Millis>,
}

impl Facts {
    /// Adds the state of the numbers in one shard, and the shard's answers to repeatable batches.
    ///
    /// # Panics
    /// Panics only if an invariant of the engine is broken.
    pub fn add(&mut self, numbers: Vec<Retired>, answers: Vec<AnswerEntry>) {
        for retired in numbers {
            let newest = self.numbers.entry(retired.slot.number).or_insert(retired);
            let locked_until = newest.slot.locked_until.max(retired.slot.locked_until);
            let local_at = newest.local_at.max(retired.local_at);
            // Two shards may have the same allocation. One of them may have recorded an earlier
            // lockout end and no visitor, even if its `local_at` is later. The later end of the
            // lockout therefore decides.
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
            // The row's earlier answer was forgotten, and the row got a new one.
            if entry.at > newest.at {
                *newest = entry;
            }
        }
    }

    /// Adds the times until which one shard holds pools, or has held them. `None` stands for all
    /// pools.
    pub fn add_holds(&mut self, holds: Vec<(Option<PoolId>, Millis)>) {
        for (pool, until) in holds {
            let known = self.holds.entry(pool).or_default();
            *known = until.max(*known);
        }
    }

    /// Like [`Facts::settle`], for an owner on another node. `pool_of` returns the moving pool that
    /// contains a number.
    ///
    /// This process has no information about allocations that other owners made during a hold, so
    /// the next owner may have a newer allocation of a number. Allocations whose lockout ended
    /// before the hold did are therefore omitted. Omitting them shortens no lockout, because the
    /// hold is sent to the next owner. If a row that received an omitted allocation is repeated, it
    /// gets the overflow number.
    ///
    /// A number that is in none of the moving pools is also omitted if its lockout is over at `at`.
    /// A shard may have only an old allocation of it, although another pool has handed the number
    /// out since. The next owner would then treat the old allocation as the newest. As long as the
    /// lockout runs, the number cannot have been handed out again.
    ///
    /// The next owner may have an even older allocation of an omitted number. It would report this
    /// older allocation as the newest one if the number were moved back. [`Apart::doubts`] prevents
    /// this.
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
        assert!(
            outlasted.is_sorted_by_key(|known| known.slot.number),
            "the numbers to search are not sorted"
        );
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

    /// Returns the newest allocation of each number, sorted by number. Each includes the latest
    /// known end of its lockout, and its visitor unless the visitor later got another number. Also
    /// returns the answers that repeated rows would get, oldest first. If a row's number has gone
    /// to another visitor, the row gets the overflow number.
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

/// If a visitor's lockout ended and the visitor got another number later, removes the visitor from
/// the earlier number. The next owner could not determine which number is the later one, because it
/// receives both allocations with the same time.
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
    assert!(kept == newest.len(), "a visitor has two numbers from one pool");
    numbers
}
