//! Remembers the answers to rows of repeatable batches, so that a repeated batch gets the same
//! answers and uses up no numbers.
//!
//! The age and the count of the remembered answers are limited. If there are too many, the oldest
//! answer of the pool with the most answers is dropped. Heavy use of one pool therefore displaces
//! that pool's own answers before other pools' answers. The answers are in more than a thousand
//! tables. Only one of them doubles at a time, so memory use grows in small steps. Owns no rules
//! about numbers: the engine decides whether a remembered number may still be given. Source:
//! docs/spec/allocation.md, "Batches sent twice".

mod queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher as _;
use std::ops::Bound;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt as _};
use ringwell_core::{Millis, PoolId, Position, PromoNumber, RECENT_MAX};
use ringwell_journal::{AnswerEntry, RecordedAnswer, RowKey};

use crate::outcome::Outcome;
use queue::Queue;

/// The minimum time for which an answer is remembered, unless there are too many answers.
pub const ANSWER_AGE: Millis = Millis(25 * 60 * 60 * 1000);

/// The count of tables that map rows to answers. When a table is full, all its rows are moved to a
/// larger table at once, so each table must stay small. With the default limit of a million rows, a
/// table contains 800 rows on average. When a table exceeds 896 rows, its capacity is doubled.
const PARTS: usize = 1250;

/// Returns the part of an outcome to remember. Returns `None` if the row was refused, because the
/// row may succeed when it is sent again.
pub(crate) fn answer_of(outcome: Outcome) -> Option<RecordedAnswer> {
    match outcome {
        Outcome::Allocated { number } | Outcome::Kept { number } => {
            Some(RecordedAnswer::Number(number))
        }
        Outcome::Exhausted { .. } => Some(RecordedAnswer::Overflow),
        Outcome::Refused(_) => None,
    }
}

/// The answers, by row and by pool.
#[derive(Debug)]
pub(crate) struct Answers {
    by_row: Vec<HashMap<RowKey, Remembered>>,
    /// The hash that selects a row's table. Clients cannot know the key of this hash, so no client
    /// can choose rows that all fall into one table. Within a table a fast hash is sufficient,
    /// because row keys are digests, which clients cannot choose.
    places: RandomState,
    /// Each pool's answered rows, in the order of their answers. A row that was answered again has
    /// two entries. The older entry is skipped, because its time differs from that of the row's
    /// current answer.
    by_pool: BTreeMap<PoolId, Queue>,
    /// The same pools, grouped by the [`class`] of their queue's length.
    by_length: BTreeSet<(usize, PoolId)>,
    /// The count of entries in all queues.
    queued: usize,
    remembered: usize,
    rows_max: usize,
    /// The rows of the newest allocations, ordered by the allocation record's position. The number
    /// of rows that are kept equals the number of allocations that can be undone.
    allocated: VecDeque<(Position, RowKey)>,
}

/// The answer to a row, packed into sixteen bytes.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    at: Millis,
    /// The E.164 digits of the number, or zero for the overflow number. May be combined with the
    /// flag [`NEW`].
    number: u64,
}

/// A flag in [`Remembered::number`]: the row has not been repeated since its number was handed out.
/// Numbers have at most fifteen digits, so the bit is free.
const NEW: u64 = 1 << 63;

/// A value of [`Remembered::number`]: the row's answer has been forgotten, but the row's entry is
/// still in a queue.
const FORGOTTEN: u64 = NEW;

impl Remembered {
    fn new(at: Millis, answer: RecordedAnswer) -> Self {
        let number = match answer {
            RecordedAnswer::Number(number) => number.to_e164(),
            RecordedAnswer::Overflow => 0,
        };
        Self { at, number }
    }

    fn is_forgotten(&self) -> bool {
        self.number == FORGOTTEN
    }

    fn answer(&self) -> RecordedAnswer {
        PromoNumber::from_e164(self.number & !NEW)
            .map_or(RecordedAnswer::Overflow, RecordedAnswer::Number)
    }
}

/// The current position in a walk over all answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswersPlace {
    pool: PoolId,
    /// The index, in the pool's queue, of the next answer to visit.
    from: u64,
    /// The index at which to stop in this pool's queue. Because it is fixed, the walk ends even if
    /// the pool gets new answers faster than the walk proceeds.
    end: u64,
}

impl Answers {
    pub(crate) fn new(rows_max: usize) -> Self {
        Self {
            by_row: Vec::new(),
            places: RandomState::default(),
            by_pool: BTreeMap::new(),
            by_length: BTreeSet::new(),
            queued: 0,
            remembered: 0,
            rows_max,
            allocated: VecDeque::new(),
        }
    }

