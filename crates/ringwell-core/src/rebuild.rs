//! Rebuilds a shard's state from a snapshot and records, before the shard serves requests.
//!
//! Every fact carries the position of its record. A fact is applied to a number only if it is newer
//! than the number's state. A snapshot may therefore be taken while the shard continues to serve,
//! and replaying a record twice changes nothing. Facts about numbers that are in no pool are kept
//! in the list of retired numbers. Source: docs/spec/allocation.md, "Recovery".

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::counts::Kept;
use crate::foreign_times::ForeignTimes;
use crate::pool::{Pool, PoolSpec};
use crate::recent::Recent;
use crate::resize::count_of;
use crate::runs::Runs;
use crate::shard::{HOLDS_KEPT_MIN, Retired, Shard};
use crate::slot::Slot;
use crate::vacant::Vacant;
use crate::visitors::Visitors;
use crate::{Millis, PoolId, Position, PromoNumber, VisitorId};

/// The count of spare slots. They are reserved in addition to twice the slots in use, so that the
/// list of slots can grow without being copied. Copying about 100,000 slots takes a millisecond.
/// Slots that were never written take no memory.
const SLOTS_SPARE: usize = 1 << 21;

/// The count of spare pools, which are reserved for the same reason as the spare slots.
const POOLS_SPARE: usize = 1 << 18;

/// Collects the facts that [`Rebuild::finish`] needs to create the shard.
#[derive(Debug)]
pub struct Rebuild {
    specs: Vec<PoolSpec>,
    slots: Vec<Slot>,
    runs: Runs,
    visitors: BTreeMap<u32, VisitorId>,
    retired: BTreeMap<PromoNumber, Retired>,
    foreign_times: ForeignTimes,
    recent: Recent,
    holds: BTreeMap<Option<PoolId>, Millis>,
}

/// The newest allocation of a number, as a record or a snapshot describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The number's state.
    pub slot: Slot,
    /// The pool from which the number was handed out.
    pub pool: PoolId,
    /// The visitor who keeps the number.
    pub visitor: Option<VisitorId>,
}

impl Rebuild {
    /// Starts from the directory: every number is free, and no number has ever been handed out.
    ///
    /// # Panics
    /// Panics if there are more than `u32::MAX` numbers, or if a number is in two pools. The
    /// directory rules out both.
    #[must_use]
    pub fn new(specs: Vec<PoolSpec>) -> Self {
        let count: usize = specs.iter().map(|spec| count_of(spec) as usize).sum();
        assert!(u32::try_from(count).is_ok(), "more numbers than a shard can count");
        let mut slots = with_room(count, SLOTS_SPARE);
        let mut runs = Runs::default();
        for (pool, spec) in (0..).zip(&specs) {
            for range in &spec.numbers {
                runs.insert(*range, u32::try_from(slots.len()).unwrap_or(u32::MAX), pool);
                slots.extend(range.iter().map(Slot::new));
            }
        }
        assert!(slots.len() == count, "the count of slots differs from the count of numbers");
        Self {
            specs,
            slots,
            runs,
            visitors: BTreeMap::new(),
            retired: BTreeMap::new(),
            foreign_times: ForeignTimes::default(),
            recent: Recent::default(),
            holds: BTreeMap::new(),
        }
    }

    /// Like [`Self::learn`], for an allocation that this shard itself has recorded.
    pub fn allocated(&mut self, hint: u32, fact: Fact) {
        let position = fact.slot.position;
        let known = self.find(hint, fact.slot.number).map(|slot| self.slots[slot as usize]);
        if let Some(known) = known.filter(|known| position > known.position) {
            self.recent.push(position, fact.slot.allocated_at, &known);
            let local_at = self.foreign_times.local_at(&known);
            if local_at != known.allocated_at {
                self.recent.foreign_time(position, local_at);
            }
        }
        self.learn(hint, fact);
    }

    /// Applies a fact if it is newer than the number's known state.
    pub fn learn(&mut self, hint: u32, fact: Fact) {
        self.learn_at(hint, fact, fact.slot.allocated_at);
    }

    /// Like [`Self::learn`], for an allocation that was received from another shard and was made at
    /// `local_at` by this node's clock.
    pub fn learn_foreign(&mut self, fact: Fact, local_at: Millis) {
        self.learn_at(u32::MAX, fact, local_at);
    }

    fn learn_at(&mut self, hint: u32, fact: Fact, local_at: Millis) {
        let number = fact.slot.number;
        if let Some(slot) = self.find(hint, number) {
            if fact.slot.position > self.slots[slot as usize].position {
                self.set(slot, fact, local_at);
            }
        } else {
            let newer = |known: &Retired| fact.slot.position > known.slot.position;
            if self.retired.get(&number).is_none_or(newer) {
                let Fact { slot, pool, visitor } = fact;
                self.retired.insert(number, Retired { slot, local_at, pool, visitor });
            }
        }
    }

