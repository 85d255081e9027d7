//! Adding, changing and removing pools while the engine serves, and the state that a pool passes to
//! its next owner.
//!
//! The list of pools itself is in no journal: it always comes from the directory. State taken over
//! from another shard is recorded, because that shard's journal stays in place. Source:
//! docs/spec/allocation.md, "Changes while the shard serves"; docs/spec/cluster.md, "Moving
//! buckets".

#[cfg(canary)]
use ringwell_core::canary::{ROTATION_IGNORED, is_planted};
use ringwell_core::{InRotation, Millis, PoolId, PoolSpec, Retired, Slot};
use ringwell_journal::{AnswerEntry, RECORD_OVERHEAD_MAX, Record, RecordedAnswer};

use crate::answers::{ANSWER_AGE, AnswersPlace};
use crate::engine::Engine;

/// A placeholder for the pool in the record of an answer that another shard reported. No pool has
/// this id.
pub(crate) const TOLD: PoolId = PoolId(0);

/// The time of an answer received at `now`, for comparisons: a number that is handed out later in
/// the same millisecond must no longer count as the row's.
pub(crate) fn received_at(now: Millis) -> Millis {
    now - Millis(1)
}

impl Engine {
    /// Makes part of the room that `spec` will take. See [`ringwell_core::Shard::make_room`].
    pub fn make_room(&mut self, spec: &PoolSpec) -> bool {
        self.shard.make_room(spec)
    }

    /// Sets the pool at index `pool` to `spec`. See [`ringwell_core::Shard::put_pool`].
    ///
    /// # Errors
    /// [`InRotation`] if another pool of the shard has one of the numbers; then nothing has been
    /// changed.
    ///
    /// # Panics
    /// Panics if another pool is at this index; the directory excludes this.
    pub fn put_pool(&mut self, pool: u32, spec: &PoolSpec) -> Result<(), InRotation> {
        self.shard.put_pool(pool, spec, self.moved.as_mut())?;
        assert!(self.shard.is_pool(pool, spec.id), "the pool is elsewhere");
        Ok(())
    }

    /// Removes the pool from this shard: its rows are refused as moved. The state of its numbers
    /// stays, for attribution and for their next owner.
    pub fn remove_pool(&mut self, pool: u32) {
        self.shard.remove_pool(pool, self.moved.as_mut());
        self.shard.forget_holds(self.now);
    }

    /// Takes over another shard's state of a number, and records it. Returns `false` if the open
    /// group has no room; call again when it is sealed.
    ///
    /// # Panics
    /// Panics only if the journal and the rules disagree on a record's position.
    #[must_use]
    pub fn adopt(&mut self, now: Millis, from: &Retired) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        let number = from.slot.number;
        let known = self.shard.newest(number).unwrap_or(Slot::new(number));
        let previous = known.position;
        let position = self.next_position();
        let with_position = Retired { slot: Slot { position, ..from.slot }, ..*from };
        if let Some(Retired { slot, pool, visitor, local_at }) =
            self.shard.adopt(now, &with_position)
        {
            let Slot { allocated_at, locked_until, .. } = slot;
            let written = self.writer.append(&Record::Adopt {
                at: now,
                number,
                pool,
                allocated_at,
                locked_until,
                local_at,
                visitor,
                previous,
            });
            assert!(written == position, "a record landed elsewhere than announced");
            // If this allocation was made here before the number moved, its record is here.
            let is_replaced = known.allocated_at != slot.allocated_at;
            self.live.moved(previous, position, is_replaced);
        }
        true
    }

    /// The start of a walk through the remembered answers, for [`Engine::answers_for`]; `None` if
    /// there are none.
    #[must_use]
    pub fn answers_first(&self) -> Option<AnswersPlace> {
        self.answers.first()
    }

    /// Reads about `count` answers from `place` on. Adds to `out` the answers to rows of repeatable
    /// batches that are overflow numbers, or numbers for which `is_wanted` holds; omits answers
    /// that are too old. Returns the position at which the walk continues.
    pub fn answers_for(
        &self,
        place: AnswersPlace,
        count: u32,
        is_wanted: impl Fn(ringwell_core::PromoNumber) -> bool,
        out: &mut Vec<AnswerEntry>,
    ) -> Option<AnswersPlace> {
        self.answers.piece(place, count, |entry| {
            let is_wanted = match entry.answer {
                RecordedAnswer::Number(number) => is_wanted(number),
                RecordedAnswer::Overflow => true,
            };
            if is_wanted && self.now.since(entry.at) <= ANSWER_AGE {
                out.push(*entry);
            }
        })
    }

    /// Like [`Engine::adopt`] without a record, for a journal that accepts no records. The other
    /// shard must belong to this process, whose next start finds that shard's state in its journal.
    pub fn adopt_unrecorded(&mut self, from: &Retired) {
        let known = self.shard.newest(from.slot.number).unwrap_or(Slot::new(from.slot.number));
        let slot = Slot { position: known.position, ..from.slot };
        self.shard.adopt(self.now, &Retired { slot, ..*from });
    }

    /// Remembers an answer of another shard, and records it. Its number has been adopted before,
    /// and had not gone to another visitor when the answer was reported. If the row already has an
    /// answer here, that is kept, unless the row got a number later by this node's clock, or has
    /// kept one that seems to belong to another visitor here.
    ///
    /// If a number is in rotation here, the reporter no longer owns it: the report is older than
    /// the state here, whatever the times, and does not give the number to the row. Returns `false`
    /// under the same condition as [`Engine::adopt`].
    #[must_use]
    pub fn adopt_answer(&mut self, now: Millis, entry: &AnswerEntry) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        let AnswerEntry { row, at, .. } = *entry;
        let is_elsewhere = |number| self.shard.find(number).is_none();
        #[cfg(canary)]
        let is_elsewhere = |number| is_elsewhere(number) || is_planted(ROTATION_IGNORED);
        let number = match entry.answer {
            RecordedAnswer::Number(number) if is_elsewhere(number) => Some(number),
            RecordedAnswer::Number(_) | RecordedAnswer::Overflow => None,
        };
        let answer = number.map_or(RecordedAnswer::Overflow, RecordedAnswer::Number);
        let gone_at = number.and_then(|number| self.shard.newest_local_at(number));
        let is_kept = |known_at, known| known == answer && gone_at > Some(known_at);
        let stands = |(known_at, known): (Millis, RecordedAnswer)| {
            number.is_none() || (known_at >= at && !is_kept(known_at, known))
        };
        if self.answers.get(now, row).is_some_and(stands) {
            return true;
        }
        self.answers.remember(received_at(now), TOLD, row, answer);
        self.writer.append(&Record::Answer { at: now, pool: TOLD, row, number });
        true
    }

    /// Hands out nothing from `pool` before `until`, even if it is added later; this is recorded.
    /// Returns `false` under the same condition as [`Engine::adopt`].
    #[must_use]
    pub fn hold_pool(&mut self, now: Millis, pool: PoolId, until: Millis) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        self.shard.hold(Some(pool), until);
        self.writer.append(&Record::Hold { at: now, pool: Some(pool), until });
        true
    }

    /// Like [`Engine::hold_pool`] without a record: for a journal that accepts no records, as in
    /// [`Engine::adopt_unrecorded`], or if the caller stores the hold and repeats it at each start.
    pub fn hold_unrecorded(&mut self, pool: PoolId, until: Millis) {
        self.shard.hold(Some(pool), until);
    }
}

#[cfg(test)]
mod tests;
