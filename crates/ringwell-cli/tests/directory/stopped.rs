//! A stopped PostgreSQL server, which keeps its connections open and does not answer.

use std::fs;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::rig::{self, Rig};
use super::support::batch;
use super::support::client::Client;
use super::support::server::{Server, signal};
use super::support::site::{Pool, TOKEN};
use super::{LONG, Managed, age_ms, management, range};

/// The maximum time to wait on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// The management API gives up after 15 s. The additional time allows for a busy machine.
const BOUND: Duration = Duration::from_secs(28);

/// The headers of a form that a browser sends from one of the server's pages.
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

/// Stops all processes of a database server until this value is dropped.
struct Stopped(Vec<String>);

impl Stopped {
    fn new(server: &rig::Server) -> Self {
        let file = fs::read_to_string(server.folder.join("data/postmaster.pid")).unwrap();
        let first = file.lines().next().unwrap().to_owned();
        // The main process is stopped before its child processes are listed, so that it starts no
        // further ones.
        let mut stopped = Self(vec![first.clone()]);
        signal(first.parse().unwrap(), "STOP");
        let others = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        stopped.0.extend(others.split_whitespace().map(str::to_owned));
        stopped.signal("STOP");
        assert!(stopped.0.len() > 2, "it has no connections: {:?}", stopped.0);
        stopped
    }

    fn signal(&self, name: &str) {
        // Some processes may have ended in the meantime, so the result is ignored.
        let mut kill = std::process::Command::new("kill");
        kill.args(["-s", name]).args(&self.0).status().unwrap();
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a request to the management API. Returns the status, the body, and the time that the
/// answer took.
fn ask(server: &Server, method: &'static str) -> JoinHandle<(u16, String, Duration)> {
    let mut operator = management(server);
    thread::spawn(move || {
        let token = format!("Bearer {TOKEN}");
        let headers = [("authorization", &*token), ("content-type", "application/json")];
        let start = Instant::now();
        let answer = match method {
            "POST" => operator.post("/v1/pools/1/key", &headers, "{}"),
            // A token that is not in the configuration may be in the database.
            "LOGIN" => operator.post("/ui/login", &[FORM, OWN], "token=rw_0123456789abcdef_x"),
            _ => operator.get("/v1/pools", &headers),
        };
        let answer = answer.unwrap();
        (answer.status, answer.body, start.elapsed())
    })
}

#[test]
fn a_stopped_database_causes_management_errors_and_no_loss_of_numbers() {
    let postgres = rig::Server::start();
    let pools = vec![Pool::new(1, 9_000, LONG)];
    let managed = Managed::new(Rig::on(&postgres), pools.clone());
    let server = managed.start();
    let mut client = server.client();
    let mut given = vec![batch::one(&mut client, &pools[0], "a").number];
    let stopped = Stopped::new(&postgres);
    // Sends more requests than the server has connections to the database.
    let requests = ["GET", "POST", "LOGIN"].repeat(4);
    let asked: Vec<_> = requests.into_iter().map(|it| ask(&server, it)).collect();
    while !asked.iter().all(JoinHandle::is_finished) {
        let row = batch::one(&mut client, &pools[0], "b");
        assert!(!row.overflow, "rows need no database");
        given.push(row.number);
        thread::sleep(Duration::from_millis(10));
    }
    for asked in asked {
        let (status, body, took) = asked.join().unwrap();
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("the directory's database does not answer"), "{body}");
        assert!(took < BOUND, "{took:?}");
    }
    assert!(age_ms(&mut client) > 5_000, "it reports the age of its pools");
    server.says("the server continues with its current pools");
    drop(stopped);
    soon("it is there again", || age_ms(&mut client) < 1_000);
    server.says("the directory's database is available again");
    let (status, body, _) = ask(&server, "GET").join().unwrap();
    assert_eq!(status, 200, "{body}");
    managed.add(1, range(pools[0].first + 9_000, 7));
    let numbers =
        |client: &mut Client| client.get("/healthz", &[]).unwrap().json()["numbers"].clone();
    soon("what changes since then", || numbers(&mut client) == 9_007);
    let all = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), all, "a number went out twice");
    // The server shuts down even while its database does not answer.
    let _stopped = Stopped::new(&postgres);
    server.stop();
}
