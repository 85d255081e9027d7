//! Adds, changes and removes pools while their shard serves.
//!
//! If a change replaces a pool's numbers, the pool gets a new run of slots. The states of numbers
//! that stay in the pool are copied to the new slots. Numbers that leave the pool are retired, and
//! their state is kept. When a retired number enters a pool of this shard, its state is restored.
//! Invariant: between two changes, every number in rotation is in exactly one pool. Source:
//! docs/spec/allocation.md, "Changes while the shard serves".

use alloc::vec::Vec;
use core::ops::Range;

use crate::pool::Pool;
use crate::shard::{Retired, Shard};
use crate::slot::Slot;
use crate::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber, VisitorId};

/// The number of slots that [`Shard::make_room`] adds in one step, which takes about ten
/// microseconds.
const ROOM_PIECE: u32 = 1024;

/// A number that a pool cannot have because it is in rotation in another pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InRotation {
    /// The number.
    pub number: PromoNumber,
    /// The pool that has the number.
    pub pool: PoolId,
}

impl Shard {
    /// Whether the pool at this index has the id `id`. An index may be reused by another pool.
    #[inline]
    #[must_use]
    pub fn is_pool(&self, pool: u32, id: PoolId) -> bool {
        self.pools.get(pool as usize).is_some_and(|known| known.is(id))
    }

    /// Adds in advance some of the slots that the pool `spec` will need. A large pool takes
    /// megabytes, and memory is slow when it is first used. Returns `false` if no slots were added:
    /// either enough slots are vacant, or the pool is small.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn make_room(&mut self, spec: &PoolSpec) -> bool {
        let (count, end) = (count_of(spec), u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        if count <= ROOM_PIECE || self.vacant.has(count) {
            return false;
        }
        let more = ROOM_PIECE.min(count - self.vacant.before(end));
        assert!(more > 0, "there are already enough vacant slots");
        self.slots.resize(self.slots.len() + more as usize, Slot::VACANT);
        self.vacant.give(end, more);
        true
    }

    /// Sets the pool at index `pool` to `spec`. This adds a new pool, or changes an existing pool's
    /// numbers or lockout. Current lockouts still end when they would have ended without the
    /// change. Numbers that leave or enter the pool are added to `moved` if they have a history.
    ///
    /// # Errors
    /// [`InRotation`] if another pool has one of the numbers. In this case nothing has been
    /// changed.
    ///
    /// # Panics
    /// Panics if another pool is at this index, or if `spec` has more numbers than a shard can
    /// count. The directory rules out both.
    pub fn put_pool(
        &mut self,
        pool: u32,
        spec: &PoolSpec,
        mut moved: Option<&mut Vec<PromoNumber>>,
    ) -> Result<(), InRotation> {
        if let Some(number) = spec.numbers.iter().find_map(|range| self.runs.taken(*range, pool)) {
            let owner = self.runs.find(number).map_or(pool, |place| place.pool);
            return Err(InRotation { number, pool: self.pool_id(owner) });
        }
        while self.pools.len() <= pool as usize {
            self.pools.push(Pool::vacant());
        }
        let before = &mut self.pools[pool as usize];
        assert!(before.is(spec.id) || before.is_vacant(), "two pools have the same index");
        let place = self.places.insert(spec.id, pool);
        assert!(place.is_none_or(|place| place == pool), "a pool is at two indices");
        let (mut held_until, is_sticky) = (before.held_until, before.sticky);
        held_until = held_until.max(self.held_all);
        let counts = (before.allocated, before.exhausted);
        if let Some(until) = self.holds_elsewhere.remove(&spec.id) {
            held_until = held_until.max(until);
        }
        let old = self.ranges(pool);
        if old == spec.numbers && !self.pools[pool as usize].is_vacant() {
            let known = &mut self.pools[pool as usize];
            (known.lockout, known.held_until) = (spec.lockout, held_until);
            return Ok(());
        }
        let base = self.room(count_of(spec));
        let mut visitors = self.copy_states(pool, spec, base);
        self.retire(pool, &old, moved.as_deref_mut());
        self.enter(pool, spec, base, moved, &mut visitors);
        let mut put = Pool::new(spec, base, count_of(spec), &self.slots);
        put.held_until = held_until;
        (put.allocated, put.exhausted) = counts;
        put.sticky = is_sticky || !visitors.is_empty();
        self.has_orders |= put.has_order();
        self.pools[pool as usize] = put;
        assert!(self.ranges(pool) == spec.numbers, "the pool's numbers differ from its spec");
        // A visitor may have got a second number after the lockout of the first one ended. Numbers
        // are assigned in the order of their allocation, so the visitor keeps only the second.
        visitors.sort_by_key(|(slot, _)| {
            let state = &self.slots[*slot as usize];
            (self.foreign_times.local_at(state), state.position, *slot)
        });
        for (slot, visitor) in visitors {
            self.visitors.assign(pool, slot, Some(visitor));
        }
        Ok(())
    }

