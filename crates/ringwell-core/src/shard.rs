//! A shard's pools and their numbers, and the operations on a number.
//!
//! Single-threaded: takes one input at a time, each with its time `now`. This time never decreases.
//! Does not depend on clocks or storage, or on the source of requests. Every change is given the
//! position of its record. Invariant: no number is handed out again before its lockout ends.
//! Source: docs/spec/allocation.md.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::counts::{Kept, PoolCounts};
use crate::foreign_times::ForeignTimes;
use crate::pool::{Exhausted, Pool};
use crate::recent::{Before, Recent};
use crate::runs::Runs;
use crate::slot::{Slot, is_over};
use crate::vacant::Vacant;
use crate::visitors::Visitors;
use crate::{Millis, NumberRange, PoolId, Position, PromoNumber, VisitorId};

/// The lower bound of `Shard::holds_kept`. This many holds take about three megabytes.
pub(crate) const HOLDS_KEPT_MIN: usize = 65_536;

/// A shard: the states of the numbers that it owns, and of numbers that it handed out earlier.
#[derive(Debug)]
pub struct Shard {
    pub(crate) slots: Vec<Slot>,
    pub(crate) pools: Vec<Pool>,
    /// Maps each pool's id to its index. Holds identify pools by id.
    pub(crate) places: BTreeMap<PoolId, u32>,
    pub(crate) runs: Runs,
    pub(crate) vacant: Vacant,
    pub(crate) visitors: Visitors,
    pub(crate) retired: BTreeMap<PromoNumber, Retired>,
    /// The times of numbers in rotation whose newest allocation was dated by another node's clock.
    pub(crate) foreign_times: ForeignTimes,
    /// The time when the last hold on a pool in this shard ends.
    pub(crate) held_here: Millis,
    /// The allocations that the newest allocations replaced.
    pub(crate) recent: Recent,
    /// The time until which every pool is held, including pools that are added later.
    pub(crate) held_all: Millis,
    /// For each pool that is not in this shard, the time until which it will be held if it is
    /// added.
    pub(crate) holds_elsewhere: BTreeMap<PoolId, Millis>,
    /// The count of holds in `holds_elsewhere` above which the ended ones are removed.
    pub(crate) holds_kept: usize,
    /// Whether an `Order` has replaced the ring of at least one pool.
    pub(crate) has_orders: bool,
    /// Not part of [`Pool`], which fills a cache line and is read for each row.
    pub(crate) kept: Kept,
}

/// A number that is no longer in any of the shard's pools, with its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// The number's newest allocation in this shard.
    pub slot: Slot,
    /// The time of that allocation by this node's clock. Differs from `slot.allocated_at` only if
    /// the allocation has the time of another node's clock.
    pub local_at: Millis,
    /// The pool that the number was last in.
    pub pool: PoolId,
    /// The visitor who keeps the number.
    pub visitor: Option<VisitorId>,
}

impl Retired {
    /// A lockout until `until` whose allocation is unknown. Its times are zero.
    #[must_use]
    pub const fn without_allocation(number: PromoNumber, until: Millis) -> Self {
        let slot = Slot { locked_until: until, ..Slot::new(number) };
        Self { slot, local_at: Millis::ZERO, pool: PoolId(0), visitor: None }
    }
}

/// Whether a number's lockout ended (at `locked_until`) before a hold of its pool ended (at
/// `held_until`). If so, another owner may have handed the number out since. One millisecond is
/// added to the hold, because undoing an allocation can end the hold now and the lockout in the
/// next millisecond.
#[must_use]
pub fn is_doubted(locked_until: Millis, held_until: Millis) -> bool {
    held_until > Millis::ZERO && locked_until <= held_until + Millis(1)
}

/// A number that has just been handed out or kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The index of the number's slot in the shard.
    pub slot: u32,
    /// The number.
    pub number: PromoNumber,
    /// The end of the number's lockout.
    pub locked_until: Millis,
    /// The position of the number's previous record.
    pub previous: Position,
    /// Whether the number was in doubt until it was handed out: see [`is_doubted`].
    pub was_doubted: bool,
}

/// An allocation that has been undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// The number, which is free again.
    pub grant: Grant,
    /// The allocation that is the number's newest again.
    pub before: Before,
    /// The pool, if another shard may have allocated the number during a hold, after the allocation
    /// `before`. The hold is then extended to the present time, so that [`Shard::is_doubted`] still
    /// returns `true`.
    pub doubted: Option<PoolId>,
}

