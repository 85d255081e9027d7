//! Tests two real nodes of a cluster: batches that gather numbers from both nodes, and nodes that
//! are slow, stopped, killed, restarted, or not part of the cluster.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "cluster/alone.rs"]
mod alone;
#[path = "cluster/clocks.rs"]
mod clocks;
#[path = "support/collector.rs"]
mod collector;
#[path = "cluster/faults.rs"]
mod faults;
#[path = "cluster/handover.rs"]
mod handover;
#[path = "support/history.rs"]
mod history;
#[path = "cluster/judged.rs"]
mod judged;
#[path = "cluster/late.rs"]
mod late;
#[path = "cluster/lists.rs"]
mod lists;
#[path = "cluster/lost.rs"]
mod lost;
#[path = "hostile/metrics.rs"]
mod metrics;
#[path = "cluster/moved.rs"]
mod moved;
#[path = "cluster/moves.rs"]
mod moves;
#[path = "cluster/newer_file.rs"]
mod newer_file;
#[path = "cluster/page.rs"]
mod page;
#[path = "cluster/strangers.rs"]
mod strangers;
mod support;
#[path = "cluster/traces.rs"]
mod traces;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use history::{Event, doubles};
use ringwell_core::PoolId;
use ringwell_directory::Placement;
use serde_json::Value;
use support::batch::{self, Ask, BULK, Row, attribution, holder, release};
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const NAMES: [&str; 2] = ["a", "b"];
const POOLS: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "the-secret-of-this-cluster";
const HALF_AN_HOUR: Duration = Duration::from_mins(30);

/// Two nodes with one shard and one site each, and the same pools.
struct Cluster {
    folder: TempDir,
    /// The port of node a's link.
    port: u16,
    deadline: &'static str,
    sites: Vec<Site>,
}

impl Cluster {
    /// Creates a cluster with long time limits for links: test machines may be slow, and most tests
    /// are not about late rows.
    fn new(numbers: u64, lifetime: Duration) -> Self {
        let links = "[links]\ndeadline = \"5s\"\nslow = \"5s\"\nwait = \"5s\"\n";
        Self::with("10s", links, numbers, lifetime)
    }

    /// Creates a cluster with the default settings for links.
    fn quick(deadline: &'static str, numbers: u64, lifetime: Duration) -> Self {
        Self::with(deadline, "", numbers, lifetime)
    }

    fn with(deadline: &'static str, links: &str, numbers: u64, lifetime: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        let pools = || (1..=POOLS).map(|id| Pool::new(id, numbers, lifetime)).collect::<Vec<_>>();
        let sites = NAMES.map(|_| Site::new(pools(), links)).into();
        // This port is free now, and node a will bind it shortly.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { folder, port, deadline, sites };
        cluster.write_map("cluster.toml", 1, SECRET, [&[0], &[1]]);
        cluster
    }

