//! One ring pool, which chooses the promo number to hand out next.
//!
//! Owns the order in which numbers are chosen. The numbers' states are in the shard's slots, where
//! each pool has one run of consecutive slots. As long as every lockout has the same length and
//! none is ended early or extended, numbers become free in allocation order. The run is then used
//! as a ring: its head moves from slot to slot and is always the number to choose. The first
//! keep-alive, release or lockout change breaks this order, and an [`Order`] replaces the ring. A
//! property test checks that both choose the same number. Invariant: the chosen number has been
//! free longest. Source: docs/spec/allocation.md, "Choosing a number".

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::order::Order;
use crate::slot::{Slot, is_over};
use crate::{Millis, NumberRange, PoolId};

/// The part of a pool's directory entry that its shard needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// The pool's id in the published API.
    pub id: PoolId,
    /// The time for which an allocation locks its number, by the shard's clock.
    pub lockout: Millis,
    /// The numbers in rotation; the overflow number is not one of them.
    pub numbers: Vec<NumberRange>,
}

/// Aligned to one cache line so that a row never loads two.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) lockout: Millis,
    /// The time before which nothing is handed out, because part of the pool's history is
    /// uncertain.
    pub(crate) held_until: Millis,
    /// The first slot of the pool's run in the shard.
    base: u32,
    count: u32,
    head: u32,
    /// The end of the lockout in the slot before the head. The ring stays valid as long as no new
    /// lockout ends before this time.
    last_until: Millis,
    /// Whether any visitor has asked to keep a number. If so, the visitor table is searched before
    /// each allocation.
    pub(crate) sticky: bool,
    /// Whether this entry in the shard's list of pools is vacant.
    is_vacant: bool,
    /// The count of numbers handed out, modulo 2^32.
    pub(crate) allocated: u32,
    /// The count of rows for which no number was free, modulo 2^32.
    pub(crate) exhausted: u32,
    order: Option<Box<Order>>,
}

/// The pool has no number to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// The time at which the next number becomes free, unless its visitor keeps it longer.
    pub until: Millis,
}

impl Pool {
    /// Creates the pool that `spec` describes. Its slots are `all[base..base + count]`. Finds the
    /// head of its ring or, if the numbers do not become free in ring order, creates an [`Order`].
    pub(crate) fn new(spec: &PoolSpec, base: u32, count: u32, all: &[Slot]) -> Self {
        let mut pool = Self {
            id: spec.id,
            lockout: spec.lockout,
            held_until: Millis::ZERO,
            base,
            count,
            head: 0,
            last_until: Millis::ZERO,
            sticky: false,
            is_vacant: false,
            allocated: 0,
            exhausted: 0,
            order: None,
        };
        let slots = pool.slots(all);
        match ring_head(slots) {
            _ if slots.is_empty() => {}
            Some(head) => {
                // The slot before the head is the last to become free.
                let last = head.checked_sub(1).unwrap_or(count - 1);
                (pool.head, pool.last_until) = (head, slots[last as usize].locked_until);
                let first = slots[head as usize].locked_until;
                assert!(
                    first <= pool.last_until,
                    "the head of the ring is not the number that becomes free first"
                );
            }
            None => pool.order = Some(Box::new(Order::new(slots))),
        }
        pool
    }

    /// Returns a vacant entry for the shard's list of pools.
    pub(crate) fn vacant() -> Self {
        Self {
            id: PoolId(0),
            lockout: Millis::ZERO,
            held_until: Millis::ZERO,
            base: 0,
            count: 0,
            head: 0,
            last_until: Millis::ZERO,
            sticky: false,
            is_vacant: true,
            allocated: 0,
            exhausted: 0,
            order: None,
        }
    }

    /// Whether this entry in the shard's list of pools is vacant.
    pub(crate) fn is_vacant(&self) -> bool {
        self.is_vacant
    }

    /// Whether this is the pool with the id `id`.
    #[inline]
    pub(crate) fn is(&self, id: PoolId) -> bool {
        self.id == id && !self.is_vacant
    }

