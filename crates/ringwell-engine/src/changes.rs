//! Pools that come, change and go while the engine serves, and what goes with a pool to its next
//! owner.
//!
//! The list of pools itself is in no journal: it comes from the directory, at a start too. What is
//! taken over from another shard is, because its journal stays where it is.
//! Source: docs/spec/allocation.md, "Changes while the shard serves"; docs/spec/cluster.md,
//! "Moving buckets".

use ringwell_core::{InRotation, Millis, PoolId, PoolSpec, Retired, Slot};
use ringwell_journal::{Answer, AnswerEntry, RECORD_OVERHEAD_MAX, Record};

use crate::engine::Engine;

impl Engine {
    /// The pool at index `pool` is as `spec` says from now on. See [`ringwell_core::Shard::put_pool`].
    ///
    /// # Errors
    /// [`InRotation`] if another pool of the shard has one of the numbers; nothing has been changed
    /// then.
    ///
    /// # Panics
    /// If another pool is at this index: the directory excludes it.
    pub fn put_pool(&mut self, pool: u32, spec: &PoolSpec) -> Result<(), InRotation> {
        self.shard.put_pool(pool, spec, self.moved.as_mut())
    }

    /// The pool is not this shard's any more: its rows are refused as moved. What is known of its
    /// numbers stays, for attribution and for whoever owns them next.
    pub fn remove_pool(&mut self, pool: u32) {
        self.shard.remove_pool(pool, self.moved.as_mut());
    }

    /// What the shard knows of the numbers of a pool, from the slot on that is `place` places after
    /// the pool's first, `max` slots at most. Numbers that were never handed out are left out.
    ///
    /// # Panics
    /// If there is no such pool.
    pub fn facts(&self, pool: u32, place: u32, max: u32) -> impl Iterator<Item = Retired> {
        let slots = self.shard.pool_slots(pool);
        let id = self.shard.pool_id(pool);
        let from = slots.start.saturating_add(place);
        let piece = from..slots.end.min(from.saturating_add(max));
        piece.filter_map(move |slot| {
            let state = self.shard.slots()[slot as usize];
            let is_known = state != Slot::new(state.number);
            is_known.then(|| Retired { slot: state, pool: id, visitor: self.shard.visitor(slot) })
        })
    }

    /// Takes over what another shard knew of a number, and records it. `false`: the group that
    /// gathers has no room; call again when it is sealed.
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
        if let Some(Retired { slot, pool, visitor }) = self.shard.adopt(&with_position) {
            let Slot { allocated_at, locked_until, .. } = slot;
            self.writer.append(&Record::Adopt {
                at: now,
                number,
                pool,
                allocated_at,
                locked_until,
                visitor,
                previous,
            });
            // Of one that went out here before it went away, the record is here.
            let is_replaced = known.allocated_at != slot.allocated_at;
            self.live.moved(previous, position, is_replaced);
        }
        true
    }

    /// What rows of repeatable batches were answered with numbers for which `is_wanted` holds, or
    /// with overflow numbers, of which nobody knows the pool; oldest first.
    pub fn answers_for(
        &self,
        is_wanted: impl Fn(ringwell_core::PromoNumber) -> bool,
    ) -> impl Iterator<Item = AnswerEntry> {
        let all = self.answers.piece(0..u64::MAX);
        all.filter(move |(_, _, answer)| match answer {
            Answer::Number(number) => is_wanted(*number),
            Answer::Overflow => true,
        })
        .map(|(row, at, answer)| AnswerEntry { row, at, answer })
    }

    /// As [`Engine::adopt`] where the journal takes nothing: without a record. The other shard must
    /// be of this process, whose next start finds what it knew in its journal.
    pub fn adopt_unrecorded(&mut self, from: &Retired) {
        let known = self.shard.newest(from.slot.number).unwrap_or(Slot::new(from.slot.number));
        let slot = Slot { position: known.position, ..from.slot };
        self.shard.adopt(&Retired { slot, ..*from });
    }

    /// Remembers what another shard answered, and records it; its numbers have been adopted before.
    /// What is known of the row here stands, and a number that has gone to somebody else since is no
    /// answer any more: the row gets the overflow number. `false` as of [`Engine::adopt`].
    #[must_use]
    pub fn adopt_answer(&mut self, now: Millis, entry: &AnswerEntry) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        let AnswerEntry { row, at, mut answer } = *entry;
        if self.answers.get(now, row).is_some() {
            return true;
        }
        if let Answer::Number(number) = answer
            && self.shard.newest(number).is_some_and(|newest| newest.allocated_at > at)
        {
            answer = Answer::Overflow;
        }
        // A number that goes out later in this very millisecond must not seem to be the row's still.
        self.answers.remember(now - Millis(1), row, answer);
        let number = match answer {
            Answer::Number(number) => Some(number),
            Answer::Overflow => None,
        };
        // Nobody asks for the pool of an answer; the owner before did not tell.
        let pool = PoolId(0);
        self.writer.append(&Record::Answer { at: now, pool, row, number });
        true
    }

    /// Nothing goes out of `pool` before `until`, also if it comes here later; which is recorded.
    /// `false` as of [`Engine::adopt`].
    #[must_use]
    pub fn hold_pool(&mut self, now: Millis, pool: PoolId, until: Millis) -> bool {
        if !self.writer.has_room(RECORD_OVERHEAD_MAX) {
            return false;
        }
        self.shard.hold(Some(pool), until);
        self.writer.append(&Record::Hold { at: now, pool: Some(pool), until });
        true
    }

    /// As [`Engine::hold_pool`] where the journal takes nothing; as of
    /// [`Engine::adopt_unrecorded`].
    pub fn hold_unrecorded(&mut self, pool: PoolId, until: Millis) {
        self.shard.hold(Some(pool), until);
    }
}