    /// Writes a cluster file in which node i has the shards `shards[i]`.
    fn write_map(&self, file: &str, version: u64, secret: &str, shards: [&[u16]; 2]) {
        let node = |(name, shards): (&&str, &[u16])| {
            // The nodes use different kinds of links, so that both kinds are tested.
            let link = match *name {
                "a" => format!("127.0.0.1:{}", self.port),
                _ => format!("unix:{}", self.path("b.link").display()),
            };
            format!(
                "[[node]]\nname = \"{name}\"\nshards = {shards:?}\nlink = \"{link}\"\n\
                 listen = [\"127.0.0.1:{}\"]\n",
                8080 + shards[0]
            )
        };
        let nodes: String = NAMES.iter().zip(shards).map(node).collect();
        let map = format!("version = {version}\nsecret = \"{secret}\"\n{nodes}");
        fs::write(self.path(file), map).unwrap();
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn command(&self, node: usize, map: &str) -> Command {
        let map = self.path(map);
        let flags = ["--cluster", map.to_str().unwrap(), "--node", NAMES[node]];
        self.sites[node].serve(&[&flags[..], &["--deadline", self.deadline]].concat())
    }

    fn start(&self, node: usize) -> Server {
        Server::start(self.command(node, "cluster.toml"))
    }

    fn start_both(&self) -> [Server; 2] {
        [0, 1].map(|node| self.start(node))
    }

    fn pools(&self) -> &[Pool] {
        &self.sites[0].pools
    }

    /// Returns the node that owns a pool.
    fn owner(pool: u64) -> usize {
        usize::from(Placement::even(2).unwrap().shard(PoolId(pool)))
    }

    /// Sends one batch with a row for each pool. Checks that the rows are in order, and that each
    /// number belongs to the row's pool.
    fn ask(&self, client: &mut Client, id: &str) -> Vec<Row> {
        let asks: Vec<Ask> =
            (1..=POOLS).map(|pool| Ask { pool, id: format!("{id}-{pool}") }).collect();
        let answer = client.post(BULK, &[], &batch::body(&asks, self.pools())).unwrap();
        let rows = batch::rows(&answer);
        assert_eq!(rows.len(), asks.len());
        for ((ask, row), pool) in asks.iter().zip(&rows).zip(self.pools()) {
            assert_eq!(ask.id, row.id);
            let is_own = (pool.first..pool.first + pool.numbers).contains(&row.number);
            assert_eq!(row.overflow, !is_own, "{row:?}");
            assert!(is_own || row.number == pool.overflow, "{row:?}");
        }
        rows
    }

    /// Sends batches until all rows get numbers of their own, or, if `other_answers` is false,
    /// until all rows of the other node's pools overflow.
    fn ask_until(&self, client: &mut Client, asked: usize, other_answers: bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = self.ask(client, "until");
            let is_there = |(pool, row): (u64, &Row)| {
                row.overflow == (Self::owner(pool) != asked && !other_answers)
            };
            if (1..).zip(&rows).all(is_there) {
                return;
            }
            assert!(Instant::now() < until, "{rows:?}");
            sleep(Duration::from_millis(10));
        }
    }
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn shards(client: &mut Client) -> Value {
    let token = format!("Bearer {TOKEN}");
    client.get("/v1/shards", &[("authorization", &token)]).unwrap().json()
}

#[test]
fn a_batch_gathers_from_both_nodes_whichever_receives_it() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let mut clients = servers.each_ref().map(Server::client);
    let mut numbers = Vec::new();
    for round in 0..2 {
        for (node, client) in clients.iter_mut().enumerate() {
            let rows = cluster.ask(client, &format!("r{round}n{node}"));
            assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
            numbers.extend(rows.iter().map(|row| row.number));
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4 * 8, "no number went out twice");
    let rows = cluster.ask(&mut clients[0], "exhausted");
    assert!(rows.iter().all(|row| row.overflow), "all are locked out: {rows:?}");

    // Look-ups and releases are forwarded to the owner, whichever node receives the request.
    for client in &mut clients {
        for number in [numbers[0], numbers[31]] {
            let held = attribution(client, number, now_ms()).unwrap();
            assert_eq!(held["outcome"], "allocated", "{held}");
            assert!(held["parameters"]["id"].as_str().unwrap().starts_with('r'), "{held}");
        }
    }
    assert!(release(&mut clients[0], numbers[31]) && release(&mut clients[1], numbers[0]));
    sleep(Duration::from_millis(5));
    let rows = cluster.ask(&mut clients[0], "again");
    assert_eq!(rows.iter().filter(|row| !row.overflow).count(), 2, "{rows:?}");

    let overview = shards(&mut clients[0]);
    assert_eq!((&overview["node"], &overview["map_version"]), (&"a".into(), &1.into()));
    let link = &overview["shards"][0]["links"][0];
    assert_eq!(
        (&link["shard"], &link["node"], &link["state"]),
        (&1.into(), &"b".into(), &"open".into())
    );
    assert_eq!(metrics::sum(&servers[0], "ringwell_link_lost_total"), 0);
    assert!(metrics::sum(&servers[0], "ringwell_link_requests_total") > 0);
}

#[test]
fn a_batch_repeated_at_the_other_node_gets_its_answer() {
    let cluster = Cluster::new(20, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: pool.to_string() }).collect();
    let body = batch::body(&asks, cluster.pools());
    let key = [("idempotency-key", "order-1")];
    let answers =
        servers.each_ref().map(|server| server.client().post(BULK, &key, &body).unwrap().body);
    assert_eq!(answers[0], answers[1]);
    assert!(!answers[0].contains("overflow"), "{}", answers[0]);
}