    /// Restores the two times of an allocation from a snapshot: `allocated_at` by another node's
    /// clock, and `local_at` by this node's clock. The snapshot's numbers must have been restored
    /// already.
    pub fn restore_foreign(&mut self, number: PromoNumber, allocated_at: Millis, local_at: Millis) {
        match self.retired.get_mut(&number) {
            Some(retired) if retired.slot.allocated_at == allocated_at => {
                retired.local_at = local_at;
            }
            Some(_) => {}
            None => self.foreign_times.note(number, allocated_at, local_at),
        }
    }

    /// Applies a fact from a snapshot. Snapshots are read before any record. A fact without a
    /// position describes a state that was adopted from another shard. Returns the number's slot if
    /// the number is in rotation.
    pub fn restore(&mut self, hint: u32, fact: Fact) -> Option<u32> {
        let slot = self.find(hint, fact.slot.number);
        match slot {
            Some(slot) => self.set(slot, fact, fact.slot.allocated_at),
            None => self.learn(hint, fact),
        }
        slot
    }

    /// Changes the lockout of a number's newest allocation so that it ends at `until`. If the
    /// lockout ended early (`is_release`), the visitor no longer has the number. An `until` before
    /// the known end does not prove a release. The known lockout may have been lengthened beyond
    /// `until` at a startup, because the time was uncertain.
    ///
    /// The shard may have adopted the number at a startup, without a record of the allocation, and
    /// may have lost the snapshot that contained it. The lockout is kept nevertheless, for the
    /// number's next owner.
    pub fn relock(
        &mut self,
        hint: u32,
        number: PromoNumber,
        until: Millis,
        is_release: bool,
        position: Position,
    ) {
        if let Some(slot) = self.find(hint, number) {
            let known = &mut self.slots[slot as usize];
            if position > known.position {
                known.locked_until = until;
                known.position = position;
                if is_release {
                    self.visitors.remove(&slot);
                }
            }
        } else {
            let unknown = Retired::without_allocation(number, Millis::ZERO);
            let known = self.retired.entry(number).or_insert(unknown);
            if position > known.slot.position {
                known.slot.locked_until = until;
                known.slot.position = position;
                known.visitor = known.visitor.filter(|_| !is_release);
            }
        }
    }

    /// Undoes a number's newest allocation, which no visitor has seen. The number's lockout then
    /// ends at `until`. The previous allocation becomes the newest again: it was made at
    /// `allocated_at`, which is `local_at` by this node's clock. Both times are zero if there was
    /// no earlier allocation.
    pub fn withdraw(
        &mut self,
        hint: u32,
        number: PromoNumber,
        (allocated_at, local_at): (Millis, Millis),
        until: Millis,
        position: Position,
    ) {
        if let Some(slot) = self.find(hint, number) {
            let known = &mut self.slots[slot as usize];
            if position > known.position {
                *known = Slot { number, allocated_at, locked_until: until, position };
                self.foreign_times.note(number, allocated_at, local_at);
                self.visitors.remove(&slot);
            }
        } else if let Some(known) = self.retired.get_mut(&number)
            && position > known.slot.position
        {
            known.slot = Slot { number, allocated_at, locked_until: until, position };
            (known.local_at, known.visitor) = (local_at, None);
        }
    }

    /// Ensures that no number of `pool` is handed out before `until`. `None` stands for every pool.
    pub fn hold(&mut self, pool: Option<PoolId>, until: Millis) {
        let held = self.holds.entry(pool).or_insert(until);
        *held = until.max(*held);
    }

    /// The held pools, each with the end of its hold.
    pub fn holds(&self) -> impl Iterator<Item = (Option<PoolId>, Millis)> {
        self.holds.iter().map(|(pool, until)| (*pool, *until))
    }

