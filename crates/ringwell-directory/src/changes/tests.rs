//! Indices that stay, and what a shard has to do.

use ringwell_core::{Millis, PromoNumber};

use super::*;
use crate::{Placement, PoolFields, RingPoolKey};

type Pairs = Vec<(u32, u64)>;

fn range(first: u64, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::from_u64(8_885_550_000 + first).unwrap(), count).unwrap()
}

fn pool(id: u64, first: u64, count: u32, lifetime: u64) -> RingPool {
    RingPool::new(PoolFields {
        id: PoolId(id),
        name: None,
        key: RingPoolKey::parse(&format!("key-of-pool-{id}")).unwrap(),
        next_key: None,
        lifetime: Millis(lifetime),
        numbers: vec![range(first, count)],
        overflow: None,
        tracking: None,
    })
    .unwrap()
}

fn one_shard() -> Directory {
    let pools = vec![pool(1, 0, 5, 10), pool(2, 10, 5, 10), pool(3, 20, 5, 10)];
    Directory::new(1, pools, 1).unwrap()
}

fn after(before: &Directory, put: Vec<RingPool>, removed: &[u64]) -> Directory {
    let removed: Vec<PoolId> = removed.iter().map(|id| PoolId(*id)).collect();
    let pools = before.changed(put, &removed);
    before.succeed(before.version() + 1, pools, before.placement().clone()).unwrap()
}

/// Indices and ids of the pools that leave, and of those that are put.
fn ids(changes: &Changes) -> (Pairs, Pairs) {
    let put = changes.put.iter().map(|(index, pool)| (*index, pool.id().0));
    (changes.removed.iter().map(|(index, id)| (*index, id.0)).collect(), put.collect())
}

#[test]
fn pools_that_stay_keep_their_indices_and_a_free_index_is_used_again() {
    let first = one_shard();
    let second = after(&first, vec![], &[2]);
    let index = |directory: &Directory, id| directory.lookup(PoolId(id)).unwrap().index();
    assert_eq!([index(&second, 1), index(&second, 3)], [0, 2]);
    assert_eq!(ids(&Changes::between(&first, &second, 0)), (vec![(1, 2)], vec![]));
    let third = after(&second, vec![pool(0, 30, 1, 10), pool(9, 31, 1, 10)], &[]);
    assert_eq!([0, 1, 3, 9].map(|id| index(&third, id)), [1, 0, 2, 3]);
    let changes = Changes::between(&second, &third, 0);
    assert_eq!(ids(&changes), (vec![], vec![(1, 0), (3, 9)]));
    assert_eq!(changes.entering, [range(30, 1), range(31, 1)]);
}

#[test]
fn only_what_concerns_the_shard_is_a_change() {
    let first = one_shard();
    let (shorter, renamed) = (pool(1, 0, 5, 9), pool(2, 10, 5, 10));
    let mut renamed_fields = renamed.fields().clone();
    renamed_fields.name = Some("other".to_owned());
    let renamed = RingPool::new(renamed_fields).unwrap();
    let second = after(&first, vec![shorter, renamed], &[]);
    let changes = Changes::between(&first, &second, 0);
    assert_eq!(ids(&changes), (vec![], vec![(0, 1)]));
    assert!(changes.entering.is_empty() && !changes.is_empty());
    assert!(Changes::between(&second, &second, 0).is_empty());
    assert_eq!(second.pool(PoolId(2)).unwrap().name(), Some("other"));
}

#[test]
fn a_pool_that_moves_between_shards_leaves_one_and_enters_the_other() {
    let pools = vec![pool(1, 0, 5, 10), pool(2, 10, 5, 10)];
    let first = Directory::with_placement(1, pools, Placement::even(2).unwrap()).unwrap();
    let to_the_second = Placement::from_owners(&[1; 1024], 2).unwrap();
    let pools = first.pools().to_vec();
    let second = first.succeed(2, pools, to_the_second).unwrap();
    let (left, right) = (first.pools_of(0).len(), first.pools_of(1).len());
    assert_eq!(Changes::between(&first, &second, 0).removed.len(), left);
    let changes = Changes::between(&first, &second, 1);
    assert_eq!((changes.put.len(), changes.entering.len()), (left, left));
    assert_eq!(second.pools_of(1).len(), left + right);
}

#[test]
fn an_unchanged_list_shares_its_pools() {
    let first = one_shard();
    let copy = |pool: &Arc<RingPool>| Arc::new((**pool).clone());
    let list: Vec<_> = first.pools().iter().map(copy).collect();
    let shared = first.reconciled(&list);
    assert!(shared.iter().zip(first.pools()).all(|(a, b)| Arc::ptr_eq(a, b)));
    let clash = first.changed(vec![pool(4, 12, 3, 10)], &[]);
    assert!(first.succeed(2, clash, first.placement().clone()).is_err(), "rules hold");
}