#[test]
fn pools_of_a_new_map_are_held_for_a_lifetime() {
    let lifetime = Duration::from_secs(2);
    let cluster = Cluster::new(40, lifetime);
    let [first, second] = cluster.start_both();
    let rows = cluster.ask(&mut first.client(), "before");
    assert!(rows.iter().all(|row| !row.overflow));
    first.stop();
    second.stop();
    // Node a gives all its buckets except one to node b.
    let map = fs::read_to_string(cluster.path("cluster.toml")).unwrap();
    let buckets = "[[buckets]]\nfirst = 0\nlast = 0\nshard = 0\n\
                   [[buckets]]\nfirst = 1\nlast = 1023\nshard = 1\n";
    let map = map.replace("version = 1", "version = 2") + buckets;
    fs::write(cluster.path("cluster.toml"), map).unwrap();
    let begun = Instant::now();
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    let rows = cluster.ask(&mut client, "held");
    let is_held = begun.elapsed() < lifetime;
    for (pool, row) in (1..).zip(&rows) {
        // The pools that node b already owned still hand out their numbers.
        assert!(!is_held || row.overflow == (Cluster::owner(pool) == 0), "{row:?}");
    }
    cluster.ask_until(&mut client, 0, true);
}

#[test]
fn data_of_another_nodes_shard_is_refused() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    cluster.start(0).stop();
    cluster.write_map("swapped.toml", 2, SECRET, [&[1], &[0]]);
    let refused = Server::try_start(cluster.command(0, "swapped.toml")).unwrap_err();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("the journal of shard 0"), "{}", refused.log);
}

#[test]
fn a_map_older_than_the_data_is_refused() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    cluster.write_map("third.toml", 3, SECRET, [&[0], &[1]]);
    Server::start(cluster.command(0, "third.toml")).stop();
    let refused = Server::try_start(cluster.command(0, "cluster.toml")).unwrap_err();
    assert!(refused.log.contains("version 3 was last used"), "{}", refused.log);
}

#[test]
fn a_look_up_needs_only_the_owner_of_the_number() {
    let cluster = Cluster { deadline: "1s", ..Cluster::new(4, HALF_AN_HOUR) };
    let [first, second] = cluster.start_both();
    let mut client = first.client();
    let rows = cluster.ask(&mut client, "id");
    second.kill();
    for (pool, row) in (1..).zip(&rows) {
        let held = attribution(&mut client, row.number, now_ms()).unwrap();
        if Cluster::owner(pool) == 0 {
            assert_eq!(held["outcome"], "allocated", "{held}");
            assert_eq!(held["unreachable_shards"], serde_json::json!([1]), "{held}");
        } else {
            assert_eq!(held["status"], 503, "{held}");
            assert!(held.to_string().contains("shard 1 of node b"), "{held}");
        }
    }
}

#[test]
fn a_client_with_a_short_deadline_does_not_shrink_a_nodes_window() {
    let cluster = Cluster::new(400, HALF_AN_HOUR);
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: "quick".to_owned() }).collect();
    let body = batch::body(&asks, cluster.pools());
    for deadline in ["0", "3", "6", "7", "8"].iter().cycle().take(60) {
        client.post(BULK, &[("ringwell-deadline-ms", deadline)], &body).unwrap();
    }
    assert_eq!((link(&mut client, "slow"), link(&mut client, "overflow_rows")), (0, 0));
    let rows = cluster.ask(&mut client, "after");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
}

