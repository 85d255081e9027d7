//! Takes a shard's snapshot in pieces between batches, so that the snapshot never stalls the shard.
//!
//! The pieces are taken at different times. This is harmless. The journal is replayed from the
//! group that was open when the first piece was taken. A record changes a number only if it is
//! newer than the number's state. After the last piece is taken, the snapshot becomes usable as
//! soon as the group open at that moment is durable.

use ringwell_core::{Millis, PoolId, Position, PromoNumber, Retired, Slot};
use ringwell_journal::{ForeignTimeEntry, HoldEntry, NumberEntry, SnapshotWriter, position_parts};

use crate::answers::AnswersPlace;
use crate::engine::Engine;

/// The maximum count of slots or answers in one piece. A shard needs about ten microseconds for one
/// piece.
pub const PIECE_ENTRIES: u32 = 1024;

/// The progress of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotStep {
    /// Continue with the numbers of this pool.
    Numbers {
        /// The pool's index within the shard.
        pool: u32,
        /// The slot at which to continue. If it no longer belongs to the pool, the snapshot
        /// continues with the pool's first slot.
        slot: u32,
    },
    /// Continue with the retired numbers that follow this number.
    Retired(Option<PromoNumber>),
    /// Continue with the numbers that were moved by pool changes since the first piece, because the
    /// snapshot may have missed them. The value is the index of the next such number.
    Moved(usize),
    /// Continue with the allocation times by other nodes' clocks, and with the holds.
    Holds,
    /// Continue with the remembered answers. For each pool, only the answers that existed when the
    /// snapshot reached the pool are written. The snapshot therefore ends even if the shard answers
    /// rows faster than the snapshot is written. Later answers are in the journal.
    Answers(AnswersPlace),
    /// Everything has been written.
    Done,
}

impl SnapshotStep {
    /// The beginning.
    pub const FIRST: Self = Self::Numbers { pool: 0, slot: 0 };
}

impl Engine {
    /// Writes one piece of at most `entries` entries to `out`, and returns the step at which the
    /// next piece begins.
    ///
    /// # Panics
    /// Panics if `entries` is zero.
    #[must_use]
    pub fn snapshot(
        &mut self,
        step: SnapshotStep,
        entries: u32,
        out: &mut SnapshotWriter,
    ) -> SnapshotStep {
        assert!(entries > 0, "a snapshot made of empty pieces would never end");
        if step == SnapshotStep::FIRST {
            self.moved = Some(Vec::new());
        }
        let next = match step {
            SnapshotStep::Numbers { pool, slot } => self.snapshot_numbers(pool, slot, entries, out),
            SnapshotStep::Retired(after) => self.snapshot_retired(after, entries, out),
            SnapshotStep::Moved(from) => self.snapshot_moved(from, entries, out),
            SnapshotStep::Holds => {
                for (number, allocated_at, local_at) in self.shard.foreign_times() {
                    out.foreign_time(&ForeignTimeEntry { number, allocated_at, local_at });
                }
                // Expired holds are included, because a move must determine which allocations are
                // older than a hold.
                for (pool, until) in self.shard.holds(Millis::ZERO) {
                    out.hold(&HoldEntry { pool, until });
                }
                self.answers.first().map_or(SnapshotStep::Done, SnapshotStep::Answers)
            }
            SnapshotStep::Answers(place) => {
                let next = self.answers.piece(place, entries, |entry| out.answer(entry));
                next.map_or(SnapshotStep::Done, SnapshotStep::Answers)
            }
            SnapshotStep::Done => SnapshotStep::Done,
        };
        assert!(next != step || next == SnapshotStep::Done, "a snapshot does not advance");
        next
    }

    fn snapshot_numbers(
        &self,
        mut pool: u32,
        from: u32,
        entries: u32,
        out: &mut SnapshotWriter,
    ) -> SnapshotStep {
        let mut left = entries;
        let mut from = from;
        while pool < self.shard.pools_end() {
            let slots = self.shard.pool_slots(pool);
            let start = if slots.contains(&from) { from } else { slots.start };
            let end = slots.end.min(start + left);
            for slot in start..end {
                self.snapshot_number(self.shard.pool_id(pool), slot, out);
            }
            if end < slots.end {
                return SnapshotStep::Numbers { pool, slot: end };
            }
            // Skipping a pool without numbers also takes time, so such a pool counts as one entry.
            left = left.saturating_sub((end - start).max(1));
            pool += 1;
            if left == 0 {
                return SnapshotStep::Numbers { pool, slot: 0 };
            }
            from = 0;
        }
        SnapshotStep::Retired(None)
    }

    fn snapshot_retired(
        &self,
        after: Option<PromoNumber>,
        entries: u32,
        out: &mut SnapshotWriter,
    ) -> SnapshotStep {
        let mut last = None;
        for retired in self.shard.retired_after(after).take(entries as usize) {
            out.number(&entry(retired));
            last = Some(retired.slot.number);
        }
        last.map_or(SnapshotStep::Moved(0), |last| SnapshotStep::Retired(Some(last)))
    }

    /// Writes the moved numbers again. Later entries replace earlier ones: a reader uses the last
    /// entry for each number.
    fn snapshot_moved(
        &mut self,
        from: usize,
        entries: u32,
        out: &mut SnapshotWriter,
    ) -> SnapshotStep {
        let moved = self.moved.as_deref().unwrap_or_default();
        let end = moved.len().min(from + entries as usize);
        assert!(from <= end, "the list of moved numbers became shorter during a snapshot");
        for number in &moved[from..end] {
            match self.shard.find(*number).and_then(|slot| Some((slot, self.shard.pool_of(slot)?)))
            {
                Some((slot, pool)) => self.snapshot_number(self.shard.pool_id(pool), slot, out),
                None => self.shard.retired(*number).iter().for_each(|r| out.number(&entry(r))),
            }
        }
        if end < moved.len() {
            return SnapshotStep::Moved(end);
        }
        self.moved = None;
        SnapshotStep::Holds
    }

    /// Writes one number, unless it was never handed out. A restart reads such numbers from the
    /// directory.
    fn snapshot_number(&self, pool: PoolId, index: u32, out: &mut SnapshotWriter) {
        let slot = &self.shard.slots()[index as usize];
        if slot.position == Position::NONE && slot.allocated_at == Millis::ZERO {
            return;
        }
        let (group, _) = position_parts(slot.position);
        assert!(group <= self.group(), "a record is in a future group");
        out.number(&NumberEntry {
            number: slot.number,
            pool,
            allocated_at: slot.allocated_at,
            locked_until: slot.locked_until,
            position: slot.position,
            visitor: self.shard.visitor(index),
        });
    }
}

fn entry(retired: &Retired) -> NumberEntry {
    let Retired { slot, pool, visitor, .. } = *retired;
    let Slot { number, allocated_at, locked_until, position } = slot;
    NumberEntry { number, pool, allocated_at, locked_until, position, visitor }
}
