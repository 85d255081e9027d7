//! Tests a node whose journal differs from another node's record of it. The node's disk may refuse
//! all writes.

use std::cell::Cell;
use std::path::Path as FilePath;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::{Cluster, Config, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::{Directory, bucket};
use ringwell_driver::change;
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::membership::Membership;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, Node, Phase};
use ringwell_driver::queue::Peers;
use ringwell_driver::store::{Memory, read_lifetimes};
use ringwell_driver::witness::{self, JournalWord};
use ringwell_driver::{Moment, Path, Platform, Shard, rows, serve, writer};
use ringwell_engine::{Restore, lockout};
use ringwell_journal::Tip;
use ringwell_os::OsFiles;
use tokio::sync::mpsc;

use crate::support::{Virtual, body, bulk};

const LIFETIME: Millis = Millis(60_000);
const SHORT: Millis = Millis(5_000);
const CLUSTER: &str = r#"version = 1
secret = "a-secret-of-the-tests"
[[node]]
name = "a"
shards = [0]
link = "127.0.0.1:9000"
listen = ["127.0.0.1:8080"]
[[node]]
name = "b"
shards = [1]
link = "127.0.0.1:9001"
listen = ["127.0.0.1:8081"]
"#;

/// Creates one of the cluster's two nodes. At startup, the node finds the journal `found`.
fn node(cluster: &Cluster, own: u16, data: &FilePath, found: (&str, u64)) -> Arc<Node> {
    node_with(10, cluster, own, data, found)
}

/// Like [`node`], but with `pools` pools.
fn node_with(
    pools: u32,
    cluster: &Cluster,
    own: u16,
    data: &FilePath,
    found: (&str, u64),
) -> Arc<Node> {
    let membership = Membership::new(cluster.clone(), ["a", "b"][usize::from(own)]).unwrap();
    let directory = Directory::new(1, demo_pools(pools, 20, LIFETIME).unwrap(), 2).unwrap();
    let owners = cluster.map().owners();
    let directory = directory.placed(owners.placement());
    let begun = Begun {
        identity: found.0.to_owned(),
        is_first: found.1 == 1,
        journals: vec![(own, found.1)],
        ..Begun::default()
    };
    let config = Config::new(data.into(), 1);
    let opened = (Some(owners), begun);
    let node = Node::new(config, directory, &[own], Some(membership), opened);
    node.enter(Phase::Serving);
    Arc::new(node)
}

/// Creates the shard of `node`. Also starts the shard's tasks, and a task that answers reports in
/// place of the other node.
fn shard(platform: &Virtual, node: &Arc<Node>, other: &Arc<Node>) -> Rc<Shard<Virtual>> {
    shard_with(platform, node, other, &Rc::default())
}

/// Like [`shard`]; also sets `answered` to the time of the other node's last answer.
fn shard_with(
    platform: &Virtual,
    node: &Arc<Node>,
    other: &Arc<Node>,
    answered: &Rc<Cell<Option<Moment>>>,
) -> Rc<Shard<Virtual>> {
    let specs = node.directory().pools_of(0).map(|pool| rows::spec(pool)).collect();
    let read = reading(1, platform.boot_time(), platform.wall());
    let clock = Clock::going_on(read.resume(&[]), read.since_boot);
    let now = clock.now(platform.boot_time());
    let (engine, _) = Restore::new(specs, 10).finish(Tip::FIRST.raise_epoch(), now, false);
    let mut peers = Peers::default();
    let (way, queue) = mpsc::channel(8);
    peers.add(0, way);
    let (way, mut posts) = mpsc::channel(8);
    peers.add(1, way);
    let shard = Shard::new(0, Arc::clone(node), platform.clone(), engine, clock, peers);
    let shard = Rc::new(shard);
    let store = Rc::new(Memory::new([1; 16], 1 << 20));
    platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
    platform.spawn(serve::serve(Rc::clone(&shard), Vec::new(), store, || 0, queue));
    let (at, other, answered) = (platform.clone(), Arc::clone(other), Rc::clone(answered));
    platform.spawn(async move {
        // The other node answers only journal reports.
        let mut unanswered = Vec::new();
        while let Some(message) = posts.recv().await {
            let Message::Post { path: Path::Journals, body, reply, .. } = message else {
                unanswered.push(message);
                continue;
            };
            let said = serde_json::from_slice(&body).unwrap();
            let known = witness::learn(&at, &other, said).await.unwrap();
            answered.set(Some(at.moment()));
            let _ = reply.send(Ok(serde_json::to_vec(&known).unwrap().into()));
        }
    });
    shard
}

