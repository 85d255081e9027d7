//! What rows of repeatable batches were answered, so that a batch that is sent again gets the
//! same answer and burns no numbers.
//!
//! Bounded twice: by age and by count; the oldest go first. Owns no rule about numbers: whether one
//! may still be given is the engine's to say.
//! Source: docs/spec/allocation.md, "Batches sent twice".

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

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

    /// What a row was answered, and when.
    pub(crate) fn get(&self, now: Millis, row: RowKey) -> Option<(Millis, Answer)> {
        let &(at, answer) = self.by_row.get(&row)?;
        (now.since(at) <= ANSWER_AGE).then_some((at, answer))
    }

    pub(crate) fn remember(&mut self, now: Millis, row: RowKey, answer: Answer) {
        let before = self.by_row.insert(row, (now, answer));
        // A snapshot and the journal after it may both tell of one answer.
        if before.is_none_or(|(at, _)| at != now) {
            self.oldest.push_back((now, row));
        }
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

    /// How many of the answers since the start were dropped.
    pub(crate) fn begin(&self) -> u64 {
        self.dropped
    }

    /// How many answers there were since the start, those among them that were dropped as well.
    pub(crate) fn end(&self) -> u64 {
        self.dropped + self.oldest.len() as u64
    }

    /// The answers `range` of those since the start, oldest first; those that were dropped are left
    /// out.
    pub(crate) fn piece(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (RowKey, Millis, Answer)> {
        let place =
            |at: u64| usize::try_from(at.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let (from, to) = (place(range.start), place(range.end));
        self.oldest.iter().take(to).skip(from).filter_map(|&(at, row)| {
            let &(newest, answer) = self.by_row.get(&row)?;
            (newest == at).then_some((row, at, answer))
        })
    }
}
