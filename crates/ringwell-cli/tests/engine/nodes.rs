//! Several nodes whose journals are on the same NATS servers. The cluster file assigns different
//! shards to each node.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ringwell_core::PoolId;
use ringwell_directory::Placement;
use tempfile::TempDir;

use crate::servers::Nats;
use crate::support::batch::{self, Ask, BULK, Row};
use crate::support::client::Client;
use crate::support::server::Server;
use crate::support::site::{Pool, Site};
use crate::trial::wait_until;

const NAMES: [&str; 2] = ["a", "b"];
const POOLS: u64 = 8;
/// The count of numbers in a pool. A test requests fewer numbers than this while links are being
/// opened.
const NUMBERS: u64 = 20_000;
const HALF_AN_HOUR: Duration = Duration::from_mins(30);

/// Two nodes with one shard each.
struct Nodes {
    folder: TempDir,
    sites: [Site; 2],
    /// The allocated numbers.
    given: BTreeSet<u64>,
}

impl Nodes {
    fn new(nats: &Nats, settings: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let pools = || (1..=POOLS).map(|id| Pool::new(id, NUMBERS, HALF_AN_HOUR)).collect();
        let settings = format!("{}{settings}", nats.settings());
        let sites = NAMES.map(|_| Site::new(pools(), &settings));
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let node = |(shard, name): (usize, &str)| {
            format!(
                "[[node]]\nname = \"{name}\"\nshards = [{shard}]\nlink = \"127.0.0.1:{}\"\n\
                 listen = [\"127.0.0.1:{}\"]\n",
                port(),
                8080 + shard
            )
        };
        let nodes = (0..).zip(NAMES).map(node).collect::<Vec<_>>().concat();
        let map = format!("version = 1\nsecret = \"the-secret-of-this-cluster\"\n{nodes}");
        fs::write(folder.path().join("cluster.toml"), map).unwrap();
        Self { folder, sites, given: BTreeSet::new() }
    }

    fn map(&self) -> PathBuf {
        self.folder.path().join("cluster.toml")
    }

    fn command(&self, node: usize) -> Command {
        let map = self.map();
        let flags = ["--cluster", map.to_str().unwrap(), "--node", NAMES[node]];
        self.sites[node].serve(&[&flags[..], &["--deadline", "5s"]].concat())
    }

    fn start(&self, node: usize) -> Server {
        Server::start(self.command(node))
    }

    /// Returns the command that starts the node with another data directory, as on another machine.
    fn start_elsewhere(&self, node: usize, name: &str) -> Command {
        let mut command = self.command(node);
        command.env("RINGWELL_DATA", self.folder.path().join(name));
        command
    }

    /// Sends one batch with a row for each pool.
    fn ask(&self, client: &mut Client, id: &str) -> Vec<Row> {
        let ask = |pool| Ask { pool, id: format!("{id}-{pool}") };
        let asks: Vec<Ask> = (1..=POOLS).map(ask).collect();
        let body = batch::body(&asks, &self.sites[0].pools);
        let rows = batch::rows(&client.post(BULK, &[], &body).unwrap());
        assert_eq!(rows.len(), asks.len());
        rows
    }

    /// Sends batches until one batch gets a number for each row. Rows overflow before the
    /// connections are open. On a busy machine, they also overflow if storing a group takes more
    /// than 250 ms. Checks that no number is handed out twice.
    fn wait_for_all(&mut self, server: &Server) {
        let mut client = server.client();
        let mut given = Vec::new();
        wait_until("rows of a node overflow", || {
            let rows = self.ask(&mut client, "wait");
            given.extend(rows.iter().filter(|row| !row.overflow).map(|row| row.number));
            rows.iter().all(|row| !row.overflow)
        });
        for number in given {
            assert!(self.given.insert(number), "{number} went out before");
        }
    }
}

#[test]
fn nodes_share_a_log_and_one_that_lost_its_disk_resumes_where_it_was() {
    let Some(nats) = Nats::start(1) else { return };
    let mut nodes = Nodes::new(&nats, "");
    let first = nodes.start(0);
    let second = nodes.start(1);
    nodes.wait_for_all(&first);
    nodes.wait_for_all(&second);
    second.kill();
    fs::remove_dir_all(nodes.sites[1].data()).unwrap();
    let second = nodes.start(1);
    nodes.wait_for_all(&first);
    nodes.wait_for_all(&second);
    assert!(!second.log().contains("had a different or longer journal"), "{}", second.log());
    first.stop();
    second.stop();
}

#[test]
fn a_stopping_node_hands_its_shards_to_its_standby() {
    let Some(nats) = Nats::start(3) else { return };
    let mut nodes = Nodes::new(&nats, "journal.standby = true\n");
    let first = nodes.start(0);
    let second = nodes.start(1);
    nodes.wait_for_all(&second);
    let command = nodes.start_elsewhere(0, "a2");
    let limit = Duration::from_mins(2);
    let waiting =
        thread::spawn(move || (Server::try_start_within(command, limit).unwrap(), Instant::now()));
    // If the standby followed node b's heartbeats or no heartbeats at all, it would have taken over
    // by now.
    sleep(Duration::from_secs(5));
    assert!(!waiting.is_finished(), "the owner lives");
    // While the standby waits, its configuration has an error for a while, and a pool gets another
    // key.
    let config = nodes.sites[0].config();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("nonsense = 1\n{text}")).unwrap();
    sleep(Duration::from_secs(32));
    fs::write(&config, text).unwrap();
    for site in &mut nodes.sites {
        let mut pools = site.pools.clone();
        "another-key-of-00001".clone_into(&mut pools[0].key);
        site.write(pools);
    }
    second.reload();
    let stopping = Instant::now();
    first.stop();
    let stopped = Instant::now();
    let (third, serving) = waiting.join().unwrap();
    println!("stopped in {:?}, served {:?} later", stopped - stopping, serving - stopped);
    assert!(serving - stopped < Duration::from_secs(3), "{:?}", serving - stopped);
    nodes.wait_for_all(&second);
    nodes.wait_for_all(&third);
    third.says("after the wait as a standby: pools");
    third.says("the configuration of this standby has errors");
    third.stop();
    second.stop();
}