/// Returns `node`'s record of the journal of shard 0.
async fn remembered(platform: &Virtual, node: &Arc<Node>) -> Vec<JournalWord> {
    let asked = serde_json::from_str(r#"{"shards":[0],"journals":[]}"#).unwrap();
    witness::learn(platform, node, asked).await.unwrap()
}

#[test]
pub(crate) fn a_disk_that_cannot_record_a_lost_journal_causes_a_refusal_and_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ringwell_driver::store::write_whole(&OsFiles, &path("cluster.toml"), CLUSTER.as_bytes())
        .unwrap();
    let cluster = Cluster::load(&path("cluster.toml")).unwrap();
    std::fs::create_dir(path("b")).unwrap();
    // A file exists at the data directory's path, so all writes to that directory fail.
    std::fs::write(path("full"), "").unwrap();
    let platform = Virtual::default();
    let own = node(&cluster, 0, &path("full"), ("new", 1));
    let other = node(&cluster, 1, &path("b"), ("b", 1));
    let before: JournalWord = (0, "old".to_owned(), 7);
    platform.run(async {
        let report = serde_json::json!({"shards": [], "journals": [before]});
        witness::learn(&platform, &other, serde_json::from_value(report).unwrap()).await.unwrap();
        let shard = shard(&platform, &own, &other);
        let away = witness::begin(&platform, &own, &shard.peers).await;
        assert_eq!(away, [1], "it has to be queried again");
        let later = witness::go_on(platform.clone(), Arc::clone(&own), shard.peers.clone(), away);
        platform.spawn(later);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        let own_pools = own.directory().pools_of(0).count();
        assert!(own_pools > 2);
        let answer = bulk(&shard, body(&shard, 10), &platform.terms(20)).await;
        assert_eq!(answer.matches("\"overflow\":true").count(), 10, "{answer}");
        assert_eq!(shard.engine.borrow().counts().allocated, 0);
        // The hold could not be written to a file. The other node keeps the old record, so this
        // node will detect the difference again at its next startup.
        assert_eq!(remembered(&platform, &other).await, [before]);
        // Once the disk accepts writes, this node sends its report to the other node.
        std::fs::remove_file(path("full")).unwrap();
        std::fs::create_dir(path("full")).unwrap();
        platform.sleep_until(platform.moment() + Duration::from_secs(40)).await;
        let known = remembered(&platform, &other).await;
        // The data directory gets a new identity, so that a copy of the directory can be detected
        // later.
        assert_eq!(known[0].1, own.identity());
        assert!(!["old", "new"].contains(&&*known[0].1), "{known:?}");
    });
}

#[test]
pub fn a_report_whose_sender_has_gone_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (_, other) = two_nodes(10, folder.path());
    let platform = Virtual::default();
    platform.run(async {
        let report = |groups: u64| {
            let said = serde_json::json!({"shards": [], "journals": [[0, "old", groups]]});
            witness::learn(&platform, &other, serde_json::from_value(said).unwrap())
        };
        report(5).await.unwrap();
        // The sender of a report stops waiting while the other node is storing the report.
        assert!(platform.within(Duration::ZERO, report(7)).await.is_none());
        platform.sleep_until(platform.moment() + Duration::from_secs(1)).await;
        assert_eq!(remembered(&platform, &other).await, [(0, "old".to_owned(), 7)]);
    });
}

