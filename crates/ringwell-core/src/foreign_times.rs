//! Times of allocations by another node's clock and by this node's.
//!
//! A number that comes with its pool from another node keeps the time of its allocation there,
//! because that time and the number identify the allocation in both journals. But the clocks of
//! nodes differ. The answer to a row, and the number's previous holder, were recorded by this
//! node's clock. Each such allocation therefore also has a time by this clock, used for
//! comparisons. Only allocations for which the two times differ are kept here. Invariant: of two
//! allocations of a number, the later one has the later time by this clock. Source:
//! docs/spec/cluster.md, "Moving buckets".

use alloc::collections::BTreeMap;

use crate::{Millis, PromoNumber, Slot};

/// For each number, the time of its allocation by the other clock and by this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignTimes(BTreeMap<PromoNumber, (Millis, Millis)>);

impl ForeignTimes {
    /// Records that the allocation of `number`, dated `allocated_at` by another clock, was made at
    /// `local_at` by this one.
    pub(crate) fn note(&mut self, number: PromoNumber, allocated_at: Millis, local_at: Millis) {
        if allocated_at == local_at {
            self.forget(number);
        } else {
            self.0.insert(number, (allocated_at, local_at));
        }
    }

    /// Returns the time of the allocation of `slot` by this clock.
    pub(crate) fn local_at(&self, slot: &Slot) -> Millis {
        match self.0.get(&slot.number) {
            Some((allocated_at, local_at)) if *allocated_at == slot.allocated_at => *local_at,
            _ => slot.allocated_at,
        }
    }

    /// Forgets the times of a number that was handed out here or has left. Returns the time of its
    /// allocation by this clock, if another clock has dated it.
    #[inline]
    pub(crate) fn forget(&mut self, number: PromoNumber) -> Option<Millis> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&number).map(|(_, local_at)| local_at)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PromoNumber, Millis, Millis)> {
        self.0.iter().map(|(number, (allocated_at, local_at))| (*number, *allocated_at, *local_at))
    }
}

#[cfg(test)]
mod tests;
