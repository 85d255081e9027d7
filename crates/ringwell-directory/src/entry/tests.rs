//! Finding entries, in the table and beyond it.

use proptest::prelude::*;

use super::*;
use crate::demo_pools;

/// Entries for these ids; each has its place among them as its index.
fn entries(ids: &[u64]) -> Entries {
    let pool = demo_pools(1, 1, Millis(1000)).unwrap().remove(0);
    let entry = |place| Entry::new(&pool, 0, place);
    Entries::new((0..).zip(ids).map(|(place, id)| (PoolId(*id), entry(place))).collect())
}

fn found(entries: &Entries, id: u64) -> Option<u32> {
    entries.get(PoolId(id)).map(Entry::index)
}

#[test]
fn ids_beyond_the_table_are_found_as_those_in_it() {
    let last = (4 * TABLE_IDS_A_POOL + TABLE_IDS_MORE - 1) as u64;
    let entries = entries(&[0, last, last + 1, u64::MAX]);
    assert_eq!(entries.table.len() as u64, last + 1);
    assert_eq!(entries.others.len(), 2);
    for (place, id) in (0..).zip([0, last, last + 1, u64::MAX]) {
        assert_eq!(found(&entries, id), Some(place));
    }
    for id in [1, last - 1, last + 2, u64::MAX - 1] {
        assert_eq!(found(&entries, id), None);
    }
}

#[test]
fn nothing_is_found_where_there_is_nothing() {
    assert_eq!(found(&entries(&[]), 0), None);
}

proptest! {
    #[test]
    fn every_id_is_found_and_no_other(
        ids in proptest::collection::btree_set(prop_oneof![0..3_000_u64, any::<u64>()], 0..50),
        others in proptest::collection::vec(prop_oneof![0..3_000_u64, any::<u64>()], 50),
    ) {
        let ids: Vec<u64> = ids.into_iter().collect();
        let entries = entries(&ids);
        for id in ids.iter().chain(&others) {
            let place = ids.iter().position(|known| known == id);
            prop_assert_eq!(found(&entries, *id).map(|place| place as usize), place);
        }
    }
}
