//! Compares the set with the standard library's, and checks that earlier clones have not changed.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn all(set: &Sorted<u32>) -> Vec<u32> {
    set.from(0).collect()
}

#[test]
fn splitting_and_joining_a_large_set_depends_only_on_its_values() {
    let mut set = Sorted::default();
    for value in 0..10_000_u32 {
        set.insert(value * 7919 % 10_007);
    }
    assert_eq!(set.len(), 10_000);
    assert!(set.chunks.len() > 10, "it was never split");
    assert!(set.chunks.iter().all(|chunk| (1..=2 * CHUNK_MIN).contains(&chunk.len())));
    assert!(all(&set).is_sorted());
    for value in 0..10_000_u32 {
        set.remove(value * 7919 % 10_007);
    }
    assert_eq!((set.len(), set.chunks.len(), set.first()), (0, 0, None));
}

#[test]
fn a_change_copies_one_chunk_and_shares_the_others() {
    let before = Sorted::new((0..100_000_u32).collect());
    let mut after = before.clone();
    after.remove(50_000);
    after.insert(50_000);
    let shared = before.chunks.iter().zip(&after.chunks).filter(|(a, b)| Arc::ptr_eq(a, b));
    assert_eq!(shared.count(), before.chunks.len() - 1);
    assert_eq!(all(&before), all(&after));
}

proptest! {
    #[test]
    fn it_contains_the_numbers_that_were_added_and_not_removed(
        first in prop::collection::vec(0_u32..2000, 0..1500),
        changes in prop::collection::vec((any::<bool>(), 0_u32..2000), 0..1500),
        asked in 0_u32..2000,
    ) {
        let (mut set, mut model) = (Sorted::new(first.clone()), BTreeSet::from_iter(first));
        let (left, kept) = (set.clone(), model.clone());
        for (is_put, value) in changes {
            if is_put {
                set.insert(value);
                model.insert(value);
            } else {
                set.remove(value);
                model.remove(&value);
            }
        }
        prop_assert_eq!(set.len(), model.len());
        prop_assert_eq!(set.first(), model.first().copied());
        prop_assert_eq!(set.up_to(asked), model.range(..=asked).next_back().copied());
        prop_assert!(set.from(asked).eq(model.range(asked..).copied()));
        prop_assert!(all(&left).into_iter().eq(kept), "an old state has changed");
    }
}
