//! Tests looking up pools by id.

use std::collections::BTreeSet;

use proptest::prelude::*;
use ringwell_core::{Millis, NumberRange, PromoNumber};

use super::*;
use crate::{Directory, PoolFields, RingPoolKey};

/// A directory of pools with these ids; each pool has one number.
fn state(ids: &[u64]) -> Directory {
    let pool = |(number, id): (u64, &u64)| {
        let first = PromoNumber::from_e164(12_000_000_000 + number).unwrap();
        let fields = PoolFields {
            id: PoolId(*id),
            name: None,
            key: RingPoolKey::parse("a-key-of-sixteen-bytes").unwrap(),
            next_key: None,
            lifetime: Millis(1000),
            numbers: vec![NumberRange::new(first, 1).unwrap()],
            overflow: None,
            tracking: None,
        };
        RingPool::new(fields).unwrap()
    };
    Directory::new(1, (0..).zip(ids).map(pool).collect(), 1).unwrap()
}

#[test]
fn neighbouring_ids_are_in_the_first_cell_of_their_search() {
    let ids: Vec<u64> = (1..=50_000).collect();
    let state = state(&ids);
    let is_home = |id: &&u64| {
        let spread = spread(PoolId(**id));
        let of_bucket = state.pools_in(bucket(PoolId(**id)));
        let cells = of_bucket.len() + of_bucket.len() / 2 + 1;
        let others = of_bucket.iter().filter(|pool| pool.id().0 != **id);
        let mut homes = others.map(|pool| home(self::spread(pool.id()), cells));
        homes.all(|other| other != home(spread, cells))
    };
    let at_home = ids.iter().filter(is_home).count();
    assert!(at_home > 45_000, "only {at_home} of 50,000");
}

proptest! {
    #[test]
    fn every_id_is_found_and_no_other(
        ids in prop::collection::btree_set(prop_oneof![0..3_000_u64, any::<u64>()], 0..50),
        others in prop::collection::vec(prop_oneof![0..3_000_u64, any::<u64>()], 50),
    ) {
        let all: Vec<u64> = ids.iter().copied().collect();
        let state = state(&all);
        for id in all.iter().chain(&others) {
            let found = state.lookup(PoolId(*id)).map(|entry| entry.id().0);
            prop_assert_eq!(found, ids.get(id).copied());
            prop_assert_eq!(state.pool(PoolId(*id)).map(|pool| pool.id().0), found);
        }
    }

    /// Uses only ids from four buckets, so that several pools may be in one table.
    #[test]
    fn pools_of_one_bucket_are_found_too(ids in prop::collection::btree_set(0_u64..100_000, 1..400)) {
        let of_one: BTreeSet<u64> =
            ids.iter().copied().filter(|id| bucket(PoolId(*id)) < 4).collect();
        let all: Vec<u64> = of_one.iter().copied().collect();
        let state = state(&all);
        for id in &ids {
            let found = state.lookup(PoolId(*id)).map(|entry| entry.id().0);
            prop_assert_eq!(found, of_one.get(id).copied());
        }
    }
}