    /// Adopts another shard's state of a number that is in rotation here. The number was in a pool
    /// of that shard before the directory or the count of shards changed. Keeps whichever
    /// allocation is newer by this node's clock, and the later end of the lockout. The adopted
    /// allocation's record stays in the other shard's journal. The number therefore keeps the
    /// position of its last record in this shard's journal, if there is one.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn adopt(&mut self, from: &Retired) {
        let Some(index) = self.find(u32::MAX, from.slot.number) else { return };
        let known = self.slots[index as usize];
        let before = self.foreign_times.local_at(&known);
        let is_longer = from.slot.locked_until > known.locked_until;
        let locked_until = from.slot.locked_until.max(known.locked_until);
        // Two shards may have received the same allocation at different times. The shard whose
        // lockout ends later had the number last.
        let is_same = from.slot.allocated_at == known.allocated_at;
        if is_same && is_longer || !is_same && from.local_at > before {
            let slot = Slot { locked_until, position: known.position, ..from.slot };
            let own = self.visitors.get(&index).copied().filter(|_| is_same);
            let fact = Fact { slot, pool: from.pool, visitor: from.visitor.or(own) };
            self.set(index, fact, from.local_at.max(before));
        } else {
            self.slots[index as usize].locked_until = locked_until;
        }
        let ends = self.slots[index as usize].locked_until;
        assert!(ends >= known.locked_until, "a lockout was shortened");
    }

    /// The numbers that have a history but are in no pool, in ascending order.
    pub fn retired(&self) -> impl Iterator<Item = &Retired> {
        self.retired.values()
    }

    /// Lengthens by `by` every lockout and hold that had not ended at `then`. Since `then`, the
    /// clock may have gained at most `by` on true time.
    pub fn lengthen(&mut self, then: Millis, by: Millis) {
        for until in self.holds.values_mut().filter(|until| **until > then) {
            *until = *until + by;
        }
        let retired = self.retired.values_mut().map(|retired| &mut retired.slot);
        for slot in self.slots.iter_mut().chain(retired).filter(|slot| !slot.is_free(then)) {
            slot.locked_until = slot.locked_until + by;
        }
    }

    /// Returns the shard, ready to serve.
    ///
    /// # Panics
    /// Never panics, because [`Rebuild::new`] created one slot for each number in `specs`.
    #[must_use]
    pub fn finish(self) -> Shard {
        let Self { specs, slots, runs, visitors, retired, foreign_times, recent, holds } = self;
        let mut shard = Shard {
            slots,
            pools: with_room(specs.len(), POOLS_SPARE),
            places: (0..).zip(&specs).map(|(place, spec)| (spec.id, place)).collect(),
            runs,
            vacant: Vacant::default(),
            visitors: Visitors::default(),
            retired,
            foreign_times,
            held_here: Millis::ZERO,
            recent,
            held_all: Millis::ZERO,
            holds_elsewhere: BTreeMap::new(),
            holds_kept: HOLDS_KEPT_MIN,
            has_orders: false,
            kept: Kept::default(),
        };
        let mut base = 0;
        for spec in &specs {
            let count = count_of(spec);
            shard.pools.push(Pool::new(spec, base, count, &shard.slots));
            base += count;
        }
        assert!(base as usize == shard.slots.len(), "a slot is in no pool");
        assert!(shard.places.len() == shard.pools.len(), "a pool is at two indices");
        shard.has_orders = shard.pools.iter().any(Pool::has_order);
        // A visitor may have got another number after the earlier number's lockout ended. In that
        // case, the visitor keeps only the later number.
        let mut visitors: Vec<(u32, VisitorId)> = visitors.into_iter().collect();
        visitors.sort_by_key(|&(slot, _)| {
            let slot = &shard.slots[slot as usize];
            (shard.foreign_times.local_at(slot), slot.position)
        });
        for (slot, visitor) in visitors {
            if let Some(pool) = shard.pool_of(slot) {
                shard.pools[pool as usize].sticky = true;
                shard.visitors.assign(pool, slot, Some(visitor));
            }
        }
        for (pool, until) in holds {
            shard.hold(pool, until);
        }
        shard
    }

    fn set(&mut self, slot: u32, fact: Fact, local_at: Millis) {
        assert!(
            self.slots[slot as usize].number == fact.slot.number,
            "the fact belongs to another number"
        );
        self.slots[slot as usize] = fact.slot;
        self.foreign_times.note(fact.slot.number, fact.slot.allocated_at, local_at);
        // A visitor belongs to one pool. In another pool, the same visitor id may belong to another
        // visitor.
        match fact.visitor.filter(|_| self.pool_at(slot) == Some(fact.pool)) {
            Some(visitor) => self.visitors.insert(slot, visitor),
            None => self.visitors.remove(&slot),
        };
    }

    /// The pool that `slot` is in now.
    fn pool_at(&self, slot: u32) -> Option<PoolId> {
        let place = self.runs.find(self.slots[slot as usize].number)?;
        self.specs.get(place.pool as usize).map(|spec| spec.id)
    }

    /// Returns the slot of `number`. `hint` is the slot that the number had when its record was
    /// written.
    fn find(&self, hint: u32, number: PromoNumber) -> Option<u32> {
        if self.slots.get(hint as usize).is_some_and(|slot| slot.number == number) {
            return Some(hint);
        }
        let slot = self.runs.find(number).map(|place| place.slot);
        let is_its = |slot: u32| self.slots[slot as usize].number == number;
        assert!(slot.is_none_or(is_its), "a number's slot contains another number");
        slot
    }
}

/// Returns an empty list with capacity for twice `count` plus `spare` items. If the system does not
/// provide that much memory, the capacity is only `count` items.
fn with_room<T>(count: usize, spare: usize) -> Vec<T> {
    let mut list = Vec::new();
    if list.try_reserve_exact(2 * count + spare).is_err() {
        list.reserve_exact(count);
    }
    assert!(list.capacity() >= count, "the list's capacity is too small");
    list
}

#[cfg(test)]
mod tests;
