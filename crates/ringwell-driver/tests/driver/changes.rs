//! A shard's part of a change to the list of pools.

use std::rc::Rc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::{BucketHold, BucketHolds, Directory, PoolFields, RingPool, bucket};
use ringwell_driver::message::Step;
use ringwell_driver::open::hold_buckets;
use ringwell_driver::{Path, Platform as _, change, moves, partial_change};
use ringwell_journal::Record;

use crate::arrivals::{change_list, left, longest, passed, passed_number, two_pools};
use crate::pair::{Links, Pair, Side, know};
use crate::support::{Virtual, shards};

/// The change waits until the holds are stored, which does not happen here.
#[test]
pub fn holds_are_recorded_where_their_pools_enter_even_if_they_are_over() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, Millis(60_000), Durability::Disk).remove(0);
    let now = shard.now();
    let pools = shard.directory().pools_of(0).map(|pool| pool.id()).collect::<Vec<_>>();
    let ends = [now.0 - 1, now.0, now.0 + 1, now.0 + 30_000].map(Millis);
    let holds: Vec<(PoolId, Millis)> = pools.iter().copied().zip(ends).collect();
    let (known, answers, put) = (Vec::new(), Vec::new(), Vec::new());
    let enter = Step::Enter { known, answers, holds: holds.clone(), put };
    platform.run(async {
        let taken = change::take(Rc::clone(&shard), enter);
        assert!(platform.within(Duration::from_millis(1), taken).await.is_none());
    });
    let group = shard.seal(Vec::new()).unwrap();
    let hold = |record| match record {
        Record::Hold { pool, until, .. } => Some((pool.unwrap(), until)),
        _ => None,
    };
    let recorded: Vec<_> = group.records().filter_map(|it| hold(it.unwrap().1)).collect();
    assert_eq!(recorded, holds);
}

/// The number is in a pool that is in transit from node b. No shard hands the number out now, but
/// the pool's next owner may still have the old list.
#[test]
pub(crate) fn a_number_of_a_pool_in_transit_is_not_free_for_another_pool() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let (to, from) = two_pools(&pair);
        let before = a.node.directory();
        pair.b_to_a.set(Links::Without(Path::Take));
        let of = [bucket(from)].into();
        moves::give(&platform, &b.node, &b.peers, of, 1).await.unwrap_err();
        change_list(&pair, a, passed(&before, from, to)).await;
        assert_eq!(left(a, 0, to), Some(longest().0));
    });
}

/// The bucket was on another node, so another visitor may have received the number, no matter how
/// long its lockout here lasts.
#[test]
pub(crate) fn a_lockout_that_outlasts_the_hold_of_its_bucket_is_in_doubt() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let shard = pair.a.shard(0);
        let (pool, _) = two_pools(&pair);
        let directory = shard.directory();
        let number = passed_number(&directory, pool);
        know(shard, number, shard.now() + Millis(400_000));
        let mut holds = BucketHolds::default();
        let since = shard.now() + Millis(1);
        holds.add(bucket(pool), BucketHold { since, until: Millis::ZERO });
        let mut engine = shard.engine.borrow_mut();
        assert!(!engine.is_doubted(number));
        hold_buckets(&mut engine, 0, &directory, &holds, since);
        assert!(engine.is_doubted(number));
    });
}

/// Returns `pool` with the overflow number `number`, and the pool `from` without its last ten
/// numbers, which include `number`.
fn with_overflow(before: &Directory, from: PoolId, pool: PoolId) -> (PromoNumber, Vec<RingPool>) {
    let number = passed_number(before, from);
    let fields =
        PoolFields { overflow: Some(number), ..before.pool(pool).unwrap().fields().clone() };
    let smaller = passed(before, from, pool).remove(0);
    (number, vec![smaller, RingPool::new(fields).unwrap()])
}

/// Applies a list from a database.
async fn follow(pair: &Pair, side: &Side, pools: Vec<RingPool>) {
    let make = move |before: &Directory| before.change(pools, &[]);
    partial_change::apply(&pair.platform, &side.node, &side.peers, make).await.unwrap();
}

/// Lets `ms` milliseconds pass. Returns the overflow number that `pool` has then.
async fn overflow_after(pair: &Pair, ms: u64, pool: PoolId) -> Option<PromoNumber> {
    let (platform, a) = (&pair.platform, &pair.a);
    platform.sleep_until(platform.moment() + Duration::from_millis(ms)).await;
    partial_change::resume(platform, &a.node, &a.peers).await.unwrap();
    a.node.directory().pool(pool).unwrap().overflow()
}

/// Node a has no record of the lockouts on node b, so it waits for the longest lifetime.
#[test]
fn a_number_in_rotation_on_another_node_is_an_overflow_number_after_the_longest_lifetime() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (pool, from) = two_pools(&pair);
        let (number, pools) = with_overflow(&pair.a.node.directory(), from, pool);
        follow(&pair, &pair.a, pools).await;
        assert_eq!(overflow_after(&pair, 0, pool).await, None);
        assert_eq!(overflow_after(&pair, longest().0 - 1, pool).await, None);
        assert_eq!(overflow_after(&pair, 1, pool).await, Some(number));
    });
}

/// A number that leaves a pool in the same change must wait only for its own lockout.
#[test]
fn a_number_that_leaves_a_pool_of_this_node_is_an_overflow_number_after_its_lockout() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let before = pair.a.node.directory();
        let [pool, from] = [0, 1].map(|at| before.pools_of(0).nth(at).unwrap().id());
        let (number, pools) = with_overflow(&before, from, pool);
        let shard = pair.a.shard(0);
        know(shard, number, shard.now() + Millis(7_000));
        follow(&pair, &pair.a, pools).await;
        assert_eq!(overflow_after(&pair, 0, pool).await, None);
        // Other changes to the pool do not matter.
        let other = pair.a.node.directory().pool(from).unwrap().without_overflow();
        follow(&pair, &pair.a, vec![other]).await;
        assert_eq!(overflow_after(&pair, 6_999, pool).await, None);
        assert_eq!(overflow_after(&pair, 1, pool).await, Some(number));
    });
}

#[test]
fn a_free_number_that_leaves_a_pool_of_this_node_is_an_overflow_number_at_once() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let before = pair.a.node.directory();
        let [pool, from] = [0, 1].map(|at| before.pools_of(0).nth(at).unwrap().id());
        let (number, pools) = with_overflow(&before, from, pool);
        follow(&pair, &pair.a, pools).await;
        assert_eq!(overflow_after(&pair, 0, pool).await, Some(number));
    });
}
