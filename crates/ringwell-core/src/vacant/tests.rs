//! Compares vacant runs with a set of vacant slots.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::Vacant;

const SLOTS: u32 = 24;

/// Returns the vacant slots as runs of maximum length.
fn runs(free: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &slot in free {
        match runs.last_mut() {
            Some((base, length)) if *base + *length == slot => *length += 1,
            _ => runs.push((slot, 1)),
        }
    }
    runs
}

proptest! {
    #[test]
    fn returned_room_is_found_again_in_the_longest_possible_runs(
        steps in proptest::collection::vec((any::<bool>(), 0..SLOTS, 1..9_u32), 0..60)
    ) {
        let (mut vacant, mut free) = (Vacant::default(), BTreeSet::new());
        for (takes, base, count) in steps {
            if takes {
                let long = runs(&free).into_iter().filter(|(_, length)| *length >= count);
                let shortest = long.min_by_key(|(base, length)| (*length, *base));
                let taken = vacant.take(count);
                prop_assert_eq!(taken, shortest.map(|(base, _)| base));
                if let Some(base) = taken {
                    free.retain(|slot| !(base..base + count).contains(slot));
                }
            } else if (base..base + count).all(|slot| !free.contains(&slot)) {
                vacant.give(base, count);
                free.extend(base..base + count);
            }
            prop_assert_eq!(vacant.count(), free.len());
            let longest = runs(&free).into_iter().map(|(_, length)| length).max();
            prop_assert_eq!(vacant.has(count), longest.is_some_and(|longest| longest >= count));
            let before = runs(&free).into_iter().find(|(first, length)| first + length == base);
            prop_assert_eq!(vacant.before(base), before.map_or(0, |(_, length)| length));
            let known: Vec<_> = vacant.lengths.iter().map(|(base, length)| (*base, *length)).collect();
            prop_assert_eq!(&known, &runs(&free));
            let mut by_length: Vec<_> = known.iter().map(|(base, length)| (*length, *base)).collect();
            by_length.sort_unstable();
            prop_assert!(vacant.by_length.iter().copied().eq(by_length));
        }
    }
}