    /// Removes a pool from this shard. Its numbers' states and the end of its hold are kept.
    /// Numbers with a history are added to `moved`.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn remove_pool(&mut self, pool: u32, moved: Option<&mut Vec<PromoNumber>>) {
        let old = self.ranges(pool);
        self.retire(pool, &old, moved);
        let known = self.pools.get_mut(pool as usize).filter(|known| !known.is_vacant());
        let Some(removed) = known else { return };
        let (id, held_until) = (removed.id, removed.held_until);
        *removed = Pool::vacant();
        self.kept.forget(pool);
        assert!(self.places.remove(&id) == Some(pool), "the pool is recorded at another index");
        if held_until > Millis::ZERO {
            self.hold(Some(id), held_until);
        }
    }

    /// Merges another shard's state of a number into this shard's state. Keeps the allocation that
    /// is later by this node's clock, and the later end of the two lockouts. If both shards have
    /// the same allocation but only this shard has recorded the visitor, the visitor is kept.
    /// Returns the merged state, or `None` if nothing changed.
    ///
    /// # Panics
    /// Panics only if an invariant of the shard is broken.
    pub fn adopt(&mut self, now: Millis, from: &Retired) -> Option<Retired> {
        let number = from.slot.number;
        let slot = self.newest(number).unwrap_or(Slot::new(number));
        let before = self.newest_local_at(number).unwrap_or_default();
        let is_same = from.slot.allocated_at == slot.allocated_at;
        // Zero: the other shard undid an allocation that no visitor saw, and has no earlier
        // allocation of the number. Only the end of the lockout is then merged.
        let is_none = from.slot.allocated_at == Millis::ZERO;
        #[cfg(canary)]
        let is_none = is_none && !crate::canary::Bug::UndoneReplaces.is_planted();
        let is_older = !is_same && (is_none || from.local_at < before);
        let is_longer = from.slot.locked_until > slot.locked_until;
        if !is_longer && (is_same || is_older) {
            return None;
        }
        let locked_until = from.slot.locked_until.max(slot.locked_until);
        let mut merged = Retired { slot: Slot { locked_until, ..from.slot }, ..*from };
        if is_older {
            merged.slot.allocated_at = slot.allocated_at;
        }
        merged.local_at = if is_same {
            before
        } else {
            // The merged allocation must precede this shard's later events in the same millisecond.
            from.local_at.min(now - Millis(1)).max(before)
        };
        assert!(merged.slot.locked_until >= slot.locked_until, "a lockout was shortened");
        assert!(merged.local_at >= before, "an older allocation replaced a newer one");
        assert!(merged.slot.position >= slot.position, "an older record replaced a newer one");
        let keeps_visitor = is_older || (is_same && from.visitor.is_none());
        let Some(place) = self.runs.find(number) else {
            if let Some(own) = self.retired.get(&number).filter(|_| keeps_visitor) {
                (merged.pool, merged.visitor) = (own.pool, own.visitor);
            }
            self.retired.insert(number, merged);
            return Some(merged);
        };
        let known = core::mem::replace(&mut self.slots[place.slot as usize], merged.slot);
        assert!(known.number == number, "a number's slot contains another number");
        self.foreign_times.note(number, merged.slot.allocated_at, merged.local_at);
        let owner = &mut self.pools[place.pool as usize];
        if keeps_visitor {
            (merged.pool, merged.visitor) = (owner.id, self.visitors.visitor(place.slot));
        }
        // If the visitor of the other shard's allocation has since got another number from this
        // shard, the visitor keeps only that newer number.
        let is_newest = |visitor: &VisitorId| {
            let other = self.visitors.slot(place.pool, *visitor);
            let at = |slot: u32| self.foreign_times.local_at(&self.slots[slot as usize]);
            other.is_none_or(|slot| at(slot) <= merged.local_at)
        };
        let visitor = merged.visitor.filter(|_| owner.id == merged.pool).filter(is_newest);
        owner.sticky |= visitor.is_some();
        owner.changed(&self.slots, place.slot);
        self.has_orders = true;
        self.visitors.assign(place.pool, place.slot, visitor);
        Some(merged)
    }

    /// Returns the pool's numbers as ranges, in the order of their slots.
    fn ranges(&self, pool: u32) -> Vec<NumberRange> {
        let Some(owner) = self.pools.get(pool as usize) else { return Vec::new() };
        let mut ranges = Vec::new();
        let Range { start: mut next, end } = owner.slot_range();
        while next < end
            && let Some(range) = self.runs.beginning(self.slots[next as usize].number)
        {
            ranges.push(range);
            next += range.count();
        }
        assert!(next == end, "a slot of the pool is in no run");
        ranges
    }

    /// Returns the first of `count` consecutive vacant slots.
    fn room(&mut self, count: u32) -> u32 {
        if let Some(base) = self.vacant.take(count) {
            // Checks only the two ends, because reading the slots of a large pool would take
            // milliseconds.
            let room = &self.slots[base as usize..(base + count) as usize];
            let ends = [room.first(), room.last()].into_iter().flatten();
            assert!({ ends }.all(|slot| *slot == Slot::VACANT), "a vacant slot has a number");
            return base;
        }
        let base = u32::try_from(self.slots.len()).ok();
        let end = base.and_then(|base| base.checked_add(count));
        assert!(end.is_some(), "more numbers than a shard can count");
        self.slots.resize(self.slots.len() + count as usize, Slot::VACANT);
        base.unwrap_or_default()
    }

    /// Fills the slots from `base` onward with the numbers of `spec`. Numbers that the pool already
    /// had keep their states, which are moved from their old slots. The old slots become vacant.
    /// Returns the visitors who keep their numbers, each with the new slot of the number.
    fn copy_states(&mut self, pool: u32, spec: &PoolSpec, base: u32) -> Vec<(u32, VisitorId)> {
        let is_sticky = self.pools[pool as usize].sticky;
        let mut visitors = Vec::new();
        let mut next = base;
        for range in &spec.numbers {
            for (slot, number) in self.slots[next as usize..].iter_mut().zip(range.iter()) {
                *slot = Slot::new(number);
            }
            for (shared, from) in self.runs.overlaps(*range) {
                let to = next + offset(*range, shared.first());
                for i in 0..shared.count() {
                    let old = &mut self.slots[(from + i) as usize];
                    let state = core::mem::replace(old, Slot::VACANT);
                    let new = core::mem::replace(&mut self.slots[(to + i) as usize], state);
                    assert!(new.number == state.number, "a number received another number's state");
                    if is_sticky && let Some(visitor) = self.visitors.visitor(from + i) {
                        visitors.push((to + i, visitor));
                    }
                }
            }
            next += range.count();
        }
        assert!(next == base + count_of(spec), "the pool's numbers do not fill its slots exactly");
        visitors
    }

    /// Ensures that the newest allocation of a number that leaves its pool cannot be undone.
    fn settle(&mut self, state: &Slot) {
        #[cfg(canary)]
        if crate::canary::Bug::LeftUndone.is_planted() {
            return;
        }
        self.recent.settle(state.position);
    }

    /// Takes the pool's numbers (`old`) out of rotation and vacates the pool's slots.
    fn retire(&mut self, pool: u32, old: &[NumberRange], mut moved: Option<&mut Vec<PromoNumber>>) {
        let Some(owner) = self.pools.get(pool as usize) else { return };
        let (id, range, is_sticky) = (owner.id, owner.slot_range(), owner.sticky);
        for run in old {
            self.runs.remove(run.first());
        }
        for slot in range.clone() {
            let slot_state = &mut self.slots[slot as usize];
            let state = core::mem::replace(slot_state, Slot::VACANT);
            let visitor = if is_sticky { self.visitors.visitor(slot) } else { None };
            if is_sticky {
                self.visitors.assign(pool, slot, None);
            }
            if state.has_history() {
                self.settle(&state);
                let local_at = self.foreign_times.local_at(&state);
                self.foreign_times.forget(state.number);
                let retired = Retired { slot: state, local_at, pool: id, visitor };
                let known = self.retired.insert(state.number, retired);
                assert!(known.is_none(), "a number was both in rotation and retired");
                note(&mut moved, state.number);
            }
        }
        if !range.is_empty() {
            self.vacant.give(range.start, range.end - range.start);
        }
    }

    /// Puts the numbers of `spec`, whose slots begin at `base`, into rotation. The kept states of
    /// retired numbers are restored. A number's visitor is restored too if this is the pool that
    /// the number was last in.
    fn enter(
        &mut self,
        pool: u32,
        spec: &PoolSpec,
        base: u32,
        mut moved: Option<&mut Vec<PromoNumber>>,
        visitors: &mut Vec<(u32, VisitorId)>,
    ) {
        let mut next = base;
        for range in &spec.numbers {
            self.runs.insert(*range, next, pool);
            let known = self.retired.range(range.first()..=range.last());
            let back: Vec<PromoNumber> = known.map(|(number, _)| *number).collect();
            for number in back {
                let Some(retired) = self.retired.remove(&number) else { continue };
                let slot = next + offset(*range, number);
                let known = core::mem::replace(&mut self.slots[slot as usize], retired.slot);
                assert!(known == Slot::new(number), "a number was both in rotation and retired");
                self.foreign_times.note(number, retired.slot.allocated_at, retired.local_at);
                note(&mut moved, number);
                if let Some(visitor) = retired.visitor.filter(|_| retired.pool == spec.id) {
                    visitors.push((slot, visitor));
                }
            }
            next += range.count();
        }
    }
}

fn note(moved: &mut Option<&mut Vec<PromoNumber>>, number: PromoNumber) {
    if let Some(moved) = moved {
        moved.push(number);
    }
}

/// Returns the place of `number` in `range`. The range must contain the number.
fn offset(range: NumberRange, number: PromoNumber) -> u32 {
    assert!(range.contains(number), "the number is outside the range");
    u32::try_from(number.to_e164() - range.first().to_e164()).unwrap_or_default()
}

/// Returns the count of numbers in a pool.
///
/// # Panics
/// Panics if there are more numbers than a shard can count.
pub(crate) fn count_of(spec: &PoolSpec) -> u32 {
    let count: u64 = spec.numbers.iter().map(|range| u64::from(range.count())).sum();
    let count = u32::try_from(count).ok();
    assert!(count.is_some(), "more numbers than a shard can count");
    count.unwrap_or_default()
}

#[cfg(test)]
mod tests;
