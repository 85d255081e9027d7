//! Copies records to the end of the journal if they are still needed and are in the oldest part,
//! which is about to be dropped. The journal therefore always contains the newest allocation of
//! every number. Source: docs/spec/journal.md, "Retention".

use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_journal::{Clocks, DecodeError, Record, Records};

use crate::engine::Engine;

/// An allocation as an old record describes it.
struct Old<'a> {
    slot: u32,
    number: PromoNumber,
    pool: PoolId,
    allocated_at: Millis,
    clocks: Option<Clocks>,
    params: [&'a [u8]; 2],
}

impl Engine {
    /// Whether the group `n` may contain a record that [`Self::carry`] would copy. If not, the
    /// group need not be read.
    #[must_use]
    pub fn needs_group(&self, n: u64) -> bool {
        self.live.may_hold_any(n)
    }

    /// Appends copies of the allocations in `old` that are still the newest ones of their numbers.
    /// Returns `false` if the open group became full. Call the function again with the same
    /// iterator once the group is sealed. The original records may be dropped only after the open
    /// group is durable. `clocks` contains the clocks that were recorded in the group `old`.
    ///
    /// # Errors
    /// [`DecodeError`] if a record cannot be read. The records before it have already been
    /// processed.
    pub fn carry(
        &mut self,
        now: Millis,
        old: &mut Records<'_>,
        clocks: Option<Clocks>,
    ) -> Result<bool, DecodeError> {
        while !self.is_full() {
            let Some(record) = old.next() else { return Ok(true) };
            let record = record?.1;
            let clocks = record.clocks(clocks);
            match record {
                Record::Allocate { at: allocated_at, slot, number, pool, params, .. }
                | Record::Carry { allocated_at, slot, number, pool, params, .. } => {
                    self.carry_one(now, &Old { slot, number, pool, allocated_at, clocks, params });
                }
                Record::Extend { .. }
                | Record::Release { .. }
                | Record::Answer { .. }
                | Record::Adopt { .. }
                | Record::Hold { .. }
                | Record::Tick { .. } => {}
            }
        }
        Ok(false)
    }

    fn carry_one(&mut self, now: Millis, old: &Old<'_>) {
        let Some(newest) = self.shard.newest_hinted(old.slot, old.number) else { return };
        if newest.allocated_at != old.allocated_at {
            return;
        }
        let position = self.writer.append(&Record::Carry {
            at: now,
            number: old.number,
            slot: old.slot,
            pool: old.pool,
            allocated_at: old.allocated_at,
            locked_until: newest.locked_until,
            clocks: old.clocks,
            // The copy contains the current visitor, because another shard may have reported a
            // different one after the original record was written. The visitor is copied even if
            // the lockout is over, because the number is locked again if the visitor's batch is
            // repeated.
            visitor: self.shard.newest_visitor(old.slot, old.number),
            params: old.params,
        });
        assert!(position > newest.position, "a copy precedes its original");
        self.shard.carried(old.slot, old.number, position);
        self.live.moved(newest.position, position, false);
        self.counts.carried += 1;
    }
}
