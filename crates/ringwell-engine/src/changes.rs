//! Adds, changes and removes pools while the engine serves requests, and passes a pool's state to
//! its next owner.
//!
//! The list of pools is in no journal: it always comes from the directory. State adopted from
//! another shard is recorded in this shard's journal, because the other shard's journal stays where
//! it is. Source: docs/spec/allocation.md, "Changes while the shard serves"; docs/spec/cluster.md,
//! "Moving buckets".

#[cfg(canary)]
use ringwell_core::canary::Bug;
use ringwell_core::{InRotation, Millis, PoolId, PoolSpec, Retired, Slot};
use ringwell_journal::{AnswerEntry, RECORD_OVERHEAD_MAX, Record, RecordedAnswer};

use crate::answers::{ANSWER_AGE, AnswersPlace};
use crate::engine::Engine;

/// The pool id that is recorded with an answer received from another shard. No pool has this id.
pub(crate) const TOLD: PoolId = PoolId(0);

/// Returns the time to store for an answer received at `now`: one millisecond before `now`. If the
/// answer's number is handed out again within the same millisecond, the answer's row must no longer
/// get that number.
pub(crate) fn received_at(now: Millis) -> Millis {
    now - Millis(1)
}

impl Engine {
    /// Reserves memory for part of the slots that `spec` will need. See
    /// [`ringwell_core::Shard::make_room`].
    pub fn make_room(&mut self, spec: &PoolSpec) -> bool {
        self.shard.make_room(spec)
    }

    /// Sets the pool at index `pool` to `spec`. See [`ringwell_core::Shard::put_pool`].
    ///
    /// # Errors
    /// [`InRotation`] if another pool of the shard already contains one of the numbers in `spec`.
    /// In this case nothing has been changed.
    ///
    /// # Panics
    /// Panics if another pool is at this index. The directory rules this out.
    pub fn put_pool(&mut self, pool: u32, spec: &PoolSpec) -> Result<(), InRotation> {
        self.shard.put_pool(pool, spec, self.moved.as_mut())?;
        assert!(self.shard.is_pool(pool, spec.id), "the pool is not at this index");
        Ok(())
    }

    /// Removes the pool from this shard. From then on, the shard refuses the pool's rows as moved.
    /// The states of its numbers are kept, for attribution and for the numbers' next owner.
    pub fn remove_pool(&mut self, pool: u32) {
        self.shard.remove_pool(pool, self.moved.as_mut());
        self.shard.forget_holds(self.now);
    }

    /// Adopts another shard's state of a number, and records it. Returns `false` if the open group
    /// has no room. Call the function again once the group is sealed.
    ///
    /// # Panics
    /// Panics only if the journal and the allocation rules disagree on a record's position.
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
            assert!(written == position, "a record is not at its announced position");
            // If this shard made the allocation itself before the number moved away, this journal
            // also contains the allocation's original record.
            let is_replaced = known.allocated_at != slot.allocated_at;
            self.live.moved(previous, position, is_replaced);
        }
        true
    }

    /// Returns the start of a walk over the remembered answers, for [`Engine::answers_for`], or
    /// `None` if there are no answers.
    #[must_use]
    pub fn answers_first(&self) -> Option<AnswersPlace> {
        self.answers.first()
    }

    /// Reads about `count` answers, starting at `place`. Adds to `out` each answer that is the
    /// overflow number, or a number for which `is_wanted` returns true. Omits answers that are too
    /// old. Returns the position at which the walk continues.
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

    /// Like [`Engine::adopt`], but writes no record, for a journal that accepts none. The other
    /// shard must belong to this process, so that the next startup finds that shard's state in its
    /// journal.
    pub fn adopt_unrecorded(&mut self, from: &Retired) {
        let known = self.shard.newest(from.slot.number).unwrap_or(Slot::new(from.slot.number));
        let slot = Slot { position: known.position, ..from.slot };
        self.shard.adopt(self.now, &Retired { slot, ..*from });
    }

    /// Remembers an answer received from another shard, and records it. The number in the answer
    /// must already have been adopted, and must not have gone to another visitor before the answer
    /// was sent. If this shard already has an answer for the row, it keeps that answer, with two
    /// exceptions. First, a received answer that is newer by this node's clock replaces this
    /// shard's answer. Second, if the number in this shard's answer seems to have gone to another
    /// visitor, the received answer replaces this shard's answer.
    ///
    /// If the number is in rotation here, the sender no longer owns it. The received answer is then
    /// older than the state here, regardless of the recorded times, and does not give the number to
    /// the row. Returns `false` under the same condition as [`Engine::adopt`].
    #[must_use]
    pub fn adopt_answer(&mut self, now: Millis, entry: &AnswerEntry) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        let AnswerEntry { row, at, .. } = *entry;
        let is_elsewhere = |number| self.shard.find(number).is_none();
        #[cfg(canary)]
        let is_elsewhere = |number| is_elsewhere(number) || Bug::RotationIgnored.is_planted();
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

    /// Ensures that no number of `pool` is handed out before `until`, even if the pool is added
    /// later, and records this. Returns `false` under the same condition as [`Engine::adopt`].
    #[must_use]
    pub fn hold_pool(&mut self, now: Millis, pool: PoolId, until: Millis) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        self.shard.hold(Some(pool), until);
        self.writer.append(&Record::Hold { at: now, pool: Some(pool), until });
        true
    }

    /// Like [`Engine::hold_pool`], but writes no record. This is for a journal that accepts no
    /// records, as in [`Engine::adopt_unrecorded`], or for a caller that stores the hold and
    /// repeats it at each startup.
    pub fn hold_unrecorded(&mut self, pool: PoolId, until: Millis) {
        self.shard.hold(Some(pool), until);
    }
}

#[cfg(test)]
mod tests;
