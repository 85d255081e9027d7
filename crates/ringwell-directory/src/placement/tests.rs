//! Tests that pools are spread evenly over shards, and that a pool's bucket never changes.

use super::*;

/// The count of pools for each shard.
fn shares(shards: u16, pools: impl Iterator<Item = u64>) -> Vec<usize> {
    let placement = Placement::even(shards).unwrap();
    let mut counts = vec![0; usize::from(shards)];
    for pool in pools {
        counts[usize::from(placement.shard(PoolId(pool)))] += 1;
    }
    counts
}

fn is_fair(counts: &[usize], percent: usize) -> bool {
    let fair = counts.iter().sum::<usize>() / counts.len();
    counts.iter().all(|share| share.abs_diff(fair) * 100 <= fair * percent)
}

#[test]
fn shards_share_neighbouring_pools_fairly() {
    for shards in [1, 2, 3, 4, 6, 8] {
        let counts = shares(shards, 1..=200);
        assert!(is_fair(&counts, 10), "{counts:?}");
    }
    assert_eq!(shares(4, 1..=200), [50, 49, 51, 50]);
}

#[test]
fn shards_share_pools_with_regular_gaps_fairly() {
    for step in [2, 3, 5, 8, 10, 16, 64, 100, 256, 1000, 1024, 10_000, 65_536] {
        let counts = shares(4, (1..=200).map(|n| n * step));
        assert!(is_fair(&counts, 25), "{step}: {counts:?}");
    }
}

#[test]
fn the_bucket_of_a_pool_never_changes() {
    let pools = [0, 1, 2, 3, 16, 200, 1_000_000, u64::MAX];
    assert_eq!(pools.map(|pool| bucket(PoolId(pool))), [0, 632, 241, 874, 909, 621, 1012, 391]);
}

#[test]
fn buckets_are_shared_evenly_between_any_number_of_shards() {
    for shards in 1..=SHARDS_MAX {
        let placement = Placement::even(shards).unwrap();
        let mut counts = vec![0_u16; usize::from(shards)];
        placement.owners.iter().for_each(|owner| counts[usize::from(*owner)] += 1);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert_eq!(placement.owners.len(), usize::from(BUCKETS));
        assert!(most - least <= 1, "{shards}");
    }
}

#[test]
fn a_table_has_the_owner_of_each_bucket() {
    let mut owners = [0; BUCKETS as usize];
    owners[usize::from(bucket(PoolId(16)))] = 2;
    let placement = Placement::from_owners(&owners, 3).unwrap();
    assert_eq!((placement.shard(PoolId(16)), placement.shard(PoolId(17))), (2, 0));
    assert_eq!(placement.buckets_of(2).collect::<Vec<_>>(), [bucket(PoolId(16))]);
    assert_eq!((placement.buckets_of(1).count(), placement.shards()), (0, 3));
    assert_eq!(Placement::from_owners(&owners, 2), None, "there is no shard 2");
    assert_eq!(Placement::from_owners(&[0; BUCKETS as usize], 257), None);
}

#[test]
fn there_are_1_to_256_shards() {
    assert_eq!(Placement::even(0), None);
    assert_eq!(Placement::even(257), None);
    assert_eq!(Placement::even(256).map(|placement| placement.shards()), Some(256));
}
