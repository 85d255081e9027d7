//! Tests look-ups and the detection of conflicts between pools.

use proptest::prelude::*;
use ringwell_core::{Millis, NumberRange};

use super::*;
use crate::{PoolFields, Tracking, bucket};

fn number(value: u64) -> PromoNumber {
    PromoNumber::from_e164(value).unwrap()
}

fn fields(id: u64, first: u64, count: u32, overflow: u64) -> PoolFields {
    PoolFields {
        id: PoolId(id),
        name: None,
        key: RingPoolKey::parse(&format!("key-of-pool-{id}")).unwrap(),
        next_key: None,
        lifetime: Millis(1000),
        numbers: vec![NumberRange::new(number(first), count).unwrap()],
        overflow: PromoNumber::from_e164(overflow),
        tracking: None,
    }
}

fn pool(id: u64, first: u64, count: u32, overflow: u64) -> RingPool {
    RingPool::new(fields(id, first, count, overflow)).unwrap()
}

fn directory(pools: Vec<RingPool>, shards: u16) -> Directory {
    Directory::new(7, pools, shards).unwrap()
}

/// The faults of `pools`, one per line.
fn faults(pools: Vec<RingPool>) -> String {
    let faults = Directory::new(1, pools, 2).err().unwrap_or_default();
    faults.iter().fold(String::new(), |text, fault| text + &fault.to_string() + "\n")
}

#[test]
fn a_pool_is_found_with_its_shard_and_its_index_there() {
    let pools =
        (1..=200).map(|id| pool(id, 12_000_000_000 + id * 10, 10, 19_000_000_000)).collect();
    let directory = directory(pools, 4);
    let mut met = 0;
    for shard in 0..4 {
        for (index, pool) in (0..).zip(directory.pools_of(shard)) {
            let entry = directory.lookup(pool.id()).unwrap();
            assert_eq!((entry.shard(), entry.index()), (shard, index));
            assert_eq!(directory.placement().shard(pool.id()), shard);
            assert_eq!(directory.pool(pool.id()).unwrap(), &**pool);
            met += 1;
        }
        assert!(directory.pools_of(shard).is_sorted_by_key(|pool| (bucket(pool.id()), pool.id())));
    }
    assert_eq!(met, 200);
    assert_eq!((directory.pool_count(), directory.number_count()), (200, 2000));
    assert_eq!((directory.version(), directory.shards()), (7, 4));
    assert_eq!(directory.pools_of(4).count(), 0);
    assert!(directory.lookup(PoolId(201)).is_none() && directory.pool(PoolId(0)).is_none());
}

#[test]
fn a_placement_moves_pools_to_other_shards() {
    let pools = (1..=20).map(|id| pool(id, 12_000_000_000 + id * 10, 10, 19_000_000_000)).collect();
    let all_to_the_third = Placement::from_owners(&[2; 1024], 3).unwrap();
    let moved = directory(pools, 2).placed(all_to_the_third.clone());
    assert_eq!((moved.version(), moved.shards()), (7, 3));
    assert_eq!(moved.placement(), &all_to_the_third);
    assert_eq!([0, 1, 2].map(|shard| moved.pools_of(shard).count()), [0, 0, 20]);
    assert_eq!(moved.lookup(PoolId(1)).map(Entry::shard), Some(2));
    let twice = vec![pool(1, 12_000_000_000, 5, 0), pool(1, 13_000_000_000, 5, 0)];
    assert!(Directory::with_placement(9, twice, all_to_the_third).is_err(), "rules hold");
}

#[test]
fn an_entry_has_the_data_of_an_answer() {
    let tracking = Tracking {
        base_url: "http://a.example".into(),
        destination_url: "http://b.example".into(),
    };
    let with = PoolFields {
        tracking: Some(Arc::new(tracking.clone())),
        ..fields(1, 12_000_000_000, 5, 19_000_000_000)
    };
    let pools = vec![RingPool::new(with).unwrap(), pool(2, 12_000_000_005, 5, 0)];
    let directory = directory(pools, 1);
    let entry = directory.lookup(PoolId(1)).unwrap();
    assert_eq!(entry.overflow(), Some(number(19_000_000_000)));
    assert_eq!(entry.lifetime(), Millis(1000));
    assert_eq!(entry.tracking(), Some(&tracking));
    let entry = directory.lookup(PoolId(2)).unwrap();
    assert_eq!((entry.overflow(), entry.tracking()), (None, None));
}