    /// Returns the answer to a row, and its time.
    pub(crate) fn get(&self, now: Millis, row: RowKey) -> Option<(Millis, RecordedAnswer)> {
        let known = self.known(row)?;
        (now.since(known.at) <= ANSWER_AGE).then(|| (known.at, known.answer()))
    }

    /// Like [`Self::get`], for a row that is about to receive the same answer again.
    pub(crate) fn repeat(&mut self, now: Millis, row: RowKey) -> Option<(Millis, RecordedAnswer)> {
        let place = self.place(row);
        let known = self.by_row.get_mut(place)?.get_mut(&row)?;
        if !known.is_forgotten() {
            known.number &= !NEW;
        }
        self.get(now, row)
    }

    fn known(&self, row: RowKey) -> Option<&Remembered> {
        let known = self.by_row.get(self.place(row))?.get(&row)?;
        (!known.is_forgotten()).then_some(known)
    }

    /// Remembers the answer that a row of `pool` receives at `now`.
    pub(crate) fn remember(
        &mut self,
        now: Millis,
        pool: PoolId,
        row: RowKey,
        answer: RecordedAnswer,
    ) {
        self.insert(pool, row, Remembered::new(now, answer));
    }

    /// Like [`Self::remember`], for a number that is handed out at `now`.
    pub(crate) fn remember_new(
        &mut self,
        now: Millis,
        pool: PoolId,
        row: RowKey,
        answer: RecordedAnswer,
    ) {
        assert!(answer != RecordedAnswer::Overflow, "an overflow answer would count as forgotten");
        let Remembered { at, number } = Remembered::new(now, answer);
        self.insert(pool, row, Remembered { at, number: number | NEW });
    }

    fn insert(&mut self, pool: PoolId, row: RowKey, answer: Remembered) {
        if self.by_row.is_empty() {
            self.by_row.resize_with(PARTS, HashMap::new);
        }
        let place = self.place(row);
        let before = self.by_row[place].insert(row, answer);
        self.remembered += usize::from(before.is_none_or(|before| before.is_forgotten()));
        // An answer may be in a snapshot and also in the journal that follows the snapshot. It is
        // queued only once.
        if before.is_none_or(|before| before.at != answer.at) {
            self.queue(answer.at, pool, row);
        }
    }

    /// Stores `position`, the position of the allocation record for `row`.
    pub(crate) fn allocated(&mut self, position: Position, row: RowKey) {
        let last = self.allocated.back().map(|(last, _)| *last);
        assert!(last < Some(position), "rows of allocations are out of order");
        if self.allocated.len() == RECENT_MAX {
            self.allocated.pop_front();
        }
        self.allocated.push_back((position, row));
    }

    /// Returns the row of the allocation whose record is at `position`.
    pub(crate) fn row_at(&self, position: Position) -> Option<RowKey> {
        let place = self.allocated.binary_search_by_key(&position, |(position, _)| *position);
        place.ok().map(|place| self.allocated[place].1)
    }

    /// Whether the row's number was newly handed out for the row, and the row has not been repeated
    /// since. Also returns `false` if this is no longer known.
    pub(crate) fn is_new(&self, row: RowKey) -> bool {
        self.known(row).is_some_and(|known| known.number & NEW != 0)
    }

    /// Forgets the answer to a row. The row's entry in a queue stays there and is skipped later.
    pub(crate) fn forget(&mut self, row: RowKey) {
        let place = self.place(row);
        let known = self.by_row.get_mut(place).and_then(|part| part.get_mut(&row));
        if let Some(known) = known.filter(|known| !known.is_forgotten()) {
            known.number = FORGOTTEN;
            self.remembered -= 1;
        }
    }

    fn queue(&mut self, now: Millis, pool: PoolId, row: RowKey) {
        let queue = self.by_pool.entry(pool).or_default();
        let before = queue.len();
        queue.push(now, row);
        let mut oldest = queue.first();
        self.queued += 1;
        self.reclass(pool, before, before + 1);
        while let Some((at, _)) = oldest
            && now.since(at) > ANSWER_AGE
        {
            self.drop_oldest(pool);
            oldest = self.by_pool.get(&pool).and_then(Queue::first);
        }
        while self.queued > self.rows_max {
            // If several pools tie for the most answers, skips the pool whose only row was just
            // added.
            let is_new = |of: &PoolId| *of == pool && self.len_of(pool) == 1;
            let mut longest = self.by_length.iter().rev().map(|(_, pool)| *pool);
            let other = { longest.clone() }.find(|pool| !is_new(pool));
            let Some(most) = other.or_else(|| longest.next()) else { break };
            self.drop_oldest(most);
        }
        assert!(self.queued <= self.rows_max, "more answers are remembered than the limit allows");
    }

