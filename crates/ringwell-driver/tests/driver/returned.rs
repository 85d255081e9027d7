//! Numbers that left a node's pools and came back while the node was not running.

use std::time::Duration;

use ringwell_core::{Millis, PoolId};
use ringwell_directory::{Directory, bucket};
use ringwell_driver::arrivals::LIST_SPREAD;
use ringwell_driver::lists::{Lists, lists};
use ringwell_driver::node::{Begun, Phase};
use ringwell_driver::store::ServedMap;
use ringwell_driver::{Platform, moves, witness};
use ringwell_engine::{Outcome, lockout};
use ringwell_os::OsFiles;

use crate::arrivals::{change_list, left, passed, two_pools};
use crate::pair::{self, LIFETIME, Links, Pair, allocate, know, locked};
use crate::support::Virtual;

/// Creates nodes that served their present lists before, for the last time `served_ms` milliseconds
/// after the beginning of the test.
fn pair_that_served(platform: &Virtual, served_ms: i64) -> Pair {
    let wall = i64::try_from(platform.wall().as_millis()).unwrap();
    let begun = |directory: &Directory| Begun {
        served_lists: Some(lists(directory)),
        served_at: u64::try_from(wall + served_ms).ok(),
        ..Begun::default()
    };
    Pair::with(platform, pair::pools(), begun)
}

fn first_pool(pair: &Pair) -> PoolId {
    pair.a.node.directory().pools_of(0).next().unwrap().id()
}

/// Starts the first node again.
async fn start(pair: &Pair) {
    let a = &pair.a;
    a.node.enter(Phase::Starting);
    witness::begin(&pair.platform, &a.node, &a.peers).await;
    a.node.enter(Phase::Serving);
}

/// The list is the one that the node served last, so only the other node's records show that it has
/// handed the number out.
#[test]
pub fn a_start_holds_pools_whose_numbers_were_handed_out_elsewhere_in_the_meantime() {
    // The lockout on the other node, the links, the time when the list was last served, the wait
    // before the start, and the hold.
    for (locked, links, served_ms, wait, wanted) in [
        (Some(7_000), Links::Up, -3_600_000, 0, Some(7_001)),
        (Some(0), Links::Up, -3_600_000, 0, Some(0)),
        (None, Links::Up, -3_600_000, 0, None),
        (Some(7_000), Links::Silent, -3_600_000, 0, None),
        // The wall clock was set back.
        (Some(7_000), Links::Up, 3_600_000, 0, Some(7_001)),
        // The node knows all allocations from before it stopped.
        (Some(200_000), Links::Up, 119_000, 120, None),
    ] {
        let platform = Virtual::default();
        let pair = pair_that_served(&platform, served_ms);
        platform.run(async {
            let (a, b) = (&pair.a, pair.b.shard(2));
            let pool = first_pool(&pair);
            let number = a.node.directory().pool(pool).unwrap().numbers()[0].first();
            if let Some(locked) = locked {
                know(b, number, b.now() + Millis(locked));
            }
            platform.sleep_until(platform.moment() + Duration::from_secs(wait)).await;
            pair.a_to_b.set(links);
            start(&pair).await;
            let is_doubted = a.shard(0).engine.borrow().is_doubted(number);
            assert_eq!(is_doubted, wanted.is_some(), "{locked:?} {links:?} {served_ms}");
            assert_eq!(left(a, 0, pool), wanted, "{locked:?} {links:?} {served_ms}");
            // The holds are recorded for the next startup, with the time of the list.
            let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
            assert_eq!(served.holds, a.node.bucket_holds());
            let now = u64::try_from(platform.wall().as_millis()).unwrap();
            assert!(served.served_at.is_some_and(|at| now - at < 2_000), "{served:?}");
        });
    }
}

/// The number's bucket was on the other node, which still has a record of the allocation.
#[test]
fn a_lockout_that_both_nodes_know_holds_no_pool() {
    for (apart_ms, is_same) in [(1_000, true), (1_100, false)] {
        let platform = Virtual::default();
        let pair = pair_that_served(&platform, -3_600_000);
        platform.run(async {
            let (a, b) = (&pair.a, pair.b.shard(2));
            let pool = first_pool(&pair);
            assert!(matches!(allocate(a.shard(0), pool, 1), Outcome::Kept { .. }));
            let (number, until) = locked(a.shard(0)).into_iter().next().unwrap();
            platform.sleep_until(platform.moment() + Duration::from_millis(apart_ms)).await;
            know(b, number, until + Millis(500));
            start(&pair).await;
            let hold = a.node.bucket_holds().get(bucket(pool)).unwrap().until;
            assert_eq!(hold > a.shard(0).now(), !is_same, "{hold:?}");
            assert!(is_same || hold > until, "{hold:?} {until:?}");
        });
    }
}

/// If the process ends before the pools are held, the next startup must find them again.
#[test]
fn a_start_records_no_list_before_it_has_held_the_pools() {
    let platform = Virtual::default();
    let older: Lists = Lists::from([(1, 1)]);
    let begun = |_: &Directory| Begun {
        served_lists: Some(older.clone()),
        served_at: Some(7),
        ..Begun::default()
    };
    let pair = Pair::with(&platform, pair::pools(), begun);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        a.node.enter(Phase::Starting);
        // The node learns that a bucket has moved away, and records the owners.
        let moved = bucket(a.node.directory().pools_of(0).last().unwrap().id());
        let mut received = moves::copy_owners(&b.node, Vec::new()).unwrap();
        received.owners.give(moved, 3);
        moves::learn(&platform, &a.node, &a.peers, received).await;
        let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
        assert_eq!((served.lists, served.served_at), (Some(older.clone()), Some(7)));
        start(&pair).await;
        let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
        assert_eq!(served.lists, Some(lists(&a.node.directory())));
    });
}

/// A node without an answer may have handed a number out under a list with a longer lifetime, which
/// only another node has served.
#[test]
pub fn a_hold_lasts_as_long_as_an_earlier_lifetime_that_only_another_node_knows() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let longer = lockout(LIFETIME) + Millis(50_000);
        let now = b.shard(2).now();
        b.node.set_lifetimes(b.node.lifetimes().shortened(longer, now));
        // The other node still has the numbers in a pool, so its lockouts count as unknown.
        let (to, from) = two_pools(&pair);
        change_list(&pair, a, passed(&a.node.directory(), from, to)).await;
        assert_eq!(left(a, 0, to), Some((longer + LIST_SPREAD).0));
    });
}
