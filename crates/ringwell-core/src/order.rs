//! The order in which a pool's numbers are chosen after a keep-alive, a release or a lifetime
//! change. The numbers then no longer become free in allocation order.
//!
//! An indexed binary heap over the pool's slots, whose root is the number that has been free
//! longest. Owns only the positions in the heap; the sort keys stay in the slots. Invariant:
//! `place[heap[i]] == i`, and no child is chosen before its parent. Memory: 8 bytes per number,
//! allocated once.

use alloc::vec::Vec;

use crate::slot::Slot;

#[derive(Debug)]
pub(crate) struct Order {
    heap: Vec<u32>,
    place: Vec<u32>,
}

impl Order {
    /// Orders `slots`, which are all slots of one pool.
    pub(crate) fn new(slots: &[Slot]) -> Self {
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let mut heap: Vec<u32> = (0..count).collect();
        // A sorted array is a valid heap. If the pool was a ring until now (see `pool.rs`), its
        // slots consist of two or three sorted sequences, which the sort only has to merge.
        heap.sort_by_key(|&i| (slots[i as usize].turn(), i));
        assert!(heap.len() == slots.len(), "an order lacks some of its numbers");
        let mut place = alloc::vec![0; heap.len()];
        for (at, &slot) in (0..count).zip(&heap) {
            place[slot as usize] = at;
        }
        Self { heap, place }
    }

    /// Returns the slot of the number to hand out next.
    pub(crate) fn first(&self) -> u32 {
        self.heap[0]
    }

    /// Restores the order after the sort key of `slot` changed.
    pub(crate) fn changed(&mut self, slots: &[Slot], slot: u32) {
        let at = self.place[slot as usize] as usize;
        assert!(self.heap[at] == slot, "a number is not at its recorded place in the order");
        assert!(self.heap.len() == slots.len(), "the order belongs to another pool");
        let at = self.rise(slots, at);
        assert!(self.heap[at] == slot, "the wrong number moved up in the order");
        self.sink(slots, at);
    }

    fn comes_before(&self, slots: &[Slot], a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        (slots[a as usize].turn(), a) < (slots[b as usize].turn(), b)
    }

    fn rise(&mut self, slots: &[Slot], mut at: usize) -> usize {
        while at > 0 && self.comes_before(slots, at, (at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, slots: &[Slot], mut at: usize) {
        let is_below = at == 0 || !self.comes_before(slots, at, (at - 1) / 2);
        assert!(is_below, "a child in the heap comes before its parent");
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let right_first = right < self.heap.len() && self.comes_before(slots, right, left);
            let child = if right_first { right } else { left };
            if !self.comes_before(slots, child, at) {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        let [a_slot, b_slot] = [a, b].map(|at| self.heap[at] as usize);
        self.place.swap(a_slot, b_slot);
        assert!(self.place[a_slot] as usize == a, "the list of places does not match the order");
    }
}

#[cfg(test)]
mod tests;
