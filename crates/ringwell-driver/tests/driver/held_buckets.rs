//! Numbers that leave a bucket whose lockouts are unknown here, because the node's disk was lost or
//! its map is new. Their next pools are held too, even if the node was restarted in the meantime.

use std::time::Duration;

use ringwell_core::{Millis, PoolId};
use ringwell_directory::{BucketHold, BucketHolds, Directory, PoolFields, RingPool, bucket};
use ringwell_driver::lists::lists;
use ringwell_driver::node::Begun;
use ringwell_driver::{Platform as _, clock, witness};
use ringwell_engine::lockout;

use crate::arrivals::{change_list, left, longest, passed};
use crate::pair::{CLUSTER, LIFETIME, Pair, pools};
use crate::support::Virtual;

/// The cluster file of a node whose cluster has no other nodes.
const ALONE: &str = r#"version = 1
secret = "a-secret-of-the-tests"
[[node]]
name = "a"
shards = [0, 1]
link = "127.0.0.1:9000"
listen = ["127.0.0.1:8080"]
"#;

/// The time since which the bucket has been held.
const HELD: Millis = Millis(10_000);

/// Two pools of shard 0; the bucket of the first one is held.
fn own_pools(list: &Directory) -> (PoolId, PoolId) {
    let mut own = list.pools_of(0).map(|pool| pool.id());
    let held = own.next().unwrap();
    (held, own.find(|other| bucket(*other) != bucket(held)).unwrap())
}

/// Starts nodes whose list of pools is `next`. Node a has served the list `before`.
fn restarted(
    platform: &Virtual,
    cluster: &str,
    next: impl Fn(&Directory) -> Vec<RingPool>,
    before: impl Fn(&Directory) -> Vec<RingPool>,
) -> Pair {
    let plain = Pair::of(platform, pools(), |_| Begun::default(), cluster).a.node.directory();
    let now = clock::reading(1, platform.boot_time(), platform.wall()).wall;
    let (held, _) = own_pools(&plain);
    let begun = |_: &Directory| {
        let mut holds = BucketHolds::default();
        let since = Millis(now.0 - HELD.0);
        holds.add(bucket(held), BucketHold { since, until: Millis::ZERO });
        let served = plain.change(before(&plain), &[]).unwrap();
        Begun { holds, served_lists: Some(lists(&served)), ..Begun::default() }
    };
    let list = plain.change(next(&plain), &[]).unwrap();
    let shards = 0..list.shards();
    let pools = shards.flat_map(|shard| list.pools_of(shard)).map(|pool| (**pool).clone());
    Pair::of(platform, pools.collect(), begun, cluster)
}

/// The list changed while the node was stopped. A pool that got numbers from a held bucket must be
/// held after the restart.
#[test]
pub(crate) fn a_pool_that_got_numbers_from_a_held_bucket_is_held_after_a_restart() {
    let moved = |list: &Directory| {
        let (held, other) = own_pools(list);
        passed(list, held, other)
    };
    for cluster in [CLUSTER, ALONE] {
        let platform = Virtual::default();
        let pair = restarted(&platform, cluster, moved, |_| Vec::new());
        platform.run(async {
            let (_, other) = own_pools(&pair.a.node.directory());
            witness::begin(&platform, &pair.a.node, &pair.a.peers).await;
            assert_eq!(left(&pair.a, 0, other), Some(longest().0 - HELD.0));
        });
    }
}

/// The hold has ended, so no number is in doubt, and repeated rows get their numbers again.
#[test]
fn a_node_alone_doubts_no_numbers_after_the_hold() {
    let platform = Virtual::default();
    let moved = |list: &Directory| {
        let (held, other) = own_pools(list);
        passed(list, held, other)
    };
    let pair = restarted(&platform, ALONE, moved, |_| Vec::new());
    platform.run(async {
        let (_, other) = own_pools(&pair.a.node.directory());
        let ended = Duration::from_millis(longest().0 - HELD.0);
        platform.sleep_until(platform.moment() + ended).await;
        witness::begin(&platform, &pair.a.node, &pair.a.peers).await;
        assert_eq!(left(&pair.a, 0, other), None);
    });
}

/// Numbers from a held bucket must be held even if they were in no pool when the node was
/// restarted.
#[test]
fn numbers_from_a_held_bucket_that_were_in_no_pool_are_held_too() {
    let platform = Virtual::default();
    let without = |list: &Directory| {
        let (held, other) = own_pools(list);
        passed(list, held, other)[..1].to_vec()
    };
    let pair = restarted(&platform, CLUSTER, without, without);
    platform.run(async {
        let a = &pair.a;
        let plain = Pair::new(&platform).a.node.directory();
        let (held, other) = own_pools(&plain);
        witness::begin(&platform, &a.node, &a.peers).await;
        assert_eq!(a.node.bucket_holds().get(bucket(other)), None);
        change_list(&pair, a, passed(&plain, held, other)[1..].to_vec()).await;
        assert_eq!(left(a, 0, other), Some(longest().0 - HELD.0));
    });
}

/// A node that has lost its disk starts with a list that another node does not have yet. The hold
/// must last for the lifetimes in the other node's list.
#[test]
pub(crate) fn a_hold_lasts_as_long_as_a_lifetime_of_another_node_s_list() {
    for is_changed_there in [false, true] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            let known = serde_json::json!({"shards": [], "journals": [[0, "old", 7]]});
            let known = serde_json::from_value(known).unwrap();
            witness::learn(&platform, &b.node, known).await.unwrap();
            let short = |pool: &RingPool| {
                let fields = PoolFields { lifetime: Millis(1_000), ..pool.fields().clone() };
                RingPool::new(fields).unwrap()
            };
            let shorter: Vec<_> = pools().iter().map(short).collect();
            change_list(&pair, a, shorter.clone()).await;
            if is_changed_there {
                change_list(&pair, b, shorter).await;
            }
            let since = a.shard(0).now();
            witness::begin(&platform, &a.node, &a.peers).await;
            let pool = a.node.directory().pools_of(0).next().unwrap().id();
            let hold = a.node.bucket_holds().get(bucket(pool)).unwrap();
            assert_eq!(hold.until, since + lockout(LIFETIME), "{is_changed_there}");
        });
    }
}