    /// Updates the class of `pool`, whose queue length changes from `before` to `now`.
    fn reclass(&mut self, pool: PoolId, before: usize, now: usize) {
        if class(before) != class(now) {
            let is_known = self.by_length.remove(&(class(before), pool));
            assert!(is_known == (before > 0), "a pool is in the wrong class");
            if now > 0 {
                self.by_length.insert((class(now), pool));
            }
        }
    }

    fn len_of(&self, pool: PoolId) -> usize {
        self.by_pool.get(&pool).map_or(0, Queue::len)
    }

    fn drop_oldest(&mut self, pool: PoolId) {
        let Some(queue) = self.by_pool.get_mut(&pool) else { return };
        let before = queue.len();
        let Some((at, row)) = queue.pop() else { return };
        if before == 1 {
            self.by_pool.remove(&pool);
        }
        self.queued -= 1;
        self.reclass(pool, before, before - 1);
        let place = self.place(row);
        let part = &mut self.by_row[place];
        if let Some(newest) = part.get(&row).copied().filter(|newest| newest.at == at) {
            part.remove(&row);
            self.remembered -= usize::from(!newest.is_forgotten());
        }
        assert!(self.remembered <= self.queued, "an answer is in no queue");
    }

    fn place(&self, row: RowKey) -> usize {
        let hash = self.places.hash_one(row) % PARTS as u64;
        usize::try_from(hash).unwrap_or_default()
    }

    /// Forgets all answers, but keeps the rows of allocations.
    pub(crate) fn clear(&mut self) {
        let allocated = std::mem::take(&mut self.allocated);
        *self = Self { allocated, ..Self::new(self.rows_max) };
    }

    pub(crate) fn len(&self) -> usize {
        self.remembered
    }

    /// Returns all answers, pool by pool, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = AnswerEntry> {
        self.by_pool.iter().flat_map(|(pool, queue)| {
            queue.iter(0).filter_map(|(at, row)| self.entry(*pool, at, row))
        })
    }

    /// Returns the beginning of a walk, or `None` if there are no answers.
    pub(crate) fn first(&self) -> Option<AnswersPlace> {
        self.pool_after(Bound::Unbounded)
    }

    fn pool_after(&self, bound: Bound<PoolId>) -> Option<AnswersPlace> {
        let (pool, queue) = self.by_pool.range((bound, Bound::Unbounded)).next()?;
        let (from, end) = queue.range();
        Some(AnswersPlace { pool: *pool, from, end })
    }

    /// Passes about `count` answers to `out`, starting at `place`. Returns the position at which
    /// the walk continues. Answers that were dropped since the walk began are omitted, and so are
    /// answers given after the walk reached their pool.
    pub(crate) fn piece(
        &self,
        place: AnswersPlace,
        count: u32,
        mut out: impl FnMut(&AnswerEntry),
    ) -> Option<AnswersPlace> {
        let mut left = u64::from(count);
        let mut place = place;
        while left > 0 {
            let AnswersPlace { pool, from, end } = place;
            assert!(from <= end, "a walk has passed its end");
            let to = end.min(from + left);
            if let Some(queue) = self.by_pool.get(&pool) {
                let count = to - from.max(queue.range().0).min(to);
                let entries = queue.iter(from).take(usize::try_from(count).unwrap_or(usize::MAX));
                let entries = entries.filter_map(|(at, row)| self.entry(pool, at, row));
                entries.for_each(|entry| out(&entry));
            }
            if to < end {
                return Some(AnswersPlace { from: to, ..place });
            }
            // Skipping a pool without answers takes time too, so it counts as one answer.
            left = left.saturating_sub((to - from).max(1));
            place = self.pool_after(Bound::Excluded(pool))?;
        }
        Some(place)
    }

    fn entry(&self, pool: PoolId, at: Millis, row: RowKey) -> Option<AnswerEntry> {
        let newest = self.known(row)?;
        (newest.at == at).then(|| AnswerEntry { row, at, answer: newest.answer(), pool })
    }
}

/// Returns the class for a queue length. When an answer must be dropped, its pool is chosen by
/// class and not by exact length. Adding or removing a row therefore seldom changes the order of
/// the pools.
fn class(len: usize) -> usize {
    if len < 64 { len } else { 63 + len / 64 }
}

#[cfg(test)]
mod tests;
