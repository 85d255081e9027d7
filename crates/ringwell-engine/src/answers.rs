//! What rows of repeatable batches were answered, so that a batch that is sent again gets the
//! same answer and burns no numbers.
//!
//! Bounded twice: by age and by count; the oldest go first. Owns no rule about numbers: an answer
//! is repeated also when its number has gone to somebody else since.
//! Source: docs/spec/allocation.md, "Batches sent twice".

use std::collections::{HashMap, VecDeque};

use ringwell_core::Millis;
use ringwell_journal::{Answer, RowKey};

use crate::engine::Outcome;

/// How long an answer is remembered at least, unless there are too many.
pub const ANSWER_AGE: Millis = Millis(25 * 60 * 60 * 1000);

/// What to remember of an outcome; nothing if the shard could not tell: it may, next time.
pub(crate) fn answer_of(outcome: Outcome) -> Option<Answer> {
    match outcome {
        Outcome::Allocated { number } | Outcome::Kept { number } => Some(Answer::Number(number)),
        Outcome::Exhausted { .. } => Some(Answer::Overflow),
        Outcome::Refused(_) => None,
    }
}

/// The outcome of a row that was answered before.
pub(crate) fn outcome_of(answer: Answer) -> Outcome {
    match answer {
        Answer::Number(number) => Outcome::Kept { number },
        Answer::Overflow => Outcome::Exhausted { until: Millis::ZERO },
    }
}

/// The answers, by row.
#[derive(Debug)]
pub(crate) struct Answers {
    by_row: HashMap<RowKey, (Millis, Answer)>,
    /// In the order in which they were given. A row answered anew stands here twice; its first
    /// entry is passed over because the time differs.
    oldest: VecDeque<(Millis, RowKey)>,
    /// How many entries have left `oldest`.
    dropped: u64,
    rows_max: usize,
}

impl Answers {
    pub(crate) fn new(rows_max: usize) -> Self {
        Self { by_row: HashMap::new(), oldest: VecDeque::new(), dropped: 0, rows_max }
    }

    pub(crate) fn get(&self, now: Millis, row: RowKey) -> Option<Answer> {
        let &(at, answer) = self.by_row.get(&row)?;
        (now.since(at) <= ANSWER_AGE).then_some(answer)
    }

    pub(crate) fn remember(&mut self, now: Millis, row: RowKey, answer: Answer) {
        self.by_row.insert(row, (now, answer));
        self.oldest.push_back((now, row));
        while let Some(&(at, row)) = self.oldest.front()
            && (self.oldest.len() > self.rows_max || now.since(at) > ANSWER_AGE)
        {
            self.oldest.pop_front();
            self.dropped += 1;
            if self.by_row.get(&row).is_some_and(|&(newest, _)| newest == at) {
                self.by_row.remove(&row);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_row.clear();
        self.oldest.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_row.len()
    }

    /// Up to `count` answers from the `from`th since the start on, oldest first, for a snapshot
    /// that is taken piece by piece; and where the next piece begins, if there is one.
    pub(crate) fn piece(
        &self,
        from: u64,
        count: usize,
    ) -> (impl Iterator<Item = (RowKey, Millis, Answer)>, Option<u64>) {
        let skip = usize::try_from(from.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let entries = self.oldest.iter().skip(skip).take(count).filter_map(|&(at, row)| {
            let &(newest, answer) = self.by_row.get(&row)?;
            (newest == at).then_some((row, at, answer))
        });
        let end = skip.saturating_add(count);
        let next = (end < self.oldest.len()).then_some(self.dropped + end as u64);
        (entries, next)
    }
}
