//! Compares the visitor map with a plain list of slots and their visitors.

use proptest::prelude::*;

use super::Visitors;
use crate::VisitorId;

const SLOTS: u32 = 6;

proptest! {
    #[test]
    fn a_visitor_has_the_last_number_and_a_number_its_last_visitor(
        steps in proptest::collection::vec((0..SLOTS, proptest::option::of(0..4_u8)), 0..40)
    ) {
        // Two pools, each with half of the slots. Visitors of the two pools may have the same
        // names.
        let pool = |slot: u32| slot % 2;
        let mut visitors = Visitors::default();
        let mut model: Vec<(u32, VisitorId)> = Vec::new();
        for (slot, visitor) in steps {
            let visitor = visitor.map(|name| VisitorId([name; 16]));
            visitors.assign(pool(slot), slot, visitor);
            model.retain(|&(held, by)| {
                held != slot && (Some(by) != visitor || pool(held) != pool(slot))
            });
            model.extend(visitor.map(|visitor| (slot, visitor)));
            for slot in 0..SLOTS {
                let holder = model.iter().find(|(held, _)| *held == slot).map(|(_, by)| *by);
                prop_assert_eq!(visitors.visitor(slot), holder);
            }
            for (pool_at, name) in (0..2).flat_map(|at| (0..4).map(move |name| (at, name))) {
                let visitor = VisitorId([name; 16]);
                let mine = |&&(held, by): &&(u32, VisitorId)| by == visitor && pool(held) == pool_at;
                let slot = model.iter().find(mine).map(|(held, _)| *held);
                prop_assert_eq!(visitors.slot(pool_at, visitor), slot);
            }
        }
    }
}
