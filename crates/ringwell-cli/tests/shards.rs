//! Tests `ringwell shards` with two real nodes: one listens on a port, and the other on a unix
//! socket.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use support::batch::{self, Ask, BULK};
use support::server::{Server, ringwell};
use support::site::{Pool, Site, TOKEN};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(30);
const POOLS: u64 = 8;

struct Nodes {
    folder: TempDir,
    a: String,
    b: String,
    sites: [Site; 2],
}

impl Nodes {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        // This port is free now, and the node will bind it shortly.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = |name: &str| format!("unix:{}", folder.path().join(name).display());
        let (a, b) = (format!("127.0.0.1:{port}"), path("b.sock"));
        let node = |name: &str, shards: &str, listen: &str| {
            let link = path(&format!("{name}.link"));
            format!(
                "[[node]]\nname = \"{name}\"\nshards = {shards}\nlink = \"{link}\"\n\
                 listen = [\"{listen}\"]\n"
            )
        };
        let nodes = node("a", "[0, 2]", &a) + &node("b", "[1]", &b);
        let map = format!("version = 1\nsecret = \"the-secret-of-this-cluster\"\n{nodes}");
        fs::write(folder.path().join("cluster.toml"), map).unwrap();
        fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let pools = || (1..=POOLS).map(|id| Pool::new(id, 4, LONG)).collect();
        let sites = [0, 1].map(|_| Site::new(pools(), ""));
        Self { folder, a, b, sites }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn start(&self, node: usize) -> Server {
        let (name, listen) = [("a", &self.a), ("b", &self.b)][node];
        let map = self.path("cluster.toml");
        let flags = ["--cluster", &map, "--node", name, "--listen", listen];
        Server::start(self.sites[node].serve(&flags))
    }

    /// Runs `ringwell shards` with the token from a file.
    fn run(&self, args: &[&str]) -> Output {
        let token = self.path("token");
        let all = [&["shards"], args, &["--token-file", &token]].concat();
        ringwell(&all).output().unwrap()
    }

    fn owners(&self) -> Vec<String> {
        let listed = self.run(&["list", "--json", "--url", &self.b]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let owners = listed["owners"].as_array().unwrap();
        owners.iter().map(|owner| owner["buckets"].as_str().unwrap().to_owned()).collect()
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn buckets_are_listed_moved_and_drained() {
    let nodes = Nodes::new();
    let servers = [nodes.start(0), nodes.start(1)];
    let asks: Vec<Ask> = (1..=POOLS).map(|pool| Ask { pool, id: "x".into() }).collect();
    let body = batch::body(&asks, &nodes.sites[0].pools);
    let ask = |server: &Server| batch::rows(&server.client().post(BULK, &[], &body).unwrap());
    let before = ask(&servers[0]);
    let listed = nodes.run(&["list", "--url", &nodes.a]);
    let text = stdout(&listed);
    assert!(text.starts_with("shard  node  state      listen"), "{text}");
    assert_eq!(text.matches("  ready  ").count(), 3, "{text}");
    assert!(text.contains(&nodes.b) && text.ends_with(" 342  682-1023\n"), "{text}");
    assert_eq!(nodes.owners(), ["0-340", "682-1023", "341-681"]);

    // Any node can report the owners of all buckets. Each node owns some of the buckets that the
    // next command moves.
    let moved = nodes.run(&["move", "0-9,341-350,700", "--to", "2", "--url", &nodes.b]);
    assert_eq!(stdout(&moved), "20 buckets have moved to shard 2\n", "{}", stderr(&moved));
    assert_eq!(nodes.owners(), ["10-340", "0-9,341-350,682-1023", "351-681"]);
    let toml = nodes.run(&["list", "--toml", "--url", &nodes.a]);
    assert!(stdout(&toml).starts_with("[[buckets]]\nfirst = 10\nlast = 340\nshard = 0\n\n[["));
    let again = nodes.run(&["move", "0-9", "--to", "2", "--url", &nodes.a]);
    assert_eq!(stdout(&again), "shard 2 owns these buckets already\n");

    for _ in 0..2 {
        let drained = nodes.run(&["drain", "a", "--url", &nodes.b]);
        assert!(stdout(&drained).contains("node a owns no buckets now"), "{}", stderr(&drained));
        assert_eq!(nodes.owners(), ["", "", "0-1023"]);
    }
    let drained = nodes.run(&["drain", "b", "--url", &nodes.a]);
    assert!(drained.status.success(), "{}", stderr(&drained));
    let counts = nodes.owners();
    assert!(counts[2].is_empty() && !counts[0].is_empty() && !counts[1].is_empty(), "{counts:?}");
    let after = ask(&servers[1]);
    for (before, after) in before.iter().zip(&after) {
        assert!(!after.overflow && before.number != after.number, "{before:?} {after:?}");
    }
}

#[test]
fn errors_come_with_advice() {
    let nodes = Nodes::new();
    let a = nodes.start(0);
    let fails = |args: &[&str], wanted: &str| {
        let output = nodes.run(args);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    };
    fails(&["list", "--url", "127.0.0.1:1"], "Check that the server is running");
    fails(&["list", "--url", &nodes.b], "no server answers at unix:");
    fails(&["move", "0", "--to", "9", "--url", &nodes.a], "the cluster has no shard 9");
    fails(&["move", "0", "--to", "1", "--url", &nodes.a], "Nothing has moved");
    fails(&["move", "341", "--to", "0", "--url", &nodes.a], "node b did not give");
    fails(&["drain", "c", "--url", &nodes.a], "the cluster has no node c; its nodes are a, b");
    fails(&["drain", "a", "--url", &nodes.a], "run the command again");
    assert_eq!(a.log().matches("buckets have moved").count(), 0);

    // Node b is down, and the list shows this. Draining node b must fail, and the error must not
    // advise a retry.
    let listed = nodes.run(&["list", "--url", &nodes.a]);
    assert_eq!(stdout(&listed).matches("  no answer  ").count(), 1, "{}", stdout(&listed));
    fails(&["drain", "b", "--url", &nodes.a], "no other node has the lockouts of its buckets");

    let mut command = ringwell(&["shards", "list", "--url", &nodes.a]);
    assert!(stderr(&command.output().unwrap()).contains("set RINGWELL_TOKEN"));
    command.env("RINGWELL_TOKEN", "another");
    assert!(stderr(&command.output().unwrap()).contains("refuses this token"));
    command.env("RINGWELL_TOKEN", TOKEN);
    assert!(command.output().unwrap().status.success());

    let alone = Server::start(nodes.sites[1].serve(&[]));
    fails(&["list", "--url", alone.address()], "is not a node of a cluster");
    fails(&["list", "--url", alone.address()], "`ringwell top --url ");
}
