//! Tests that pools keep their indices, that each shard gets the right steps, and that a changed
//! directory equals one built from the same pools.

use proptest::prelude::*;
use ringwell_core::{Millis, PromoNumber};

use super::*;
use crate::{Placement, PoolFields, RingPoolKey};

type Pairs = Vec<(u32, u64)>;

fn range(first: u64, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::from_e164(18_885_550_000 + first).unwrap(), count).unwrap()
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
    before.change(put, &removed).unwrap()
}

/// The indices and ids of the pools that leave, and those of the pools that are added or changed.
fn ids(changes: &Changes) -> (Pairs, Pairs) {
    let put = changes.put.iter().map(|(index, pool)| (*index, pool.id().0));
    (changes.removed.iter().map(|(index, id)| (*index, id.0)).collect(), put.collect())
}

#[test]
fn pools_that_stay_keep_their_indices_and_a_free_index_is_used_again() {
    let first = one_shard();
    let second = after(&first, vec![], &[2]);
    let index = |directory: &Directory, id| directory.lookup(PoolId(id)).unwrap().index();
    // In the order of their buckets, the pools are 2, 1, 3.
    assert_eq!([index(&second, 1), index(&second, 3)], [1, 2]);
    assert_eq!(ids(&Changes::between(&first, &second, 0)), (vec![(0, 2)], vec![]));
    let third = after(&second, vec![pool(0, 30, 1, 10), pool(9, 31, 1, 10)], &[]);
    assert_eq!([0, 1, 3, 9].map(|id| index(&third, id)), [0, 1, 2, 3]);
    let changes = Changes::between(&second, &third, 0);
    assert_eq!(ids(&changes), (vec![], vec![(0, 0), (3, 9)]));
    assert_eq!(changes.entering, [range(30, 1), range(31, 1)]);
}

#[test]
fn only_facts_about_the_shard_are_changes() {
    let first = one_shard();
    let (shorter, renamed) = (pool(1, 0, 5, 9), pool(2, 10, 5, 10));
    let mut renamed_fields = renamed.fields().clone();
    renamed_fields.name = Some("other".to_owned());
    let renamed = RingPool::new(renamed_fields).unwrap();
    let second = after(&first, vec![shorter, renamed], &[]);
    let changes = Changes::between(&first, &second, 0);
    assert_eq!(ids(&changes), (vec![], vec![(1, 1)]));
    assert!(changes.entering.is_empty() && !changes.is_empty());
    assert!(Changes::between(&second, &second, 0).is_empty());
    assert_eq!(second.pool(PoolId(2)).unwrap().name(), Some("other"));
}

#[test]
fn a_pool_that_moves_between_shards_leaves_one_and_enters_the_other() {
    let pools = vec![pool(1, 0, 5, 10), pool(2, 10, 5, 10)];
    let first = Directory::with_placement(1, pools, Placement::even(2).unwrap()).unwrap();
    let to_the_second = Placement::from_owners(&[1; 1024], 2).unwrap();
    let second = first.moved(to_the_second);
    let (left, right) = (first.pools_of(0).count(), first.pools_of(1).count());
    assert_eq!(Changes::between(&first, &second, 0).removed.len(), left);
    let changes = Changes::between(&first, &second, 1);
    assert_eq!((changes.put.len(), changes.entering.len()), (left, left));
    assert_eq!(second.pools_of(1).count(), left + right);
}

#[test]
fn an_equal_list_changes_nothing_and_shares_its_pools() {
    let first = one_shard();
    let copy = |pool: &Arc<RingPool>| Arc::new((**pool).clone());
    let mut list: Vec<_> = first.pools().map(copy).collect();
    let second = first.replace(&list).unwrap();
    assert!((0..BUCKETS).all(|bucket| first.shares(&second, bucket)));
    list.retain(|pool| pool.id() != PoolId(2));
    list.push(Arc::new(pool(4, 10, 5, 10)));
    let third = second.replace(&list).unwrap();
    assert_eq!(ids(&Changes::between(&second, &third, 0)), (vec![(0, 2)], vec![(0, 4)]));
    assert_eq!(third.pool_count(), 3);
}

#[test]
fn numbers_that_become_overflow_numbers_are_found() {
    let with = |pool: RingPool, overflow| {
        RingPool::new(PoolFields { overflow, ..pool.fields().clone() }).unwrap()
    };
    let number = |last| Some(range(last, 1).first());
    let first = Directory::new(1, vec![with(pool(1, 0, 5, 10), number(90))], 1).unwrap();
    let put = vec![with(pool(2, 10, 5, 10), number(90)), with(pool(3, 20, 5, 10), number(91))];
    let second = first.change(put, &[]).unwrap();
    assert_eq!(new_overflow(&first, &second), [(range(91, 1).first(), PoolId(3))]);
}

/// A pool, or the removal of one.
fn a_change() -> impl Strategy<Value = (u64, Option<(u64, u32, Option<u64>)>)> {
    let pool = (0_u64..80, 1_u32..8, proptest::option::of(0_u64..90));
    (1_u64..12, proptest::option::weighted(0.8, pool))
}

proptest! {
    /// A state equals the one built directly from its list of pools, regardless of the changes that
    /// led to it.
    #[test]
    fn a_changed_state_equals_one_built_from_its_pools(
        changes in proptest::collection::vec(proptest::collection::vec(a_change(), 1..4), 1..12),
        shards in 1_u16..4,
    ) {
        let mut state = Directory::new(1, vec![], shards).unwrap();
        for change in changes {
            let (mut put, mut removed) = (Vec::new(), Vec::new());
            for (id, wanted) in change {
                let Some((first, count, overflow)) = wanted else {
                    removed.push(PoolId(id));
                    continue;
                };
                let overflow = overflow.map(|number| range(number, 1).first());
                let fields = PoolFields { overflow, ..pool(id, first, count, 10).fields().clone() };
                put.extend(RingPool::new(fields));
            }
            let gone = |pool: &RingPool| {
                removed.contains(&pool.id()) || put.iter().any(|other| other.id() == pool.id())
            };
            let mut list: Vec<RingPool> =
                state.pools().filter(|pool| !gone(pool)).map(|pool| (**pool).clone()).collect();
            list.extend(put.iter().cloned());
            let whole = Directory::new(1, list, shards);
            let next = state.change(put, &removed);
            prop_assert_eq!(next.is_ok(), whole.is_ok(), "{:?} {:?}", next.err(), whole.err());
            let (Ok(next), Ok(whole)) = (next, whole) else { continue };
            prop_assert!(next.pools().eq(whole.pools()));
            prop_assert_eq!(next.pool_count(), whole.pool_count());
            prop_assert_eq!(next.number_count(), whole.number_count());
            for number in (0..100).map(|number| range(number, 1).first()) {
                prop_assert_eq!(next.pool_by_number(number), whole.pool_by_number(number));
                prop_assert_eq!(next.overflow_pools(number), whole.overflow_pools(number));
            }
            // After each change, no two pools of a shard have the same index, and pools that stay
            // keep their indices.
            for shard in 0..shards {
                let place = |pool: &Arc<RingPool>| next.lookup(pool.id()).unwrap().index();
                let mut places: Vec<u32> = next.pools_of(shard).map(place).collect();
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(places.len(), next.pools_of(shard).count(), "two at one index");
                let stays = |pool: &&Arc<RingPool>| state.pool(pool.id()).is_some();
                for pool in next.pools_of(shard).filter(stays) {
                    prop_assert_eq!(place(pool), state.lookup(pool.id()).unwrap().index());
                }
            }
            state = next;
        }
    }
}
