//! Maps the visitors who keep numbers to those numbers.
//!
//! Independent of time: callers check in a number's slot whether its lockout has ended. Invariant:
//! the maps `slots` and `visitors` are inverses of each other, so a number has at most one visitor.

use alloc::collections::BTreeMap;

use crate::VisitorId;

#[derive(Debug, Default)]
pub(crate) struct Visitors {
    slots: BTreeMap<(u32, VisitorId), u32>,
    visitors: BTreeMap<u32, (u32, VisitorId)>,
}

impl Visitors {
    /// Returns the slot of the number that `visitor` got last in `pool`.
    pub(crate) fn slot(&self, pool: u32, visitor: VisitorId) -> Option<u32> {
        self.slots.get(&(pool, visitor)).copied()
    }

    /// Returns the visitor who keeps the number in `slot`.
    pub(crate) fn visitor(&self, slot: u32) -> Option<VisitorId> {
        self.visitors.get(&slot).map(|&(_, visitor)| visitor)
    }

    /// Records that the number in `slot` of `pool` was handed out to `visitor`. `None` stands for a
    /// visitor who does not keep the number.
    pub(crate) fn assign(&mut self, pool: u32, slot: u32, visitor: Option<VisitorId>) {
        if let Some(old) = self.visitors.remove(&slot) {
            let back = self.slots.remove(&old);
            assert!(back == Some(slot), "the maps disagree about a visitor's number");
        }
        let Some(visitor) = visitor else { return };
        if let Some(before) = self.slots.insert((pool, visitor), slot) {
            let back = self.visitors.remove(&before);
            assert!(back == Some((pool, visitor)), "the maps disagree about a number's visitor");
        }
        let other = self.visitors.insert(slot, (pool, visitor));
        assert!(other.is_none(), "a number has two visitors");
        assert!(self.visitors.len() == self.slots.len(), "the two maps have different lengths");
    }
}

#[cfg(test)]
mod tests;