#[test]
fn both_keys_of_a_pool_open_it_and_no_other() {
    let next_key = RingPoolKey::parse("next-key-of-pool-1").ok();
    let first = PoolFields { next_key, ..fields(1, 12_000_000_000, 5, 0) };
    let directory =
        directory(vec![RingPool::new(first).unwrap(), pool(2, 13_000_000_000, 5, 0)], 1);
    let opens = |id, key: &str| directory.check_key(directory.lookup(PoolId(id)), key.as_bytes());
    assert!(opens(1, "key-of-pool-1") && opens(1, "next-key-of-pool-1"));
    assert!(opens(2, "key-of-pool-2"));
    assert!(!opens(2, "key-of-pool-1") && !opens(2, "next-key-of-pool-1") && !opens(1, ""));
}

#[test]
fn no_key_opens_a_missing_pool() {
    let directory = directory(vec![], 1);
    let unknown = directory.lookup(PoolId(1));
    for key in [&b""[..], &[0; 64], &[0; 255], &[0; 300], b"key-of-pool-1"] {
        assert!(!directory.check_key(unknown, key));
    }
}

#[test]
fn a_number_leads_to_the_pool_whose_rotation_it_is_in() {
    let directory = directory(
        vec![pool(5, 12_000_000_010, 5, 0), pool(3, 12_000_000_000, 5, 19_000_000_000)],
        3,
    );
    let owner = |value| directory.pool_by_number(number(value)).map(|id| id.0);
    assert_eq!(owner(12_000_000_000), Some(3));
    assert_eq!(owner(12_000_000_004), Some(3));
    assert_eq!(owner(12_000_000_005), None);
    assert_eq!(owner(12_000_000_010), Some(5));
    assert_eq!(owner(12_000_000_015), None);
    assert_eq!(owner(19_000_000_000), None);
}

#[test]
fn an_overflow_number_leads_to_every_pool_that_shares_it() {
    let pools = vec![
        pool(9, 12_000_000_000, 1, 19_000_000_000),
        pool(4, 12_000_000_001, 1, 19_000_000_001),
        pool(2, 12_000_000_002, 1, 19_000_000_000),
        pool(7, 12_000_000_003, 1, 0),
    ];
    let directory = directory(pools, 2);
    let of = |value| directory.overflow_pools(number(value));
    assert_eq!(of(19_000_000_000), [PoolId(2), PoolId(9)]);
    assert_eq!(of(19_000_000_001), [PoolId(4)]);
    assert_eq!(of(12_000_000_000), []);
}

#[test]
fn two_pools_do_not_share_an_id() {
    assert_eq!(
        faults(vec![pool(3, 12_000_000_000, 1, 0), pool(3, 12_000_000_001, 1, 0)]),
        "ring_pool[1].id: another pool already has the id 3; give each pool a different id\n"
    );
}

#[test]
fn two_pools_do_not_share_a_number() {
    assert_eq!(
        faults(vec![
            pool(1, 12_000_000_000, 100, 0),
            pool(2, 12_000_000_010, 5, 0),
            pool(3, 12_000_000_050, 100, 0),
        ]),
        "\
ring_pool[1].numbers: 2000000010 is in ring pool 1 too; a number can be in one pool only
ring_pool[2].numbers: 2000000050 is in ring pool 1 too; a number can be in one pool only
"
    );
}

#[test]
fn an_overflow_number_is_in_no_rotation() {
    assert_eq!(
        faults(vec![pool(1, 12_000_000_000, 10, 0), pool(2, 13_000_000_000, 1, 12_000_000_009)]),
        "ring_pool[1].overflow_number: 2000000009 is in the rotation of ring pool 1; \
         many visitors share an overflow number: take it out of rotation\n"
    );
}

#[test]
fn a_directory_has_1_to_256_shards() {
    let fault = |shards| Directory::new(1, vec![], shards).unwrap_err()[0].to_string();
    assert_eq!(fault(0), "shards: must be 1 to 256, but is 0");
    assert_eq!(fault(257), "shards: must be 1 to 256, but is 257");
}

proptest! {
    #[test]
    fn the_overlaps_found_equal_those_of_a_full_comparison(
        runs in prop::collection::vec((0_u64..60, 1_u32..12), 1..8),
    ) {
        let overlap = runs.iter().enumerate().any(|(place, (first, count))| {
            runs[..place].iter().any(|(other, length)| {
                first < &(other + u64::from(*length)) && other < &(first + u64::from(*count))
            })
        });
        let pools = (1..).zip(&runs)
            .map(|(id, (first, count))| pool(id, 12_000_000_000 + first, *count, 0));
        prop_assert_eq!(Directory::new(1, pools.collect(), 2).is_err(), overlap);
    }

    #[test]
    fn every_pool_is_in_the_shard_of_its_bucket(id in any::<u64>(), shards in 1_u16..=256) {
        let directory = directory(vec![pool(id, 12_000_000_000, 1, 0)], shards);
        let shard = u32::from(bucket(PoolId(id))) * u32::from(shards) / 1024;
        prop_assert!(u32::from(directory.lookup(PoolId(id)).unwrap().shard()).abs_diff(shard) <= 1);
    }
}