#[test]
fn the_other_nodes_detect_a_log_that_has_lost_its_end() {
    let Some(nats) = Nats::start(1) else { return };
    let mut nodes = Nodes::new(&nats, "");
    let first = nodes.start(0);
    let second = nodes.start(1);
    nodes.wait_for_all(&first);
    // Node b reports the position of its journal to node a once per second.
    sleep(Duration::from_secs(3));
    second.kill();
    fs::remove_dir_all(nodes.sites[1].data()).unwrap();
    for stream in ["RINGWELL_1", "RINGWELL_1_snapshots"] {
        nats.publish(&format!("$JS.API.STREAM.DELETE.{stream}"), "");
    }
    let second = nodes.start(1);
    second.says("had a different or longer journal");
    let (mut client, mut rows) = (second.client(), Vec::new());
    wait_until("node a's rows overflow, too", || {
        rows = nodes.ask(&mut client, "held");
        rows.iter().any(|row| !row.overflow)
    });
    let placement = Placement::even(2).unwrap();
    let owned = (1..).zip(&rows).filter(|(pool, _)| placement.shard(PoolId(*pool)) == 1);
    let owned: Vec<&Row> = owned.map(|(_, row)| row).collect();
    assert!(!owned.is_empty() && owned.iter().all(|row| row.overflow), "{rows:?}");
    // The node reports the hold, but stays ready for the load balancer, because no other node could
    // serve these pools.
    let mut held = serde_json::Value::Null;
    wait_until("the hold is not reported, or the node is not ready", || {
        let ready = client.get("/readyz", &[]).unwrap();
        let reasons = ready.json()["reasons"].as_array().unwrap().clone();
        held = reasons.into_iter().find(|reason| reason["state"] == "held").unwrap_or_default();
        ready.status == 200 && !held.is_null()
    });
    assert_eq!(held["shard"], 1);
    assert!(held["left_ms"].as_u64().unwrap() > 1_000_000, "{held}");
    let page = client.get("/metrics", &[]).unwrap().body;
    assert!(!page.contains("ringwell_held_seconds{shard=\"1\"} 0"), "{page}");
    first.stop();
    second.stop();
}

#[test]
fn a_cluster_file_that_places_pools_elsewhere_is_refused() {
    let Some(nats) = Nats::start(1) else { return };
    let nodes = Nodes::new(&nats, "");
    nodes.start(0).stop();
    let map = fs::read_to_string(nodes.map()).unwrap();
    fs::write(nodes.map(), map.replace("version = 1", "version = 2").replace("[1]", "[1, 2]"))
        .unwrap();
    let refused = Server::try_start(nodes.command(0)).unwrap_err();
    assert!(refused.log.contains("another placement of pools"), "{}", refused.log);
    let alone = nodes.sites[0].serve(&["--listen", "127.0.0.1:0", "--shards", "1"]);
    let refused = Server::try_start(alone).unwrap_err();
    assert!(refused.log.contains("belongs to a node of a cluster"), "{}", refused.log);
}

#[test]
fn foreign_messages_are_reported_and_skipped() {
    let Some(nats) = Nats::start(1) else { return };
    let mut nodes = Nodes::new(&nats, "");
    let first = nodes.start(0);
    let second = nodes.start(1);
    nodes.wait_for_all(&first);
    for text in ["not a group", "", "{\"some\":\"thing\"}"] {
        nats.publish("ringwell_1.groups", text);
        nodes.wait_for_all(&second);
    }
    second.says("another program has published to the journal's stream");
    second.says("not a group");
    second.says("subject ringwell_1.groups");
    // Publishes again two messages that the node itself wrote.
    for place in [2, 4] {
        nats.client().publish_again("RINGWELL_1", place);
        nodes.wait_for_all(&second);
    }
    second.says("begins\":\"RPm1");
    second.kill();
    // Starts the node with its copy of the log, then on a machine without a copy.
    let second = nodes.start(1);
    nodes.wait_for_all(&second);
    second.kill();
    fs::remove_dir_all(nodes.sites[1].data()).unwrap();
    let second = nodes.start(1);
    nodes.wait_for_all(&second);
    assert!(!second.log().contains("overflow"), "{}", second.log());
    nodes.wait_for_all(&first);
    first.stop();
    second.stop();
}

#[test]
fn pools_are_held_if_a_stream_ends_with_a_foreign_message() {
    let Some(nats) = Nats::start(1) else { return };
    let mut nodes = Nodes::new(&nats, "");
    let first = nodes.start(0);
    let second = nodes.start(1);
    nodes.wait_for_all(&first);
    second.kill();
    nats.publish("ringwell_1.groups", "not a group");
    let second = nodes.start(1);
    second.says("the journal's stream ends with messages from another program");
    let rows = nodes.ask(&mut second.client(), "held");
    assert!(rows.iter().any(|row| row.overflow), "{rows:?}");
    first.stop();
    second.stop();
}