fn link(client: &mut Client, field: &str) -> u64 {
    shards(client)["shards"][0]["links"][0][field].as_u64().unwrap()
}

#[test]
fn a_restarted_node_causes_a_new_connection_and_loses_no_number() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    let [first, second] = cluster.start_both();
    let mut client = first.client();
    let mut connects = Vec::new();
    for round in 0..3 {
        assert!(cluster.ask(&mut client, &format!("b{round}")).iter().all(|row| !row.overflow));
        connects.push(link(&mut client, "connects"));
    }
    // `connects` also counts node a's attempts to connect before node b had started.
    let [before, .., connects] = connects[..] else { panic!("{connects:?}") };
    // On a busy machine, one connection may be lost.
    assert!(connects <= before + 1, "{before} {connects}");
    let began = Instant::now();
    second.stop();
    let _second = cluster.start(1);
    let rows = cluster.ask(&mut client, "after");
    assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
    // Node a also connects every second to report its journal's progress.
    let connects_now = link(&mut client, "connects");
    let most = connects + 3 + 2 * began.elapsed().as_secs();
    assert!((connects + 1..=most).contains(&connects_now), "{connects} {connects_now} {most}");
}

#[test]
fn ten_thousand_batches_share_a_few_connections() {
    let cluster = Cluster::new(40, Duration::from_millis(5));
    let servers = cluster.start_both();
    thread::scope(|scope| {
        for name in 0..32 {
            let (cluster, server) = (&cluster, &servers[0]);
            scope.spawn(move || {
                let mut client = server.client();
                for round in 0..320 {
                    cluster.ask(&mut client, &format!("c{name}-{round}"));
                }
            });
        }
    });
    let mut client = servers[0].client();
    let (connects, requests) = (link(&mut client, "connects"), link(&mut client, "requests"));
    // The window limits the number of requests in flight, and each of them needs one connection. A
    // slow answer may occasionally require another connection.
    assert!(connects <= 32, "{connects} connections for {requests} requests");
    assert!(requests > 9_000, "{requests}");
}

#[test]
fn nodes_with_several_shards_each_gather_from_all() {
    let cluster = Cluster::new(12, HALF_AN_HOUR);
    cluster.write_map("four.toml", 1, SECRET, [&[0, 3], &[1, 2]]);
    let servers = [0, 1].map(|node| Server::start(cluster.command(node, "four.toml")));
    let mut numbers = Vec::new();
    for round in 0..12 {
        // Each batch uses a new connection, so any of the node's shards may accept it.
        let rows = cluster.ask(&mut servers[round % 2].client(), &format!("r{round}"));
        assert!(rows.iter().all(|row| !row.overflow), "{rows:?}");
        numbers.extend(rows.iter().map(|row| row.number));
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 12 * 8, "no number went out twice");
    let overview = shards(&mut servers[1].client());
    let shards = overview["shards"].as_array().unwrap();
    let of = |field: &str, value: &Value| value[field].as_u64().unwrap();
    assert_eq!(shards.iter().map(|shard| of("shard", shard)).collect::<Vec<_>>(), [1, 2]);
    for shard in shards {
        let links = shard["links"].as_array().unwrap();
        assert_eq!(links.iter().map(|link| of("shard", link)).collect::<Vec<_>>(), [0, 3]);
    }
    for server in servers {
        server.stop();
    }
}

/// The process must end before it opens a journal. In a distributed log, opening a journal takes
/// the shard over from the process that serves it.
#[test]
fn a_process_whose_link_address_is_in_use_ends_before_it_opens_a_journal() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    let server = cluster.start(0);
    let (site, map) = (&cluster.sites[1], cluster.path("cluster.toml"));
    let second = site.serve(&["--cluster", map.to_str().unwrap(), "--node", "a"]).output().unwrap();
    let log = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{log}");
    assert!(log.contains(&format!("cannot listen on 127.0.0.1:{}", cluster.port)), "{log}");
    assert!(!site.data().join("journal").exists());
    server.stop();
}
