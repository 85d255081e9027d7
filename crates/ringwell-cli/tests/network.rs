//! Two real nodes on two hosts, with a slow, lossy or cut network between them. Tests how many rows
//! overflow because of the faults, and that no answer is late, no allocation is lost and no number
//! is handed out twice.
//!
//! In every test, the clients connect to node a through a unix socket. The faults therefore affect
//! only the link between node a and node b.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "support/history.rs"]
mod history;
#[path = "network/hosts.rs"]
mod hosts;
mod support;
#[path = "network/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use history::{Event, attributed, doubles};
use hosts::{ADDRESSES, Hosts};
use ringwell_core::PoolId;
use ringwell_directory::Placement;
use serde_json::Value;
use support::batch::{self, Ask, BULK, Row, attribution};
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const POOLS: u64 = 8;
const DEADLINE: Duration = Duration::from_secs(1);
/// The additional time that a busy machine may need.
const MARGIN: Duration = Duration::from_secs(1);
/// The maximum number of batches that may wait for the other host after it has become unreachable.
/// Three slow answers shut the link, but each answered ping opens it again for one batch.
const LATE_MAX: usize = 10;
/// The time limit from the end of a fault until node b hands out numbers again. While the link is
/// shut, a ping is sent about every 500 ms.
const HEALED: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);
/// The size of a large pool. No test uses that many numbers within a lifetime.
const MANY: u64 = 5_000;
const SHORT: Duration = Duration::from_secs(2);
const HALF_AN_HOUR: Duration = Duration::from_mins(30);

/// Two hosts with one node each, and one shard per node.
struct Network {
    /// Declared before `hosts`, so that the nodes are dropped before their hosts.
    nodes: [Server; 2],
    hosts: Hosts,
    pools: BTreeMap<u64, Pool>,
    _sites: [Site; 2],
    _folder: TempDir,
}

impl Network {
    /// Creates a network in which node b's pools have `numbers` numbers each, and node a's pools
    /// are large. Returns `None` if the hosts cannot be created on this system.
    fn new(numbers: u64, lifetime: Duration) -> Option<Self> {
        Self::with("", numbers, lifetime)
    }

    /// Like [`Network::new`], but with settings for the links.
    fn with(links: &str, numbers: u64, lifetime: Duration) -> Option<Self> {
        let hosts = Hosts::new()?;
        let folder = TempDir::new().unwrap();
        let pool = |id| Pool::new(id, if owner(id) == 0 { MANY } else { numbers }, lifetime);
        let pools: Vec<Pool> = (1..=POOLS).map(pool).collect();
        // Data need not be flushed, because these tests are not about the disk.
        let sites =
            [(); 2].map(|()| Site::new(pools.clone(), &format!("durability = \"os\"\n{links}")));
        // Clients use unix sockets, which can be reached from every network namespace.
        let socket = |node: &str| format!("unix:{}", folder.path().join(node).display());
        let node = |(shard, name): (usize, &str)| {
            format!(
                "[[node]]\nname = \"{name}\"\nshards = [{shard}]\nlink = \"{}:7001\"\n\
                 listen = [\"{}\"]\n",
                ADDRESSES[shard],
                socket(name)
            )
        };
        let nodes: String = ["a", "b"].into_iter().enumerate().map(node).collect();
        let map = folder.path().join("cluster.toml");
        fs::write(&map, format!("version = 1\nsecret = \"the-secret-of-this-cluster\"\n{nodes}"))
            .unwrap();
        let deadline = format!("{}ms", DEADLINE.as_millis());
        let start = |(host, name): (usize, &str)| {
            let socket = socket(name);
            let flags = ["--cluster", map.to_str().unwrap(), "--node", name];
            let flags = [&flags[..], &["--deadline", &deadline, "--listen", &socket]].concat();
            Server::start(hosts.on(host, &sites[host].serve(&flags)))
        };
        let nodes = [(0, "a"), (1, "b")].map(start);
        let pools = pools.into_iter().map(|pool| (pool.id, pool)).collect();
        let network = Self { nodes, hosts, pools, _sites: sites, _folder: folder };
        Some(network)
    }

    fn delay(&self, delay: Duration) {
        for host in [0, 1] {
            self.hosts.wire().delay(host, delay);
        }
    }

    /// Drops `percent` % of the frames from each of the hosts in `from`.
    fn lose(&self, from: &[usize], percent: u32) {
        for host in from {
            self.hosts.wire().lose(*host, percent);
        }
    }

