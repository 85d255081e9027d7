//! Two real nodes of a cluster: batches that gather from both, and what happens when one is slow,
//! stopped, killed, started again, or a stranger.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "support/history.rs"]
mod history;
#[path = "hostile/metrics.rs"]
mod metrics;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use history::{Event, doubles};
use ringwell_core::PoolId;
use ringwell_directory::Placement;
use serde_json::Value;
use support::batch::{self, Ask, BULK, Row, attribution, release};
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const NAMES: [&str; 2] = ["a", "b"];
const POOLS: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "the-secret-of-this-cluster";
const HALF_AN_HOUR: Duration = Duration::from_mins(30);

/// Two nodes with a shard each, one site a node, the same pools.
struct Cluster {
    folder: TempDir,
    /// Of node a's links.
    port: u16,
    deadline: &'static str,
    sites: Vec<Site>,
}

impl Cluster {
    fn new(numbers: u64, lifetime: Duration) -> Self {
        let folder = TempDir::new().unwrap();
        let pools = || (1..=POOLS).map(|id| Pool::new(id, numbers, lifetime)).collect::<Vec<_>>();
        let sites = NAMES.map(|_| Site::new(pools(), "")).into();
        // Free at this moment; the node binds it in the next.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { folder, port, deadline: "10s", sites };
        cluster.write_map("cluster.toml", 1, SECRET, [0, 1]);
        cluster
    }

    /// `shards[i]` is the shard of node i.
    fn write_map(&self, file: &str, version: u64, secret: &str, shards: [u16; 2]) {
        let node = |(name, shard): (&&str, u16)| {
            // One link of each kind.
            let link = match *name {
                "a" => format!("127.0.0.1:{}", self.port),
                _ => format!("unix:{}", self.path("b.link").display()),
            };
            format!(
                "[[node]]\nname = \"{name}\"\nshards = [{shard}]\nlink = \"{link}\"\n\
                 listen = [\"127.0.0.1:{}\"]\n",
                8080 + shard
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

    /// Which node owns a pool.
    fn owner(pool: u64) -> usize {
        usize::from(Placement::even(2).unwrap().shard(PoolId(pool)))
    }

    /// One batch with a row for each pool. The rows must be in order, and each number its pool's.
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

    /// Asks until all rows of both nodes have numbers of their own, or none of the other's has.
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

fn signal(server: &Server, name: &str) {
    let status = Command::new("kill").args([name, &server.pid().to_string()]).status().unwrap();
    assert!(status.success());
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn shards(client: &mut Client) -> Value {
    let token = format!("Bearer {TOKEN}");
    client.get("/v1/shards", &[("authorization", &token)]).unwrap().json()
}

#[test]
fn a_batch_gathers_from_both_nodes_whichever_takes_it_in() {
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

    // Look-ups and releases go to the owner, whichever node is asked.
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
    assert!(metrics::sum(&servers[0], "ringwell_link_batches_total") > 0);
}

#[test]
fn a_batch_sent_again_to_the_other_node_gets_its_answer() {
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
fn a_node_that_hangs_costs_its_own_rows_their_numbers_and_nobody_time() {
    let cluster = Cluster { deadline: "100ms", ..Cluster::new(400, HALF_AN_HOUR) };
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    cluster.ask_until(&mut client, 0, true);
    signal(&servers[1], "-STOP");
    let mut longest = Duration::ZERO;
    let mut late = 0;
    for round in 0..60 {
        let begun = Instant::now();
        let rows = cluster.ask(&mut client, &format!("stopped{round}"));
        let took = begun.elapsed();
        longest = longest.max(took);
        late += u32::from(took >= Duration::from_millis(25));
        for (pool, row) in (1..).zip(&rows) {
            assert_eq!(row.overflow, Cluster::owner(pool) == 1, "{row:?}");
        }
    }
    assert!(longest < Duration::from_millis(150), "{longest:?}");
    // Told by the slow answers; then the link is shut, and its rows overflow at once.
    assert!(late <= 10, "{late} of 60 batches waited for the node that hangs");
    assert_eq!(shards(&mut client)["shards"][0]["links"][0]["state"], "shut");
    let paced = metrics::labelled(&servers[0], "ringwell_overflow_rows_total", "\"paced\"");
    assert!(paced > 0);
    signal(&servers[1], "-CONT");
    cluster.ask_until(&mut client, 0, true);
    assert_eq!(shards(&mut client)["shards"][0]["links"][0]["state"], "open");
}

#[test]
fn a_caller_that_hung_itself_does_not_blame_the_other_node() {
    let cluster = Cluster { deadline: "1s", ..Cluster::new(400, HALF_AN_HOUR) };
    let servers = cluster.start_both();
    let mut client = servers[0].client();
    cluster.ask_until(&mut client, 0, true);
    let before = shards(&mut client)["shards"][0]["links"][0]["window"].clone();
    let batches = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut client = servers[0].client();
            (0..200).map(|round| cluster.ask(&mut client, &format!("s{round}"))).count()
        });
        for _ in 0..3 {
            sleep(Duration::from_millis(20));
            signal(&servers[0], "-STOP");
            sleep(Duration::from_millis(100));
            signal(&servers[0], "-CONT");
        }
        asking.join().unwrap()
    });
    assert_eq!(batches, 200);
    let link = shards(&mut client)["shards"][0]["links"][0].clone();
    assert_eq!(link["state"], "open");
    assert!(link["window"].as_f64() >= before.as_f64(), "{before} -> {link}");
}

#[test]
fn a_node_that_is_killed_comes_back_with_all_that_was_answered() {
    let lifetime = Duration::from_secs(2);
    let cluster = Cluster { deadline: "200ms", ..Cluster::new(300, lifetime) };
    let [first, second] = cluster.start_both();
    let begun = Instant::now();
    let stop_at = begun + Duration::from_secs(6);
    let mut events = Vec::new();
    let mut second = Some(second);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut client = first.client();
            let mut events = Vec::new();
            for round in 0.. {
                if Instant::now() >= stop_at {
                    break;
                }
                let (invoked, invoked_ms) = (begun.elapsed(), now_ms());
                let rows = cluster.ask(&mut client, &format!("k{round}"));
                let (returned, returned_ms) = (begun.elapsed(), now_ms());
                let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
                events.extend((1..).zip(rows).filter(|(_, row)| !row.overflow).map(
                    |(pool, row)| Event {
                        number: row.number,
                        pool,
                        id: row.id,
                        invoked_ns: ns(invoked),
                        returned_ns: ns(returned),
                        invoked_ms,
                        returned_ms,
                    },
                ));
                sleep(Duration::from_millis(2));
            }
            events
        });
        for _ in 0..3 {
            sleep(Duration::from_millis(900));
            second.take().unwrap().kill();
            sleep(Duration::from_millis(300));
            second = Some(cluster.start(1));
        }
        events = asking.join().unwrap();
    });
    let of_the_killed = events.iter().filter(|event| Cluster::owner(event.pool) == 1).count();
    assert!(of_the_killed > 300, "{of_the_killed}");
    let pools: BTreeMap<u64, Pool> =
        cluster.pools().iter().map(|pool| (pool.id, pool.clone())).collect();
    assert_eq!(doubles(&events, &pools), Vec::<String>::new());
    let mut client = first.client();
    for event in events.iter().filter(|event| Cluster::owner(event.pool) == 1) {
        let held = attribution(&mut client, event.number, event.returned_ms).unwrap();
        assert_eq!(held["parameters"]["id"], event.id.as_str(), "{held}");
    }
}

