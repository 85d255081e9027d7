//! What the shards of one process know together of numbers that go to another owner.
//!
//! Their clocks are one, so that it can be told here which of two allocations is the later one, and
//! which answers still hold: the next owner, whose clock may be another, could not.
//! Source: docs/spec/cluster.md, "Moving buckets".

use std::collections::BTreeMap;

use ringwell_core::{PoolId, PromoNumber, Retired, VisitorId};
use ringwell_journal::{Answer, AnswerEntry, RowKey};

/// Gathers what each shard tells; [`Facts::settle`] says what holds.
#[derive(Debug, Default)]
pub struct Facts {
    numbers: BTreeMap<PromoNumber, Retired>,
    answers: BTreeMap<RowKey, AnswerEntry>,
}

impl Facts {
    /// Adds what one shard knows of numbers, and what it answered to batches that may be sent again.
    pub fn add(&mut self, numbers: Vec<Retired>, answers: Vec<AnswerEntry>) {
        for retired in numbers {
            let newest = self.numbers.entry(retired.slot.number).or_insert(retired);
            let locked_until = newest.slot.locked_until.max(retired.slot.locked_until);
            // A shard that had it before may know the same allocation without its visitor.
            let rank = |retired: &Retired| (retired.local_at, retired.slot.locked_until);
            if rank(&retired) > rank(newest) {
                *newest = retired;
            }
            newest.slot.locked_until = locked_until;
        }
        for entry in answers {
            let newest = self.answers.entry(entry.row).or_insert(entry);
            // A row that had been forgotten was answered anew.
            if entry.at > newest.at {
                *newest = entry;
            }
        }
    }

    /// The newest allocation of each number, in rising order, with the latest end of its lockout, and
    /// its visitor if that is the visitor's newest number. And what rows would be answered, oldest
    /// first: one whose number has gone to somebody else since gets the overflow number.
    #[must_use]
    pub fn settle(self) -> (Vec<Retired>, Vec<AnswerEntry>) {
        let Self { numbers, answers } = self;
        let mut answers: Vec<AnswerEntry> = answers.into_values().collect();
        answers.sort_by_key(|entry| (entry.at, entry.row));
        for entry in &mut answers {
            if let Answer::Number(number) = entry.answer
                && numbers.get(&number).is_some_and(|newest| newest.local_at > entry.at)
            {
                entry.answer = Answer::Overflow;
            }
        }
        (with_visitors_at_their_newest(numbers.into_values().collect()), answers)
    }
}

/// A visitor whose lockout ran out got another number later: only that one is theirs. To the next
/// owner all of these allocations are of the same moment.
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
    numbers
}