    /// Returns the slot of the number that has been free longest, as an index into the shard's
    /// slots.
    ///
    /// # Errors
    /// [`Exhausted`] if no number is free at `now`, or the pool is held.
    #[inline]
    pub(crate) fn choose(&self, all: &[Slot], now: Millis) -> Result<u32, Exhausted> {
        if self.count == 0 {
            // Numbers may be added to the pool at any time, so the time at which one becomes free
            // is unknown.
            return Err(Exhausted { until: now + self.lockout });
        }
        let place = self.order.as_ref().map_or(self.head, |order| order.first());
        #[cfg(canary)]
        let place = {
            let last = self.slots(all).iter().rposition(|slot| slot.is_free(now));
            crate::canary::place(place, last)
        };
        let until = all[(self.base + place) as usize].locked_until.max(self.held_until);
        if is_over(until, now) { Ok(self.base + place) } else { Err(Exhausted { until }) }
    }

    /// Updates the order after the chosen slot was allocated; its lockout now ends at `until`.
    #[inline]
    pub(crate) fn allocated(&mut self, all: &[Slot], slot: u32, until: Millis) {
        let place = slot - self.base;
        match &mut self.order {
            // The lockout was longer before a restart, so this number becomes free before numbers
            // that were allocated then.
            None if until < self.last_until => self.changed(all, slot),
            None => {
                // Checked only in debug builds, because the check costs two instructions per row.
                let is_head = cfg!(canary) || place == self.head;
                debug_assert!(is_head, "the ring hands out a number other than its head");
                self.head = if place + 1 == self.count { 0 } else { place + 1 };
                self.last_until = until;
            }
            Some(order) => order.changed(run(all, self.base, self.count), place),
        }
    }

    /// Updates the order after the lockout of `slot` was extended or ended early.
    pub(crate) fn changed(&mut self, all: &[Slot], slot: u32) {
        assert!(self.slot_range().contains(&slot), "the number is in another pool");
        let slots = run(all, self.base, self.count);
        match &mut self.order {
            None => self.order = Some(Box::new(Order::new(slots))),
            Some(order) => order.changed(slots, slot - self.base),
        }
    }

    /// Updates the order after the position of `slot` changed. The position matters only between
    /// slots whose lockouts end at the same time.
    pub(crate) fn reposition(&mut self, all: &[Slot], slot: u32) {
        assert!(self.slot_range().contains(&slot), "the number is in another pool");
        if let Some(order) = &mut self.order {
            order.changed(run(all, self.base, self.count), slot - self.base);
        }
    }

    /// The pool's slots.
    pub(crate) fn slots<'a>(&self, all: &'a [Slot]) -> &'a [Slot] {
        run(all, self.base, self.count)
    }

    /// Whether an [`Order`] has replaced the ring.
    pub(crate) fn has_order(&self) -> bool {
        self.order.is_some()
    }

    /// The pool's run of slots in the shard.
    pub(crate) fn slot_range(&self) -> core::ops::Range<u32> {
        self.base..self.base + self.count
    }

    /// Returns the first slot that the next allocation will examine, unless an [`Order`] has
    /// replaced the ring.
    #[inline]
    pub(crate) fn head_slot(&self) -> u32 {
        self.base + self.head
    }
}

fn run(all: &[Slot], base: u32, count: u32) -> &[Slot] {
    &all[base as usize..(base + count) as usize]
}

/// Returns the head of the ring: a walk around the ring that starts there visits the slots in the
/// order of [`Slot::turn`]. Returns `None` if there is no such slot. If two slots are equal in this
/// order, the slot with the lower place comes first.
fn ring_head(slots: &[Slot]) -> Option<u32> {
    let (first, last) = (slots.first()?, slots.last()?);
    let mut pairs = slots.windows(2);
    let Some(fall) = pairs.position(|pair| pair[0].turn() > pair[1].turn()) else { return Some(0) };
    // In a ring, the sort key decreases only at the head. If the head is not the first slot, the
    // first slot's key is therefore greater than the last slot's.
    let is_ring = pairs.all(|pair| pair[0].turn() <= pair[1].turn()) && last.turn() < first.turn();
    is_ring.then(|| u32::try_from(fall + 1).ok()).flatten()
}

/// The fields of a pool that a row needs must fit in one cache line.
const _: () = assert!(size_of::<Pool>() == 64);

#[cfg(test)]
mod tests;