impl Shard {
    /// The exclusive upper bound on pool indices. Some indices may be vacant.
    #[must_use]
    pub fn pools_end(&self) -> u32 {
        u32::try_from(self.pools.len()).unwrap_or(u32::MAX)
    }

    /// All slots, including vacant ones.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The count of numbers in rotation.
    #[must_use]
    pub fn number_count(&self) -> usize {
        self.slots.len() - self.vacant.count()
    }

    /// The id of a pool.
    ///
    /// # Panics
    /// Panics if there is no such pool. In that case, the directory and the shard were built from
    /// different lists of pools.
    #[must_use]
    pub fn pool_id(&self, pool: u32) -> PoolId {
        self.pools[pool as usize].id
    }

    /// The counts of requests for `pool`'s numbers since the pool came to this shard.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn counts(&self, pool: u32) -> PoolCounts {
        let Pool { allocated, exhausted, .. } = self.pools[pool as usize];
        let (kept, lengthened) = self.kept.of(pool);
        PoolCounts { allocated, exhausted, kept, lengthened }
    }

    /// The time when the next number of `pool` becomes free, or `None` if a number is free now.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn next_free(&self, pool: u32, now: Millis) -> Option<Millis> {
        self.pools[pool as usize].choose(&self.slots, now).err().map(|exhausted| exhausted.until)
    }

    /// The time for which an allocation from `pool` locks its number.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn lockout(&self, pool: u32) -> Millis {
        self.pools[pool as usize].lockout
    }

    /// The end of the pool's hold. Until then, no row gets a new number of this pool.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn held_until(&self, pool: u32) -> Millis {
        self.pools[pool as usize].held_until
    }

    /// The slot to prefetch for `pool`: the one that the next allocation almost always reads first.
    /// If an `Order` has replaced the pool's ring, the allocation may read another slot first. Does
    /// not read the slot's memory.
    #[inline]
    #[must_use]
    pub fn next_slot(&self, pool: u32) -> Option<&Slot> {
        self.slots.get(self.pools.get(pool as usize)?.head_slot() as usize)
    }

    /// Hands out the number of `pool` that has been free longest.
    ///
    /// # Errors
    /// [`Exhausted`] if every number is locked out.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[inline]
    pub fn allocate(
        &mut self,
        now: Millis,
        pool: u32,
        visitor: Option<VisitorId>,
        position: Position,
    ) -> Result<Grant, Exhausted> {
        let owner = &mut self.pools[pool as usize];
        let chosen = owner.choose(&self.slots, now).inspect_err(|_| {
            owner.exhausted = owner.exhausted.wrapping_add(1);
        })?;
        owner.allocated = owner.allocated.wrapping_add(1);
        let locked_until = now + owner.lockout;
        let slot = &mut self.slots[chosen as usize];
        assert!(slot.is_free(now), "a locked number was chosen");
        let previous = slot.position;
        let was_doubted = is_doubted(slot.locked_until, owner.held_until);
        assert!(previous < position, "the new record does not follow the previous one");
        let number = slot.number;
        self.recent.push(position, now, slot);
        *slot = Slot { number, allocated_at: now, locked_until, position };
        if let Some(local_at) = self.foreign_times.forget(number) {
            self.recent.foreign_time(position, local_at);
        }
        owner.allocated(&self.slots, chosen, locked_until);
        if owner.sticky || visitor.is_some() {
            owner.sticky = true;
            self.visitors.assign(pool, chosen, visitor);
        }
        Ok(Grant { slot: chosen, number, locked_until, previous, was_doubted })
    }

    /// Extends the lockout of the number that `visitor` has in `pool` to one full lockout from
    /// `now`. Returns `None` if the visitor no longer has a number. Also returns `None` if the pool
    /// is held, because another visitor may have got the number in the meantime.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    pub fn keep(
        &mut self,
        now: Millis,
        pool: u32,
        visitor: VisitorId,
        position: Position,
    ) -> Option<Grant> {
        let kept = self.visitors.slot(pool, visitor)?;
        let owner = &self.pools[pool as usize];
        assert!(owner.slot_range().contains(&kept), "the visitor's number is in another pool");
        let is_held = !is_over(owner.held_until, now);
        if is_held || self.slots[kept as usize].is_free(now) {
            return None;
        }
        self.extend(now, kept, position)
    }

    /// The slot of the number that `visitor` got last in `pool`, even if the number's lockout has
    /// ended.
    #[must_use]
    pub fn slot_of(&self, pool: u32, visitor: VisitorId) -> Option<u32> {
        self.visitors.slot(pool, visitor)
    }

    /// Extends the lockout of the number in `slot` to one full lockout from `now`, even if the
    /// lockout has ended. The number's newest allocation stays the same. Returns `None` if there is
    /// no such slot.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn extend(&mut self, now: Millis, slot: u32, position: Position) -> Option<Grant> {
        let pool = self.pool_of(slot)?;
        let owner = &mut self.pools[pool as usize];
        let held = self.slots.get_mut(slot as usize)?;
        let previous = held.position;
        assert!(previous < position, "the new record does not follow the previous one");
        let before = held.locked_until.max(now);
        held.locked_until = held.locked_until.max(now + owner.lockout);
        assert!(held.locked_until >= before, "a keep-alive has shortened a lockout");
        self.kept.add(pool, 1, held.locked_until.since(before).0.cast_signed());
        held.position = position;
        let (number, locked_until) = (held.number, held.locked_until);
        owner.changed(&self.slots, slot);
        self.has_orders = true;
        Some(Grant { slot, number, locked_until, previous, was_doubted: false })
    }

    /// Whether the visitor's request at `seen_at` was the last to begin or extend the lockout of
    /// `slot`. Also returns `false` if the pool's lockout has changed since that request.
    #[must_use]
    pub fn is_unseen_since(&self, slot: u32, seen_at: Millis) -> bool {
        let Some(pool) = self.pool_of(slot) else { return false };
        self.slots[slot as usize].locked_until == seen_at + self.lockout(pool)
    }

    /// Ends the lockout of the allocation that was made at `allocated_at`. Returns `None` if that
    /// allocation is no longer the newest of `slot`, or if its lockout has ended. The number
    /// becomes free in the next millisecond, so that a number and a time always identify one
    /// allocation.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn release(
        &mut self,
        now: Millis,
        slot: u32,
        allocated_at: Millis,
        position: Position,
    ) -> Option<Grant> {
        let pool = self.pool_of(slot)?;
        let held = self.slots.get_mut(slot as usize)?;
        let until = now + Millis(1);
        if held.allocated_at != allocated_at || held.is_free(until) {
            return None;
        }
        let previous = held.position;
        assert!(previous < position, "the new record does not follow the previous one");
        self.kept.add(pool, 0, -held.locked_until.since(until).0.cast_signed());
        held.locked_until = until;
        held.position = position;
        let number = held.number;
        self.pools[pool as usize].changed(&self.slots, slot);
        self.has_orders = true;
        self.visitors.assign(pool, slot, None);
        Some(Grant { slot, number, locked_until: until, previous, was_doubted: false })
    }

    /// Like [`Self::release`], for an allocation that no visitor has seen: the previous allocation
    /// becomes the number's newest one again. Also returns `None` if the visitor has kept the
    /// number since, or if too many allocations have followed. In both cases, the lockout runs to
    /// its end.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn withdraw(
        &mut self,
        now: Millis,
        slot: u32,
        allocated_at: Millis,
        position: Position,
    ) -> Option<Withdrawn> {
        let newest = self.slots.get(slot as usize)?;
        let before = self.recent.before(newest.position, newest.allocated_at)?;
        let held_until = |pool: u32| self.pools[pool as usize].held_until;
        let was_doubted = |pool: &u32| is_doubted(before.locked_until, held_until(*pool));
        let doubted = self.pool_of(slot).filter(was_doubted);
        #[cfg(canary)]
        let doubted = doubted.filter(|_| !crate::canary::Bug::UndoneEndsDoubt.is_planted());
        let grant = self.release(now, slot, allocated_at, position)?;
        assert!(
            before.position < grant.previous,
            "the restored allocation is newer than the undone one"
        );
        self.slots[slot as usize].allocated_at = before.allocated_at;
        self.foreign_times.note(grant.number, before.allocated_at, before.local_at);
        let doubted = doubted.map(|pool| self.pools[pool as usize].id);
        if let Some(pool) = doubted {
            self.hold(Some(pool), now);
        }
        Some(Withdrawn { grant, before, doubted })
    }

    /// Whether the allocation in `slot` cannot be undone because its number has left its pool and
    /// come back since.
    #[must_use]
    pub fn has_left(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|known| self.recent.is_settled(known.position))
    }

    /// Ensures that no number of `pool` is handed out before `until`, even if the pool is added
    /// later. `None` stands for every pool.
    pub fn hold(&mut self, pool: Option<PoolId>, until: Millis) {
        self.held_here = self.held_here.max(until);
        let Some(id) = pool else {
            self.held_all = self.held_all.max(until);
            for held in &mut self.pools {
                held.held_until = held.held_until.max(until);
            }
            return;
        };
        let place = self.places.get(&id).and_then(|place| self.pools.get_mut(*place as usize));
        let held = match place {
            Some(known) => &mut known.held_until,
            None => self.holds_elsewhere.entry(id).or_insert(until),
        };
        *held = until.max(*held);
    }

    /// Removes holds that have ended by `now` from `holds_elsewhere` if it contains more than
    /// `holds_kept` holds. Otherwise, the holds of removed pools would fill memory. Allocations
    /// older than a removed hold may be sent to the pool's next owner, as if the pool had never
    /// been held.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn forget_holds(&mut self, now: Millis) {
        if self.holds_elsewhere.len() > self.holds_kept {
            self.holds_elsewhere.retain(|_, until| *until > now);
            // Holds that have not ended are kept, and the limit is raised to twice their count.
            self.holds_kept = HOLDS_KEPT_MIN.max(2 * self.holds_elsewhere.len());
        }
        assert!(
            self.holds_elsewhere.len() <= self.holds_kept,
            "there are more holds than the limit"
        );
    }

    /// Whether the pool of `slot` is held at `now` because part of the pool's history is uncertain.
    #[must_use]
    pub fn is_held(&self, slot: u32, now: Millis) -> bool {
        self.pool_of(slot).is_some_and(|pool| !is_over(self.pools[pool as usize].held_until, now))
    }

    /// Whether the lockout of `slot` ended before the latest hold of its pool, as defined by
    /// [`is_doubted`]. If so, another shard may have allocated the number after the lockout ended.
    #[must_use]
    pub fn is_doubted(&self, slot: u32) -> bool {
        #[cfg(canary)]
        if crate::canary::Bug::DoubtsIgnored.is_planted() {
            return false;
        }
        let held_until = self.pool_of(slot).map(|pool| self.pools[pool as usize].held_until);
        let known = self.slots.get(slot as usize).map(|slot| slot.locked_until);
        known.zip(held_until).is_some_and(|(known, held_until)| is_doubted(known, held_until))
    }

    /// The holds that end after `now`. The hold of all pools (`None`) comes first; it includes
    /// pools that are added later. The holds of single pools follow if they end later than the hold
    /// of all pools. They include holds of pools that are not in this shard.
    pub fn holds(&self, now: Millis) -> impl Iterator<Item = (Option<PoolId>, Millis)> {
        let pools = if self.held_here > now { &self.pools[..] } else { &[] };
        let here = pools.iter().map(|pool| (Some(pool.id), pool.held_until));
        let elsewhere = self.holds_elsewhere.iter().map(|(pool, until)| (Some(*pool), *until));
        let longer = here.chain(elsewhere).filter(|(_, until)| *until > self.held_all);
        core::iter::once((None, self.held_all)).chain(longer).filter(move |(_, until)| *until > now)
    }

    /// The slot of a number in rotation.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    #[must_use]
    pub fn find(&self, number: PromoNumber) -> Option<u32> {
        let slot = self.runs.find(number).map(|place| place.slot);
        let is_its = |slot: u32| self.slots[slot as usize].number == number;
        assert!(slot.is_none_or(is_its), "a number's slot contains another number");
        slot
    }

    /// A number's newest allocation, whether the number is in rotation or retired.
    #[must_use]
    pub fn newest(&self, number: PromoNumber) -> Option<Slot> {
        match self.find(number) {
            Some(slot) => Some(self.slots[slot as usize]),
            None => self.retired.get(&number).map(|retired| retired.slot),
        }
    }

    /// The time, by this node's clock, of the newest allocation of the number in `slot`.
    /// Comparisons with other times of this shard need this time, because `allocated_at` may come
    /// from another node's clock.
    ///
    /// # Panics
    /// Panics if there is no such slot.
    #[must_use]
    pub fn local_at(&self, slot: u32) -> Millis {
        self.foreign_times.local_at(&self.slots[slot as usize])
    }

    /// Like [`Self::local_at`], for numbers in rotation and retired ones.
    #[must_use]
    pub fn newest_local_at(&self, number: PromoNumber) -> Option<Millis> {
        match self.find(number) {
            Some(slot) => Some(self.local_at(slot)),
            None => self.retired.get(&number).map(|retired| retired.local_at),
        }
    }

    /// Numbers whose newest allocation was dated by another node's clock, each with the times by
    /// that clock and by this node's clock.
    pub fn foreign_times(&self) -> impl Iterator<Item = (PromoNumber, Millis, Millis)> {
        let retired = self.retired.values().filter(|r| r.local_at != r.slot.allocated_at);
        let retired = retired.map(|r| (r.slot.number, r.slot.allocated_at, r.local_at));
        self.foreign_times.iter().chain(retired)
    }

    /// Like [`Self::newest`], but faster if the number is in the slot `hint`.
    #[must_use]
    pub fn newest_hinted(&self, hint: u32, number: PromoNumber) -> Option<Slot> {
        match self.find_hinted(hint, number) {
            Some(slot) => Some(self.slots[slot as usize]),
            None => self.retired.get(&number).map(|retired| retired.slot),
        }
    }

    /// The visitor of a number that is in rotation or retired. `hint` has the same meaning as in
    /// [`Self::newest_hinted`].
    #[must_use]
    pub fn newest_visitor(&self, hint: u32, number: PromoNumber) -> Option<VisitorId> {
        match self.find_hinted(hint, number) {
            Some(slot) => self.visitor(slot),
            None => self.retired.get(&number)?.visitor,
        }
    }

    fn find_hinted(&self, hint: u32, number: PromoNumber) -> Option<u32> {
        match self.slots.get(hint as usize) {
            Some(slot) if slot.number == number => Some(hint),
            _ => self.find(number),
        }
    }

    /// The slots of a pool, as indices into the shard's slots.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn pool_slots(&self, pool: u32) -> core::ops::Range<u32> {
        self.pools[pool as usize].slot_range()
    }

    /// The index of the pool that owns `slot`.
    #[must_use]
    pub fn pool_of(&self, slot: u32) -> Option<u32> {
        let number = self.slots.get(slot as usize)?.number;
        self.runs.find(number).filter(|place| place.slot == slot).map(|place| place.pool)
    }

    /// The visitor who keeps the number in `slot`.
    #[must_use]
    pub fn visitor(&self, slot: u32) -> Option<VisitorId> {
        self.visitors.visitor(slot)
    }

    /// The retired numbers that are greater than `after`, in rising order.
    pub fn retired_after(&self, after: Option<PromoNumber>) -> impl Iterator<Item = &Retired> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.retired.range((from, Bound::Unbounded)).map(|(_, retired)| retired)
    }

    /// The known states of the numbers in `range` that are no longer in any pool.
    pub fn retired_in(&self, range: NumberRange) -> impl Iterator<Item = &Retired> {
        self.retired.range(range.first()..=range.last()).map(|(_, retired)| retired)
    }

    /// The known state of a number that is no longer in any pool.
    #[must_use]
    pub fn retired(&self, number: PromoNumber) -> Option<&Retired> {
        self.retired.get(&number)
    }

    /// The count of numbers of `pool` that are locked out at `now`.
    ///
    /// # Panics
    /// Panics if there is no such pool; see [`Self::pool_id`].
    #[must_use]
    pub fn locked(&self, pool: u32, now: Millis) -> usize {
        self.pools[pool as usize].slots(&self.slots).iter().filter(|s| !s.is_free(now)).count()
    }

    /// Records that the number's newest record was copied to `position`. Among the numbers that
    /// became free in the same millisecond, this number is then chosen last. `hint` is the slot
    /// that the number had when the record was written.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn carried(&mut self, hint: u32, number: PromoNumber, position: Position) {
        let Some(slot) = self.find_hinted(hint, number) else {
            if let Some(retired) = self.retired.get_mut(&number) {
                retired.slot.position = position;
            }
            return;
        };
        assert!(position > self.slots[slot as usize].position, "a copy precedes its original");
        self.slots[slot as usize].position = position;
        // Rings do not depend on positions. The search for the number's pool is therefore skipped
        // unless some pool has an `Order`.
        if self.has_orders
            && let Some(pool) = self.pool_of(slot)
        {
            self.pools[pool as usize].reposition(&self.slots, slot);
        }
    }
}

#[cfg(test)]
mod tests;
