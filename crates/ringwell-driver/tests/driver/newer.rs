//! A running node has an older cluster file than another node. The other node does not contact it,
//! because the newer file does not contain its address.

use std::sync::Arc;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_driver::holder::{HolderError, holder};
use ringwell_driver::node::Phase;
use ringwell_driver::{Platform, moves, witness};
use ringwell_engine::Outcome;

use crate::moves::{hand_out, pools, served};
use crate::pair::{self, LIFETIME, Links, Pair, Side};
use crate::support::Virtual;

/// Returns version 2 of the cluster file, in which node `a` is the only node.
fn alone(shards: &str) -> String {
    format!(
        "version = 2\nsecret = \"a-secret-of-the-tests\"\n[[node]]\nname = \"a\"\n\
         shards = {shards}\nlink = \"127.0.0.1:9000\"\nlisten = [\"127.0.0.1:8080\"]\n"
    )
}

fn run(platform: &Virtual, side: &Side) {
    let (node, peers) = (|| Arc::clone(&side.node), || side.peers.clone());
    platform.spawn(moves::watch_versions(platform.clone(), node(), peers()));
    platform.spawn(witness::go_on(platform.clone(), node(), peers(), Vec::new()));
}

fn gives_way(shards: &str) {
    let platform = Virtual::default();
    let pair = Pair::with_newer(&platform, &alone(shards));
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let pass = async |ms| {
            platform.sleep_until(platform.moment() + Duration::from_millis(ms)).await;
        };
        assert!(!pools(b, 2).is_empty() && !pools(b, 3).is_empty());
        run(&platform, a);
        pair.b_to_a.set(Links::Gone);
        run(&platform, b);
        pass(10_000).await;
        assert!(!pools(b, 2).is_empty(), "nothing can be known yet");
        let before = hand_out(b, 2, 1);
        pair.b_to_a.set(Links::Up);
        pass(5_000).await;
        assert_eq!((pools(b, 2), pools(b, 3)), (Vec::new(), Vec::new()));
        assert!(served(b).buckets.is_empty(), "this is recorded");
        assert_eq!(b.node.stale(), Vec::<u16>::new(), "the new owner holds the buckets");
        // Nothing that the other node may have handed out until now is handed out again.
        for shard in a.node.shards() {
            let now = a.shard(shard).now();
            for pool in pools(a, shard).into_iter().filter(|pool| before.contains_key(pool)) {
                let got = crate::pair::allocate(a.shard(shard), pool, 2);
                let Outcome::Exhausted { until } = got else { panic!("pool {pool}: {got:?}") };
                assert!(until >= now + LIFETIME - Millis(6_000), "pool {pool}");
            }
        }
    });
}

#[test]
pub fn a_running_node_notices_that_a_newer_file_omits_it() {
    gives_way("[0, 1]");
}

/// The newer file has as many shards as before, with the same buckets, but only one node.
#[test]
pub fn a_running_node_notices_that_a_newer_file_gives_its_shards_away() {
    gives_way("[0, 1, 2, 3]");
}

/// A node with an older file must name no visitor, because the newer file may contain a node that
/// is missing from its own file.
#[test]
pub fn a_node_with_an_older_file_names_no_visitor() {
    let platform = Virtual::default();
    let newer = pair::CLUSTER.replace("version = 1", "version = 2");
    let pair = Pair::with_newer(&platform, &newer);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let number = *hand_out(b, 2, 1).values().next().unwrap();
        let at = Millis(u64::try_from(platform.wall().as_millis()).unwrap() + 10);
        let holder = async |side: &Side| holder(&side.node, &side.peers, number, at).await;
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        assert!(holder(b).await.unwrap().past.held.is_some(), "nothing can be known yet");
        run(&platform, b);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        let HolderError::Unanswered(reason) = holder(b).await.unwrap_err() else { panic!() };
        assert!(reason.contains("version 2"), "{reason}");
        assert!(holder(a).await.unwrap().past.held.is_some());
    });
}

/// Node b starts with the older file. Node a has another address now, so only node a can reach the
/// other. It tries this every second, and may first wait a second for a third node.
#[test]
fn a_node_that_reaches_no_other_at_its_start_waits_for_a_newer_file() {
    for is_reached in [true, false] {
        let platform = Virtual::default();
        let pair = Pair::with_newer(&platform, &alone("[0, 1]"));
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            pair.b_to_a.set(Links::Gone);
            b.node.enter(Phase::Starting);
            let (at, node, peers) = (platform.clone(), Arc::clone(&a.node), a.peers.clone());
            let from = platform.moment() + Duration::from_millis(2_100);
            platform.spawn(async move {
                at.sleep_until(from).await;
                if is_reached {
                    moves::learn_from(&at, &node, &peers, 2).await.unwrap();
                }
            });
            let start = platform.moment();
            let away = witness::begin(&platform, &b.node, &b.peers).await;
            assert_eq!(away, [0]);
            assert!(platform.moment().since(start) < Duration::from_secs(3));
            assert_eq!([pools(b, 2), pools(b, 3)].iter().all(Vec::is_empty), is_reached);
        });
    }
}

/// A node reaches the other node as soon as that node runs, and then does not wait.
#[test]
fn a_node_that_reaches_another_at_its_start_does_not_wait() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, begun) = (&pair.a, platform.moment());
        let took = || platform.moment().since(begun);
        witness::begin(&platform, &a.node, &a.peers).await;
        assert!(took() < Duration::from_millis(100), "{:?}", took());
        pair.a_to_b.set(Links::Gone);
        let (at, links) = (platform.clone(), pair.a_to_b.clone());
        platform.spawn(async move {
            at.sleep_until(at.moment() + Duration::from_secs(1)).await;
            links.set(Links::Up);
        });
        assert_eq!(witness::begin(&platform, &a.node, &a.peers).await, [0; 0]);
        assert!(took() < Duration::from_millis(1_500), "{:?}", took());
    });
}