    /// Returns the count of node a's batches that waited for node b.
    fn asked(&self) -> usize {
        usize::try_from(self.link()["requests"].as_u64().unwrap()).unwrap()
    }

    /// Returns node a's report on its link to node b.
    fn link(&self) -> Value {
        let token = format!("Bearer {TOKEN}");
        let answer = self.nodes[0].client().get("/v1/shards", &[("authorization", &token)]);
        answer.unwrap().json()["shards"][0]["links"][0].clone()
    }
}

/// Sends batches to node a, one after the other, and records the numbers.
struct Caller<'a> {
    network: &'a Network,
    client: Client,
    begun: Instant,
    batches: usize,
    /// The rows that did not get an overflow number.
    events: Vec<Event>,
}

impl<'a> Caller<'a> {
    fn new(network: &'a Network) -> Self {
        let client = network.nodes[0].client();
        Self { network, client, begun: Instant::now(), batches: 0, events: Vec::new() }
    }

    /// Sends one batch with a row for each pool. Checks that the answer arrives in time with its
    /// rows in order. Also checks that each number belongs to its pool, and that no row of node a's
    /// pools overflows.
    fn ask(&mut self) -> Vec<Row> {
        let pools = &self.network.pools;
        let ask = |pool: &u64| Ask { pool: *pool, id: format!("{}-{pool}", self.batches) };
        let asks: Vec<Ask> = pools.keys().map(ask).collect();
        let body = batch::body(&asks, &pools.values().cloned().collect::<Vec<_>>());
        let (invoked, invoked_ms) = (self.begun.elapsed(), now_ms());
        let rows = batch::rows(&self.client.post(BULK, &[], &body).unwrap());
        let (returned, returned_ms) = (self.begun.elapsed(), now_ms());
        let took = returned.checked_sub(invoked).unwrap();
        assert!(took <= DEADLINE + MARGIN, "batch {} took {took:?}", self.batches);
        assert_eq!(history::rows(&asks, &rows, pools), Vec::<String>::new());
        self.batches += 1;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
        for (ask, row) in asks.into_iter().zip(&rows) {
            assert!(owner(ask.pool) == 1 || !row.overflow, "of node a: {row:?}");
            if !row.overflow {
                self.events.push(Event {
                    number: row.number,
                    pool: ask.pool,
                    id: ask.id,
                    invoked_ns: ns(invoked),
                    returned_ns: ns(returned),
                    invoked_ms,
                    returned_ms,
                });
            }
        }
        sleep(PAUSE);
        rows
    }

    fn ask_times(&mut self, batches: usize) -> Vec<Row> {
        (0..batches).flat_map(|_| self.ask()).collect()
    }

    fn ask_for(&mut self, time: Duration) -> Vec<Row> {
        let until = Instant::now() + time;
        let mut rows = Vec::new();
        while Instant::now() < until {
            rows.extend(self.ask());
        }
        rows
    }

    /// Sends batches until no row of node b's pools overflows.
    fn ask_until_healed(&mut self) {
        let until = Instant::now() + HEALED;
        while self.ask().iter().any(|row| row.overflow) {
            assert!(Instant::now() < until, "not healed: {}", self.network.link());
        }
    }

    /// Checks that no number was handed out twice within its lockout, and that each number is
    /// attributed to its row.
    fn check(&mut self) {
        let pools = &self.network.pools;
        assert_eq!(doubles(&self.events, pools), Vec::<String>::new());
        for event in &self.events {
            let found = attribution(&mut self.client, event.number, event.returned_ms).unwrap();
            assert_eq!(attributed(event, &found, pools), None);
        }
    }
}

/// Returns the node that owns a pool.
fn owner(pool: u64) -> usize {
    usize::from(Placement::even(2).unwrap().shard(PoolId(pool)))
}

/// Returns the number of pools that a node owns.
fn pools_of(node: usize) -> usize {
    (1..=POOLS).filter(|pool| owner(*pool) == node).count()
}

