//! Compares the heap with a linear search.

use proptest::prelude::*;

use super::Order;
use crate::slot::Slot;
use crate::{Millis, Position, PromoNumber};

fn slots(untils: &[u8]) -> Vec<Slot> {
    let slot = |(at, until): (u64, &u8)| {
        let mut slot = Slot::new(PromoNumber::from_e164(18_885_550_000 + at).unwrap());
        slot.locked_until = Millis(u64::from(*until));
        slot
    };
    (0..).zip(untils).map(slot).collect()
}

/// Returns the place of the number to choose: the one whose lockout ends first. Ties are broken by
/// the earlier record, then by the lower place.
fn first(slots: &[Slot]) -> u32 {
    let turn = |at: &u32| (slots[*at as usize].locked_until, slots[*at as usize].position, *at);
    (0..).take(slots.len()).min_by_key(turn).unwrap()
}

proptest! {
    #[test]
    fn the_first_is_always_the_one_that_is_next_in_order(
        untils in proptest::collection::vec(any::<u8>(), 1..70),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..200)
    ) {
        let mut slots = slots(&untils);
        let mut order = Order::new(&slots);
        prop_assert_eq!(order.first(), first(&slots));
        for (at, (slot, until)) in (1..).zip(changes) {
            let place = slot.index(slots.len());
            slots[place].locked_until = Millis(u64::from(until));
            slots[place].position = Position(at);
            order.changed(&slots, u32::try_from(place).unwrap());
            prop_assert_eq!(order.first(), first(&slots));
            // If no child comes before its parent, the whole heap is in a valid order, not only its
            // root.
            for child in 1..slots.len() {
                prop_assert!(!order.comes_before(&slots, child, (child - 1) >> 1));
            }
        }
    }
}
