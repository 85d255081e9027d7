//! A cluster of two real nodes behind a real `HAProxy` that `ringwell haproxy` configured. Tests
//! how requests are distributed and connections are reused, and that no client gets an error while
//! nodes stop and start.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;
#[path = "haproxy/throttle.rs"]
mod throttle;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::batch::{self, Ask, BULK};
use support::client::Client;
use support::server::{Server, ringwell, signal};
use support::site::{Pool, Site};
use tempfile::TempDir;
use throttle::Throttle;

const SOON: Duration = Duration::from_mins(1);
const CLIENTS: u64 = 4;
const POOLS: u64 = 4;
const NODES: [&str; 2] = ["a", "b"];

/// Two nodes and their proxy. Node a listens on a unix socket, and node b on a TCP port.
struct Stage {
    folder: TempDir,
    sites: [Site; 2],
    nodes: [Option<Server>; 2],
    /// The port of node b.
    port: u16,
    deadline: &'static str,
    proxy: Child,
    proxy_address: String,
}

impl Stage {
    /// Starts the proxy and both nodes, with the deadline `deadline`. Returns `None` if `HAProxy`
    /// is missing.
    fn new(deadline: &'static str) -> Option<Self> {
        Self::with(deadline, |own| own)
    }

    /// Like [`Self::new`], but `way` maps the address of node b's link to the address that node a
    /// uses for it.
    fn with(deadline: &'static str, way: impl FnOnce(String) -> String) -> Option<Self> {
        let haproxy = haproxy()?;
        let folder = TempDir::new().unwrap();
        let settings = "durability = \"os\"\nlimits.connections = 400\ndrain_pause = \"2s\"\n\
            [[site]]\nkey = \"pk_shop\"\norigins = [\"https://shop.example\"]\n\
            [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n";
        let pool = |id| Pool::new(id, 90_000, Duration::from_mins(1));
        let sites = NODES.map(|_| Site::new((1..=POOLS).map(pool).collect(), settings));
        let port = free_port();
        let proxy_address = format!("127.0.0.1:{}", free_port());
        let map = cluster(&folder, port);
        fs::write(folder.path().join("cluster.toml"), &map).unwrap();
        let link = format!("unix:{}/b.link", folder.path().display());
        let map_of_a = map.replace(&link, &way(link.clone()));
        fs::write(folder.path().join("cluster-of-a.toml"), map_of_a).unwrap();
        let nodes = [0, 1].map(|node| Some(start(&folder, &sites, node, port, deadline)));
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let config = fs::read_to_string(sites[0].data().with_file_name("ringwell.toml")).unwrap();
        let config = config.replace("deadline = \"10s\"", &format!("deadline = \"{deadline}\""));
        fs::write(path("ringwell.toml"), config).unwrap();
        let made = ringwell(&["haproxy", "--cluster", &path("cluster.toml"), "--config"])
            .arg(path("ringwell.toml"))
            .args(["--bind", &proxy_address, "--stats-socket", &path("admin.sock")])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let text = String::from_utf8(made.stdout).unwrap();
        // The lines that set a user and a group are removed, because only root can switch users.
        let mine = |line: &&str| !["    user haproxy", "    group haproxy"].contains(line);
        let text: Vec<&str> = text.lines().filter(mine).collect();
        fs::write(path("haproxy.cfg"), text.join("\n") + "\n").unwrap();
        let proxy = Command::new(haproxy)
            .args(["-db", "-f", &path("haproxy.cfg")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(path("haproxy.log")).unwrap())
            .spawn()
            .unwrap();
        let stage = Self { folder, sites, nodes, port, deadline, proxy, proxy_address };
        let listens = || Client::connect(&stage.proxy_address).is_ok();
        stage.wait_until("HAProxy listens", listens);
        for node in NODES {
            stage.wait_until_state(node, "UP");
        }
        Some(stage)
    }

    /// Connects a client to the proxy.
    fn client(&self) -> Client {
        Client::connect(&self.proxy_address).unwrap()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + SOON;
        while !is_so() {
            let said = || fs::read_to_string(self.folder.path().join("haproxy.log"));
            assert!(Instant::now() < until, "not so after {SOON:?}: {what}\n{:?}", said());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the proxy reports that a node is in the given state, `UP` or `DOWN`.
    fn wait_until_state(&self, node: &str, state: &str) {
        self.wait_until(&format!("{node} is {state}"), || self.stat(node, "status") == state);
    }

    /// Returns the proxy's answer to a command.
    fn command(&self, command: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut socket) = UnixStream::connect(self.folder.path().join("admin.sock")) {
            socket.write_all(format!("{command}\n").as_bytes()).unwrap();
            socket.read_to_string(&mut answer).unwrap();
        }
        answer
    }

    /// Returns one value about a node from the proxy's statistics.
    fn stat(&self, node: &str, name: &str) -> String {
        let table = self.command("show stat");
        let mut lines = table.lines();
        let names = lines.next().unwrap_or_default().trim_start_matches("# ").split(',');
        let place = names.into_iter().position(|found| found == name);
        let line = lines.find(|line| line.starts_with(&format!("ringwell,{node},")));
        let value = place.and_then(|place| line?.split(',').nth(place));
        value.unwrap_or_default().to_owned()
    }

    fn count(&self, node: &str, name: &str) -> u64 {
        self.stat(node, name).parse().unwrap()
    }

    /// Requests the state of node a's link to node b through the proxy. Returns `None` if the proxy
    /// sends the request to node b.
    fn link_of_a(&self) -> Option<String> {
        let token = format!("Bearer {}", support::site::TOKEN);
        let answer = self.client().get("/v1/shards", &[("authorization", &token)]).ok()?;
        let overview = answer.json();
        let link = &overview["shards"][0]["links"][0];
        (link["node"] == "b").then(|| link["state"].as_str().unwrap_or_default().to_owned())
    }

    fn node(&self, node: usize) -> &Server {
        self.nodes[node].as_ref().unwrap()
    }

    fn end(&mut self, node: usize, is_killed: bool) {
        self.nodes[node].take().unwrap().end(is_killed);
    }

    fn start(&mut self, node: usize) {
        self.nodes[node] = Some(start(&self.folder, &self.sites, node, self.port, self.deadline));
        self.wait_until_state(NODES[node], "UP");
    }

    /// Sends batches over persistent connections while `act` runs. Returns the count of answered
    /// batches. Fails if an answer is incomplete, a connection ends, or a number is handed out
    /// twice.
    fn under_load(&mut self, has_keys: bool, act: impl FnOnce(&mut Self)) -> u64 {
        let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let numbers = Mutex::new(Vec::new());
        let pools = self.sites[0].pools.clone();
        let clients: Vec<Client> = (0..CLIENTS).map(|_| self.client()).collect();
        thread::scope(|scope| {
            let load = clients.into_iter().zip(0..).map(|(mut client, name)| {
                let (is_over, answered) = (&is_over, &answered);
                let (numbers, pools) = (&numbers, &pools);
                scope.spawn(move || {
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = format!("{name}-{number}");
                        let keys = [("idempotency-key", key.as_str())];
                        let headers = if has_keys { &keys[..] } else { &[] };
                        let own = ask(&mut client, headers, &key, pools);
                        numbers.lock().unwrap().extend(own);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            let load: Vec<_> = load.collect();
            act(self);
            is_over.store(true, Ordering::Relaxed);
            for client in load {
                client.join().unwrap();
            }
        });
        let numbers = numbers.into_inner().unwrap();
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(distinct.len(), numbers.len(), "a number went out twice");
        let answered = answered.into_inner();
        // If a node is down, only the rows of its own pools get overflow numbers.
        let (own, rows) = (distinct.len() as u64, answered * POOLS);
        assert!(own * 3 > rows, "{own} of {rows} rows got numbers of their own");
        answered
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // An error is ignored, because it means that the proxy has ended.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

/// Sends one batch with a row for each pool. Checks that the answer has all rows in order. Returns
/// all numbers except overflow numbers.
fn ask(client: &mut Client, headers: &[(&str, &str)], id: &str, pools: &[Pool]) -> Vec<u64> {
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: format!("{id}-{pool}") }).collect();
    let answer = client.post(BULK, headers, &batch::body(&asks, pools));
    let rows = batch::rows(&answer.unwrap_or_else(|error| panic!("{id}: {error}")));
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, asks.iter().map(|ask| ask.id.as_str()).collect::<Vec<_>>());
    rows.iter().filter(|row| !row.overflow).map(|row| row.number).collect()
}

/// Returns the path of `HAProxy`. Prints a message if `HAProxy` is missing.
fn haproxy() -> Option<&'static str> {
    let runs = |path: &&str| Command::new(path).arg("-v").stdout(Stdio::null()).status().is_ok();
    let found = ["haproxy", "/usr/sbin/haproxy"].into_iter().find(runs);
    if found.is_none() {
        eprintln!("SKIPPED: HAProxy is not installed; `apt-get install haproxy` does so");
    }
    found
}

/// Returns a port that is free now. Another process may bind it before the test does.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("a.sock")
}

fn cluster(folder: &TempDir, port: u16) -> String {
    let listen = [format!("unix:{}", socket(folder).display()), format!("127.0.0.1:{port}")];
    let nodes: Vec<_> = (0..)
        .zip(NODES)
        .zip(listen)
        .map(|((shard, name), listen): ((u16, _), _)| {
            format!(
                "[[node]]\nname = \"{name}\"\nshards = [{shard}]\n\
                 link = \"unix:{}/{name}.link\"\nlisten = [\"{listen}\"]\n",
                folder.path().display()
            )
        })
        .collect();
    format!("version = 1\nsecret = \"the-secret-of-this-cluster\"\n{}", nodes.concat())
}

fn start(folder: &TempDir, sites: &[Site; 2], node: usize, port: u16, deadline: &str) -> Server {
    let unix = format!("unix:{}", socket(folder).display());
    let listen = if node == 0 { unix } else { format!("127.0.0.1:{port}") };
    let map = folder.path().join(["cluster-of-a.toml", "cluster.toml"][node]);
    let member = ["--cluster", map.to_str().unwrap(), "--node", NODES[node]];
    Server::start(
        sites[node].serve(&[&["--listen", &listen, "--deadline", deadline], &member[..]].concat()),
    )
}

#[test]
fn the_sample_equals_the_command_s_output() {
    let deploy = format!("{}/../../deploy", env!("CARGO_MANIFEST_DIR"));
    let cluster = format!("{deploy}/cluster.toml");
    let made = ringwell(&["haproxy", "--cluster", &cluster]).output().unwrap();
    let sample = fs::read_to_string(format!("{deploy}/haproxy.cfg")).unwrap();
    assert_eq!(String::from_utf8(made.stdout).unwrap(), sample);
}

#[test]
fn faults_of_the_files_are_reported_and_nothing_is_printed() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("cluster.toml"), "version = 0\n").unwrap();
    let made =
        ringwell(&["haproxy", "--cluster", &path("cluster.toml"), "--config", &path("none")])
            .output()
            .unwrap();
    let said = String::from_utf8(made.stderr).unwrap().replace(&path(""), "");
    assert_eq!(made.status.code(), Some(1));
    assert!(made.stdout.is_empty());
    let lines: Vec<&str> = said.lines().collect();
    let starts =
        ["cluster.toml:1: ", "cluster.toml:1: ", "error: none: ", "set --config to the nodes"];
    assert_eq!(lines.len(), starts.len(), "{said}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{said}");
}

#[test]
fn web_pages_reach_the_nodes() {
    let Some(stage) = Stage::new("10s") else { return };
    let mut client = stage.client();
    let script = client.get("/rw.js", &[]).unwrap();
    assert_eq!(script.status, 200, "{}", script.body);
    let headers = [("origin", "https://shop.example"), ("user-agent", "Firefox/140.0")];
    let body = "{\"site\":\"pk_shop\",\"params\":{}}";
    let answer = client.post("/site/v1/numbers", &headers, body).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(client.get("/metrics", &[]).unwrap().status, 404);
}

#[test]
fn batches_go_to_both_nodes_over_kept_connections() {
    let Some(mut stage) = Stage::new("10s") else { return };
    let answered = stage.under_load(false, |_| thread::sleep(Duration::from_millis(500)));
    let counts = NODES.map(|node| stage.count(node, "stot"));
    assert_eq!(counts.iter().sum::<u64>(), answered);
    assert!(counts[0].abs_diff(counts[1]) <= 1 + answered / 20, "{counts:?}: not in turn");
    for node in NODES {
        let [new, reused] = ["connect", "reuse"].map(|name| stage.count(node, name));
        // The proxy opens at most one connection per client and proxy thread, so most requests
        // reuse a connection.
        assert!(new * 5 < reused, "{node}: {new} connections, {reused} times used again");
    }
    let mut client = stage.client();
    let token = format!("Bearer {}", support::site::TOKEN);
    let status = |answer: std::io::Result<support::client::HttpAnswer>| answer.unwrap().status;
    assert_eq!(status(client.get("/v1/shards", &[("authorization", &token)])), 200);
    assert_eq!(status(client.get("/proxyz", &[])), 200);
    assert_eq!(status(stage.client().get("/metrics", &[])), 404, "not for everybody");
}

#[test]
fn a_node_stopped_or_killed_under_load_causes_no_client_an_error() {
    let Some(mut stage) = Stage::new("10s") else { return };
    let answered = stage.under_load(true, |stage| {
        for (node, is_killed) in [(0, false), (1, false), (0, true), (1, true)] {
            thread::sleep(Duration::from_millis(200));
            stage.end(node, is_killed);
            stage.wait_until_state(NODES[node], "DOWN");
            thread::sleep(Duration::from_millis(100));
            stage.start(node);
        }
    });
    assert!(answered > 200, "{answered}");
}

#[test]
fn a_hanging_node_causes_no_client_an_error() {
    let Some(mut stage) = Stage::new("100ms") else { return };
    let answered = stage.under_load(true, |stage| {
        for node in [0, 1] {
            thread::sleep(Duration::from_millis(200));
            stage.node(node).signal("STOP");
            stage.wait_until_state(NODES[node], "DOWN");
            stage.node(node).signal("CONT");
            stage.wait_until_state(NODES[node], "UP");
        }
    });
    assert!(answered > 100, "{answered}");
}

#[test]
fn a_stopped_proxy_makes_its_clients_wait_and_causes_none_an_error() {
    let Some(mut stage) = Stage::new("2s") else { return };
    let answered = stage.under_load(true, |stage| {
        let pools = stage.sites[0].pools.clone();
        // The first pause is shorter than the time limit for a health check. The second is longer
        // than the time limit for an answer.
        for length in [Duration::from_millis(300), Duration::from_secs(4)] {
            thread::sleep(Duration::from_millis(200));
            signal(stage.proxy.id(), "STOP");
            let until = Instant::now() + length;
            let mut direct = [0, 1].map(|node| stage.nodes[node].as_ref().unwrap().client());
            let (mut asked, mut own) = (0, 0);
            while Instant::now() < until {
                asked += 1;
                for client in &mut direct {
                    own += ask(client, &[], &format!("{length:?}-{asked}"), &pools).len() as u64;
                }
                thread::sleep(Duration::from_millis(50));
            }
            // Some rows may overflow, because they may be late on a busy machine.
            let rows = 2 * asked * POOLS;
            assert!(own > 0, "the nodes do not serve it: none of {rows} rows");
            signal(stage.proxy.id(), "CONT");
            for node in NODES {
                stage.wait_until_state(node, "UP");
            }
            let mut client = stage.client();
            assert!(!ask(&mut client, &[], &format!("after {length:?}"), &pools).is_empty());
        }
    });
    // Each client sends at least one batch before, between and after the two pauses.
    assert!(answered > 2 * CLIENTS, "{answered}");
}

#[test]
fn a_node_stopped_by_a_signal_alone_causes_no_error_although_batches_have_no_key() {
    let Some(mut stage) = Stage::new("500ms") else { return };
    let answered = stage.under_load(false, |stage| {
        for node in [0, 1, 0, 1] {
            thread::sleep(Duration::from_millis(100));
            stage.end(node, false);
            stage.start(node);
            stage.wait_until_state(NODES[node], "UP");
        }
    });
    assert!(answered > 100, "{answered}");
}

#[test]
fn a_drained_node_can_be_stopped_though_batches_have_no_key() {
    let Some(mut stage) = Stage::new("10s") else { return };
    let answered = stage.under_load(false, |stage| {
        for node in [0, 1, 0, 1] {
            thread::sleep(Duration::from_millis(100));
            stage.command(&format!("set server ringwell/{} state drain", NODES[node]));
            stage.wait_until("drained", || stage.count(NODES[node], "scur") == 0);
            stage.end(node, false);
            stage.command(&format!("set server ringwell/{} state ready", NODES[node]));
            stage.start(node);
        }
    });
    assert!(answered > 200, "{answered}");
}

#[test]
fn a_throttled_link_affects_the_rows_of_its_node_and_causes_no_client_an_error() {
    let mut throttle = None;
    let through = |link: String| {
        let made = Throttle::new(PathBuf::from(link.trim_start_matches("unix:")));
        throttle.insert(made).address.clone()
    };
    let Some(mut stage) = Stage::with("2s", through) else { return };
    let throttle = throttle.unwrap();
    let answered = stage.under_load(true, |stage| {
        stage.wait_until("the link is open", || stage.link_of_a().as_deref() == Some("open"));
        // Slows the link so much that an answer takes tenths of a second.
        throttle.set(2_000);
        stage.wait_until("the link is shut", || stage.link_of_a().as_deref() == Some("shut"));
        thread::sleep(Duration::from_millis(300));
        throttle.set(u64::MAX);
        stage.wait_until("the link is open", || stage.link_of_a().as_deref() == Some("open"));
    });
    assert!(answered > 100, "{answered}");
    let mut client = stage.client();
    let pools = stage.sites[0].pools.clone();
    let whole = |own: Vec<u64>| own.len() as u64 == POOLS;
    let until = Instant::now() + SOON;
    while !whole(ask(&mut client, &[], "after", &pools)) {
        assert!(Instant::now() < until, "the rows of node b get their own numbers again");
    }
}
