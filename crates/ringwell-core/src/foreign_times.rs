//! Allocation times, both by another node's clock and by this node's.
//!
//! If a pool moves here from another node, its numbers keep the allocation times that the other
//! node recorded. In the journals of both nodes, a number and this allocation time identify an
//! allocation. However, the two nodes' clocks differ, and this node records its own answers and
//! allocations by its own clock. Each allocation made by another node therefore also has a time by
//! this node's clock, so that all these times are comparable. Only allocations whose two times
//! differ are kept here. Invariant: the later of two allocations of a number also has the later
//! time by this node's clock. Source: docs/spec/cluster.md, "Moving buckets".

use alloc::collections::BTreeMap;

use crate::{Millis, PromoNumber, Slot};

/// The two allocation times of each number: by the other node's clock, and by this node's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignTimes(BTreeMap<PromoNumber, (Millis, Millis)>);

impl ForeignTimes {
    /// Records both allocation times of `number`: `allocated_at` by another node's clock, and
    /// `local_at` by this node's clock.
    pub(crate) fn note(&mut self, number: PromoNumber, allocated_at: Millis, local_at: Millis) {
        if allocated_at == local_at {
            self.forget(number);
        } else {
            self.0.insert(number, (allocated_at, local_at));
        }
    }

    /// Returns the time, by this node's clock, of the allocation in `slot`.
    pub(crate) fn local_at(&self, slot: &Slot) -> Millis {
        match self.0.get(&slot.number) {
            Some((allocated_at, local_at)) if *allocated_at == slot.allocated_at => *local_at,
            _ => slot.allocated_at,
        }
    }

    /// Forgets both times of a number that was handed out here or has left this shard. Returns the
    /// time by this node's clock if the times were recorded.
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
