//! Tests a server with fewer file descriptors than clients, and a server without free descriptors.

use std::net::TcpStream;
use std::process::Command;

use super::metrics;
use super::support::client::Client;
use super::support::server::Server;
use super::trial::{Trial, wait_until, within};

/// The limit on file descriptors. It is high enough for the server's own files, the connections of
/// `ringwell load` and a few more clients. It is too low for the crowd of clients.
const DESCRIPTORS: usize = 160;
const CROWD: usize = 300;

/// Reads a metric from `/metrics` over an existing connection.
fn figure(client: &mut Client, name: &str) -> f64 {
    let text = client.get("/metrics", &[]).unwrap().body;
    let of_name = |line: &&str| line.split([' ', '{']).next() == Some(name);
    let values = text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

#[test]
fn a_crowd_beyond_the_descriptors_is_refused_without_loss_of_numbers() {
    let mut trial = Trial::new("");
    let limit = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
    let server = Server::start(within("prlimit", &[&limit], &trial.site.serve(&[])));
    server.says("too low for limits.connections");
    trial.load(&server);
    let mut client = server.client();
    let before = figure(&mut client, "ringwell_connections");
    trial.unnoticed();
    let crowd: Vec<TcpStream> =
        (0..CROWD).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    wait_until("nobody is refused", || {
        figure(&mut client, "ringwell_connections_refused_total") > 0.0
    });
    // Waits until each shard has needed new segments and snapshots.
    trial.wait_for_answers(300);
    drop(crowd);
    wait_until("the crowd is still there", || {
        figure(&mut client, "ringwell_connections") <= before + 1.0
    });
    assert_eq!(client.get("/readyz", &[]).unwrap().status, 200);
    assert!(!server.log().contains("cannot accept a connection"), "{}", server.log());
    trial.judge(&server).assert_clean();
    server.stop();
}

#[test]
fn a_process_without_free_file_descriptors_resumes_when_it_has_some() {
    let mut trial = Trial::new("");
    let server = trial.start();
    trial.load(&server);
    let mut client = server.client();
    let pid = server.pid().to_string();
    let limit = |files: &str| {
        let status = Command::new("prlimit").args(["--pid", &pid, files]).status().unwrap();
        assert!(status.success(), "prlimit --pid {pid} {files}: {status}");
    };
    trial.fault("no file can be opened");
    limit("--nofile=3:4096");
    // Waits until the segments of both shards are full, so that no row gets a number.
    let all = trial.site.pools.len();
    wait_until("it opens files", || trial.overflow(&mut client, "none") == all);
    let readiness = client.get("/readyz", &[]).unwrap();
    assert_eq!(readiness.status, 503, "{}", readiness.body);
    server.says("no more files can be opened");
    limit("--nofile=4096:4096");
    wait_until("rows still overflow", || trial.overflow(&mut client, "again") == 0);
    assert_eq!(client.get("/readyz", &[]).unwrap().status, 200);
    trial.wait_for_answers(50);
    assert_eq!(metrics::labelled(&server, "ringwell_overflow_rows_total", "journal_failed"), 0);
    trial.judge(&server).assert_clean();
    server.stop();
}
