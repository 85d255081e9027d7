//! When allocations were that another clock has told.
//!
//! A number that comes with its pool from another node keeps the time that its allocation has
//! there: that time and the number name the allocation in both journals. But clocks of nodes
//! differ, and what a row was answered, or who had the number here before, was noted by this
//! node's clock. So each such allocation also has a time by this clock, for comparisons. Only
//! those are kept here for which the two differ.
//! Invariant: of two allocations of a number, the later one has the later time by this clock.
//! Source: docs/spec/cluster.md, "Moving buckets".

use alloc::collections::BTreeMap;

use crate::{Millis, PromoNumber, Slot};

/// By number: when its allocation was by the other clock, and by this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(BTreeMap<PromoNumber, (Millis, Millis)>);

/// The time by this clock of an allocation that was told `now` to have been at `allocated_at`.
/// `known` is the number's allocation as it was known before: by the clock that told it, and by
/// this one. Where `allocated_at` lies between that and now, it does as it is.
pub(crate) fn local_at(
    known: Option<(Millis, Millis)>,
    allocated_at: Millis,
    now: Millis,
) -> Millis {
    let (same, before) = known.unwrap_or_default();
    if same == allocated_at {
        before
    } else if before < allocated_at && allocated_at < now {
        allocated_at
    } else {
        // What happens here in this very millisecond comes after it.
        before.max(now - Millis(1))
    }
}

impl Told {
    /// The allocation of `number` that another clock has at `allocated_at` was `local_at` by this one.
    pub(crate) fn note(&mut self, number: PromoNumber, allocated_at: Millis, local_at: Millis) {
        if allocated_at == local_at {
            self.forget(number);
        } else {
            self.0.insert(number, (allocated_at, local_at));
        }
    }

    /// By this clock, when the allocation of `slot` was.
    pub(crate) fn local_at(&self, slot: &Slot) -> Millis {
        match self.0.get(&slot.number) {
            Some((allocated_at, local_at)) if *allocated_at == slot.allocated_at => *local_at,
            _ => slot.allocated_at,
        }
    }

    /// The number was handed out here, or left.
    #[inline]
    pub(crate) fn forget(&mut self, number: PromoNumber) {
        if !self.0.is_empty() {
            self.0.remove(&number);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PromoNumber, Millis, Millis)> {
        self.0.iter().map(|(number, (allocated_at, local_at))| (*number, *allocated_at, *local_at))
    }
}

#[cfg(test)]
#[test]
fn what_another_clock_tells_lies_between_what_was_known_and_now() {
    let of = |known: Option<(u64, u64)>, at| {
        local_at(
            known.map(|(same, local_at)| (Millis(same), Millis(local_at))),
            Millis(at),
            Millis(1000),
        )
        .0
    };
    assert_eq!(of(None, 900), 900, "the clocks agree");
    assert_eq!(of(None, 5000), 999, "the other clock is ahead");
    assert_eq!(of(Some((800, 800)), 900), 900);
    assert_eq!(of(Some((800, 800)), 700), 999, "it is behind what went out here before");
    assert_eq!(of(Some((5000, 800)), 900), 900, "what was told before does not count");
    assert_eq!(of(Some((5000, 800)), 5000), 800, "it is told again");
}