#[test]
fn pools_are_held_as_soon_as_a_lost_journal_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = two_nodes(10, folder.path());
    let platform = Virtual::default();
    let before: JournalWord = (0, "old".to_owned(), 7);
    platform.run(async {
        let report = serde_json::json!({"shards": [], "journals": [before]});
        witness::learn(&platform, &other, serde_json::from_value(report).unwrap()).await.unwrap();
        let answered = Rc::default();
        let shard = shard_with(&platform, &own, &other, &answered);
        let asked = witness::go_on(platform.clone(), own, shard.peers.clone(), vec![1]);
        platform.spawn(asked);
        let (mut known_at, mut before, mut after) = (None, 0, 0);
        while known_at.is_none_or(|known| platform.moment().since(known) < Duration::from_secs(3)) {
            platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
            let answer = bulk(&shard, body(&shard, 10), &platform.terms(20)).await;
            let numbers = 10 - answer.matches("\"overflow\":true").count();
            known_at = known_at.or(answered.get());
            match known_at {
                Some(_) => after += numbers,
                None => before += numbers,
            }
        }
        assert!(before > 0, "the pools were never served");
        assert_eq!(after, 0, "numbers were given after the other node's answer");
    });
}

/// Creates both nodes of a cluster. Each has `pools` pools and an empty data directory in `folder`.
fn two_nodes(pools: u32, folder: &FilePath) -> (Arc<Node>, Arc<Node>) {
    let path = |name: &str| folder.join(name);
    ringwell_driver::store::write_whole(&OsFiles, &path("cluster.toml"), CLUSTER.as_bytes())
        .unwrap();
    let cluster = Cluster::load(&path("cluster.toml")).unwrap();
    let node = |own, name: &str| {
        std::fs::create_dir(path(name)).unwrap();
        node_with(pools, &cluster, own, &path(name), (name, 1))
    };
    (node(0, "a"), node(1, "b"))
}

#[test]
fn a_large_list_waits_once_for_a_silent_node() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = two_nodes(10, folder.path());
    let platform = Virtual::default();
    platform.run(async {
        let shard = shard(&platform, &own, &other);
        let begun = platform.moment();
        let many = |before: &Directory| {
            let new = demo_pools(20_000, 20, LIFETIME).unwrap().split_off(10);
            before.change(new, &[])
        };
        change::apply(&platform, &own, &shard.peers, many).await.unwrap();
        let took = platform.moment().since(begun);
        assert!(took < Duration::from_secs(2), "{took:?}");
        let all = own.bucket_holds();
        let new = own.directory().pools_of(0).filter(|pool| pool.id().0 > 10).count();
        assert!(new > 5_000, "the list needs more than one query: {new} pools");
        for pool in own.directory().pools_of(0).filter(|pool| pool.id().0 > 10) {
            let hold = all.get(bucket(pool.id()));
            assert!(hold.is_some_and(|hold| hold.until > shard.now()), "{:?}", pool.id());
        }
    });
}

#[test]
fn a_first_start_with_many_pools_waits_once_for_a_silent_node() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = two_nodes(20_000, folder.path());
    let platform = Virtual::default();
    platform.run(async {
        let shard = shard(&platform, &own, &other);
        let begun = platform.moment();
        witness::begin(&platform, &own, &shard.peers).await;
        // The limit of three seconds includes one second for reporting this node's journals.
        let took = platform.moment().since(begun);
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
}

#[test]
pub(crate) fn a_hold_lasts_as_long_as_a_lifetime_of_the_list_before_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = two_nodes(10, folder.path());
    let platform = Virtual::default();
    platform.run(async {
        let shard = shard(&platform, &own, &other);
        let shorter = |before: &Directory| before.change(demo_pools(10, 20, SHORT).unwrap(), &[]);
        change::apply(&platform, &own, &shard.peers, shorter).await.unwrap();
        let since = shard.now();
        let kept = read_lifetimes(&OsFiles, &folder.path().join("a")).unwrap().unwrap();
        assert_eq!(kept.longest(since), lockout(LIFETIME));
        platform.sleep_until(platform.moment() + Duration::from_secs(1)).await;
        let more = |before: &Directory| {
            before.change(demo_pools(40, 20, SHORT).unwrap().split_off(10), &[])
        };
        change::apply(&platform, &own, &shard.peers, more).await.unwrap();
        let directory = own.directory();
        let new: Vec<_> = directory.pools_of(0).filter(|pool| pool.id().0 > 10).collect();
        assert!(!new.is_empty());
        for pool in new {
            let hold = own.bucket_holds().get(bucket(pool.id())).unwrap();
            assert!(hold.until >= since + lockout(LIFETIME), "{:?}: {:?}", pool.id(), hold.until);
        }
    });
}
