//! Tests numbers that arrive in three pools: two of this node, and one of another node.

use ringwell_core::Millis;

use super::*;
use crate::{Placement, PoolFields, RingPoolKey, bucket};

fn range(first: u64, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::from_e164(18_885_550_000 + first).unwrap(), count).unwrap()
}

fn pool(id: u64, numbers: Vec<NumberRange>, lifetime: u64) -> RingPool {
    RingPool::new(PoolFields {
        id: PoolId(id),
        name: None,
        key: RingPoolKey::parse(&format!("key-of-pool-{id}")).unwrap(),
        next_key: None,
        lifetime: Millis(lifetime),
        numbers,
        overflow: None,
        tracking: None,
    })
    .unwrap()
}

/// Pool 3 belongs to another node.
fn directory(pools: Vec<RingPool>) -> Directory {
    let mut owners = [0; BUCKETS as usize];
    owners[usize::from(bucket(PoolId(3)))] = 1;
    Directory::new(2, pools, 1).unwrap().placed(Placement::from_owners(&owners, 2).unwrap())
}

fn arrivals(before: &Directory, after: &Directory) -> Arrivals {
    Arrivals::between(before, after, |shard| shard == 0)
}

#[test]
fn only_numbers_that_were_in_no_pool_of_the_node_arrive() {
    let before = directory(vec![
        pool(1, vec![range(0, 10)], 10),
        pool(2, vec![range(10, 10)], 20),
        pool(3, vec![range(20, 10)], 30),
    ]);
    assert_eq!(arrivals(&before, &before), Arrivals::default());
    // Numbers that were in a pool of the other node, in a pool of this node, and in no pool.
    let after = directory(vec![
        pool(1, vec![range(0, 10), range(25, 5), range(40, 2)], 10),
        pool(2, vec![range(12, 8)], 20),
        pool(3, vec![range(20, 5), range(10, 2)], 30),
    ]);
    let of = |arrivals: Arrivals| arrivals.pools;
    assert_eq!(of(arrivals(&before, &after)), [(PoolId(1), vec![range(25, 5), range(40, 2)])]);
    assert_eq!(of(arrivals(&after, &before)), [(PoolId(2), vec![range(10, 2)])]);
    // Numbers that move within the node do not count as arrivals.
    let lent = directory(vec![
        pool(1, vec![range(0, 12)], 10),
        pool(2, vec![range(12, 8)], 20),
        pool(3, vec![range(20, 10)], 30),
    ]);
    assert_eq!(of(arrivals(&before, &lent)), []);
}

#[test]
fn a_pool_that_changes_its_owner_brings_no_numbers() {
    let pools = vec![pool(1, vec![range(0, 9)], 10), pool(3, vec![range(20, 9)], 30)];
    let before = directory(pools);
    let moved = before.moved(Placement::from_owners(&[0; BUCKETS as usize], 2).unwrap());
    let found = arrivals(&before, &moved);
    assert_eq!((found.pools, found.buckets.len()), (vec![], 1));
}

#[test]
fn the_rest_of_a_range_is_every_other_number() {
    let known = [range(3, 2), range(8, 4)];
    assert_eq!(without(range(0, 10), &known), [range(0, 3), range(5, 3)]);
    assert_eq!(without(range(3, 2), &known), []);
    assert_eq!(without(range(4, 9), &known), [range(5, 3), range(12, 1)]);
    assert_eq!(without(range(20, 3), &known), [range(20, 3)]);
}
