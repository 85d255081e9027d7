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

    /// The newest allocation of each number, with the latest end of its lockout, and its visitor if
    /// that is the visitor's newest number; and what rows would be answered, oldest first: one whose number has gone to somebody else since gets the overflow
    /// number.
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
    let mut newest: BTreeMap<(PoolId, VisitorId), usize> = BTreeMap::new();
    for index in 0..numbers.len() {
        let Some(visitor) = numbers[index].visitor else { continue };
        let place = newest.entry((numbers[index].pool, visitor)).or_insert(index);
        let rank = |index: usize| (numbers[index].local_at, numbers[index].slot.locked_until);
        let older =
            if rank(index) > rank(*place) { std::mem::replace(place, index) } else { index };
        if older != *place {
            numbers[older].visitor = None;
        }
    }
    numbers
}