#[test]
fn who_does_not_know_the_secret_gets_nothing_and_does_no_harm() {
    let cluster = Cluster { deadline: "200ms", ..Cluster::new(40, HALF_AN_HOUR) };
    cluster.write_map("stranger.toml", 1, "another-secret-of-16", [0, 1]);
    let servers = [cluster.start(0), Server::start(cluster.command(1, "stranger.toml"))];
    let rows = cluster.ask(&mut servers[0].client(), "a");
    for (pool, row) in (1..).zip(&rows) {
        assert_eq!(row.overflow, Cluster::owner(pool) == 1, "{row:?}");
    }
    assert!(servers[1].log().contains("the cluster's secret is missing or another"));
    for server in servers {
        let log = server.stop();
        assert!(!log.contains(SECRET) && !log.contains("another-secret"), "{log}");
    }
}

#[test]
fn a_link_takes_nothing_that_is_no_frame() {
    let cluster = Cluster::new(40, HALF_AN_HOUR);
    let server = cluster.start(0);
    let mut link = Client::connect(&format!("127.0.0.1:{}", cluster.port)).unwrap();
    let authorization = format!("Bearer {SECRET}");
    let known = [("authorization", authorization.as_str())];
    let mut status = |path: &str, headers: &[(&str, &str)], body: &str| {
        link.post(path, headers, body).unwrap().status
    };
    assert_eq!(status("/link/v1/rows", &[], ""), 401);
    assert_eq!(status("/link/v1/rows", &[("authorization", "Bearer guess")], ""), 401);
    for path in ["/link/v1/rows", "/link/v1/unanswered", "/link/v1/ping"] {
        for body in ["", "\u{1}", "\u{1}\u{1}\u{0}", "{\"requests\":[]}"] {
            let status = status(path, &known, body);
            assert!([400, 426].contains(&status), "{path} {body:?}: {status}");
        }
    }
    assert_eq!(status("/link/v1/rows", &known, "\u{7}\u{1}"), 426, "of another version");
    assert_eq!(status("/link/v1/ping", &known, "\u{1}\u{4}\u{5}"), 404, "of another node");
    assert_eq!(status("/link/v2/rows", &known, ""), 404);
    assert_eq!(status("/link/v1/release", &known, "{}"), 400);
    // Clients do not get to the links, nor nodes to the rest.
    assert_eq!(
        server.client().post("/link/v1/ping", &known, "\u{1}\u{4}\u{0}").unwrap().status,
        404
    );
    assert_eq!(link.get("/metrics", &known).unwrap().status, 405);
}

#[test]
fn pools_that_come_with_a_new_map_are_held_for_a_lifetime() {
    let lifetime = Duration::from_secs(2);
    let cluster = Cluster::new(40, lifetime);
    let [first, second] = cluster.start_both();
    let rows = cluster.ask(&mut first.client(), "before");
    assert!(rows.iter().all(|row| !row.overflow));
    first.stop();
    second.stop();
    // Node a gives all its buckets but one to node b.
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
        // Those that were b's before go on.
        assert!(!is_held || row.overflow == (Cluster::owner(pool) == 0), "{row:?}");
    }
    cluster.ask_until(&mut client, 0, true);
}

#[test]
fn data_of_another_nodes_shard_is_refused() {
    let cluster = Cluster::new(4, HALF_AN_HOUR);
    cluster.start(0).stop();
    cluster.write_map("swapped.toml", 2, SECRET, [1, 0]);
    let refused = Server::try_start(cluster.command(0, "swapped.toml")).unwrap_err();
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.contains("the journal of shard 0"), "{}", refused.log);
}