fn real(rows: &[Row]) -> usize {
    rows.iter().filter(|row| !row.overflow).count()
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_sound_network_of_2_ms_costs_2_ms_each_way_and_no_number() {
    // The time limits are long, so that a slow machine does not affect the result.
    let links = "[links]\ndeadline = \"1s\"\nslow = \"1s\"\nwait = \"1s\"\n";
    let Some(network) = Network::with(links, MANY, SHORT) else { return };
    network.delay(Duration::from_millis(2));
    let mut caller = Caller::new(&network);
    caller.ask_until_healed();
    let rows = caller.ask_times(200);
    assert_eq!(real(&rows), rows.len(), "{}", network.link());
    let link = network.link();
    assert!(link["p50_ms"].as_f64().unwrap() >= 4.0, "the network was not slowed: {link}");
    assert_eq!((&link["state"], &link["lost"]), (&"open".into(), &0.into()), "{link}");
    caller.check();
}

#[test]
fn a_network_that_loses_3_of_10_frames_makes_no_batch_late() {
    let Some(network) = Network::new(MANY, SHORT) else { return };
    let mut caller = Caller::new(&network);
    caller.ask_until_healed();
    network.lose(&[0, 1], 30);
    let rows = caller.ask_for(Duration::from_secs(4));
    assert!(real(&rows) < rows.len(), "nothing was lost");
    assert!(network.link()["slow"] != 0);
    network.lose(&[0, 1], 0);
    caller.ask_until_healed();
    caller.check();
}

#[test]
fn a_network_that_loses_1_of_100_frames_costs_few_numbers() {
    let Some(network) = Network::new(MANY, SHORT) else { return };
    let mut caller = Caller::new(&network);
    caller.ask_until_healed();
    network.lose(&[0, 1], 1);
    let rows = caller.ask_times(600);
    let overflow = rows.len() - real(&rows);
    let of_b = 600 * pools_of(1);
    assert!((1..of_b / 2).contains(&overflow), "{overflow} of {of_b}: {}", network.link());
    network.lose(&[0, 1], 0);
    caller.ask_until_healed();
    caller.check();
}

/// Drops all frames from the hosts in `from` for two seconds. Checks that the rows of node b's
/// pools overflow meanwhile, and get numbers afterwards.
fn cut(from: &[usize]) {
    let Some(network) = Network::new(MANY, SHORT) else { return };
    let mut caller = Caller::new(&network);
    caller.ask_until_healed();
    caller.ask_times(50);
    let asked_before = network.asked();
    network.lose(from, 100);
    let rows = caller.ask_for(Duration::from_secs(2));
    let asked = network.asked() - asked_before;
    let batches = rows.len() / network.pools.len();
    assert_eq!(real(&rows), batches * pools_of(0), "frames came through");
    assert!(asked <= LATE_MAX, "{asked} of {batches} batches waited for node b");
    assert_eq!(network.link()["state"], "shut");
    network.lose(from, 0);
    caller.ask_until_healed();
    caller.ask_for(Duration::from_secs(1));
    // On a busy machine, node b may be late again, so the link may not be open yet.
    let until = Instant::now() + HEALED;
    while network.link()["state"] != "open" {
        assert!(Instant::now() < until, "the link stays shut: {}", network.link());
        caller.ask();
    }
    caller.check();
}

#[test]
fn a_cut_network_costs_the_rows_behind_it_until_it_heals() {
    cut(&[0, 1]);
}

#[test]
fn a_node_without_incoming_messages_costs_its_rows_until_it_receives_them_again() {
    cut(&[0]);
}

#[test]
fn a_node_whose_answers_are_lost_costs_its_rows_until_they_arrive() {
    cut(&[1]);
}

#[test]
fn numbers_that_a_slow_network_delivers_too_late_are_returned() {
    const NUMBERS: u64 = 40;
    let Some(network) = Network::new(NUMBERS, HALF_AN_HOUR) else { return };
    let mut caller = Caller::new(&network);
    caller.ask_until_healed();
    let asked_before = network.asked();
    network.delay(Duration::from_millis(200));
    let rows = caller.ask_times(60);
    let asked = network.asked() - asked_before;
    assert_eq!(real(&rows), 60 * pools_of(0), "node b was in time");
    assert!(asked <= LATE_MAX, "{asked} of 60 batches waited for node b");
    assert_eq!(network.link()["state"], "shut");
    network.delay(Duration::ZERO);
    caller.ask_until_healed();
    assert!(network.link()["released_late"] != 0, "{}", network.link());
    // Clients must eventually get all numbers of node b's pools, because the numbers that were
    // delivered too late have been released.
    let until = Instant::now() + HEALED;
    let wanted = pools_of(1) * usize::try_from(NUMBERS).unwrap();
    while caller.events.iter().filter(|event| owner(event.pool) == 1).count() < wanted {
        assert!(Instant::now() < until, "numbers are lost: {}", network.link());
        caller.ask();
    }
    caller.check();
}
