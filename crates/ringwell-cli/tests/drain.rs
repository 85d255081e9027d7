//! Tests the shutdown of the real program: it answers requests in progress and accepts no new ones.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::io::{BufRead, BufReader, Lines, PipeReader, PipeWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::batch::{self, Ask, BULK};
use support::client::{Client, request};
use support::server::{Server, signal};
use support::site::{Pool, Site};

const SOON: Duration = Duration::from_secs(30);
/// The capacity of a pipe on Linux, unless a program changes it.
const PIPE_BYTES: usize = 65_536;

fn site() -> Site {
    Site::new(vec![Pool::new(1, 10, Duration::from_mins(1))], "shards = 2")
}

/// Returns the bytes of a request with a one-row batch.
fn bytes(site: &Site, id: &str) -> Vec<u8> {
    let asks = [Ask { pool: 1, id: id.to_owned() }];
    request("POST", BULK, &[], &batch::body(&asks, &site.pools)).into_bytes()
}

/// Waits until `/readyz` answers 503 or the server accepts no new connection.
fn wait_until_out_of_rotation(server: &Server) {
    let until = Instant::now() + SOON;
    loop {
        let ready = Client::connect(server.address()).and_then(|mut c| c.get("/readyz", &[]));
        if ready.map_or(true, |answer| answer.status == 503) {
            return;
        }
        assert!(Instant::now() < until, "still in rotation:\n{}", server.log());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_partly_sent_request_is_answered_and_kept() {
    let site = site();
    let mut server = Server::start(site.serve(&[]));
    let mut idle = server.client();
    assert_eq!(batch::one(&mut idle, &site.pools[0], "before").number, site.pools[0].first);
    let mut slow = server.client();
    let bytes = bytes(&site, "slow");
    let (head, rest) = bytes.split_at(bytes.len() - 20);
    slow.send(head).unwrap();
    // Waits until the server has probably read the part of the request that was sent.
    thread::sleep(Duration::from_millis(50));

    server.terminate();
    wait_until_out_of_rotation(&server);
    let is_closed = idle.receive().is_err();
    assert!(is_closed, "a connection without a request is closed");
    slow.send(rest).unwrap();
    let answer = slow.receive().unwrap();
    let row = batch::rows(&answer).remove(0);
    assert_eq!((row.number, row.overflow), (site.pools[0].first + 1, false));
    assert!(slow.receive().is_err(), "its connection is closed after the answer");
    assert_eq!(server.wait(SOON).code(), Some(0), "{}", server.log());

    let server = Server::start(site.serve(&[]));
    let found = batch::holder(&mut server.client(), row.number).unwrap();
    assert_eq!(found["parameters"]["id"], "slow", "{found}");
}

#[test]
fn a_request_with_an_incomplete_head_is_cut_off_and_uses_up_nothing() {
    let site = site();
    let mut server = Server::start(site.serve(&[]));
    let mut slow = server.client();
    assert_eq!(batch::one(&mut slow, &site.pools[0], "before").number, site.pools[0].first);
    slow.send(&bytes(&site, "slow")[..20]).unwrap();
    thread::sleep(Duration::from_millis(50));
    server.terminate();
    // The connection is closed without an answer, so the client may retry the request on another
    // server.
    assert!(slow.receive().is_err());
    assert_eq!(server.wait(SOON).code(), Some(0), "{}", server.log());
    let server = Server::start(site.serve(&[]));
    let next = batch::one(&mut server.client(), &site.pools[0], "next");
    assert_eq!(next.number, site.pools[0].first + 1, "it used up no number");
}

#[test]
fn no_allocation_answered_by_a_stopping_busy_server_is_forgotten() {
    let site = Site::new(vec![Pool::new(1, 100_000, Duration::from_mins(1))], "shards = 2");
    let server = Server::start(site.serve(&[]));
    let clients: Vec<_> = (0..4)
        .map(|name| {
            let (mut client, pool) = (server.client(), site.pools[0].clone());
            thread::spawn(move || {
                let mut got = Vec::new();
                for number in 0.. {
                    let id = format!("{name}-{number}");
                    let asks = [Ask { pool: 1, id: id.clone() }];
                    let body = batch::body(&asks, std::slice::from_ref(&pool));
                    let Ok(answer) = client.post(BULK, &[], &body) else { break };
                    got.push(batch::rows(&answer).remove(0));
                }
                got
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    server.stop();
    let answered = clients.into_iter().flat_map(|client| client.join().unwrap());
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let mut count = 0;
    for row in answered.filter(|row| !row.overflow) {
        let found = batch::holder(&mut client, row.number).unwrap();
        assert_eq!(found["parameters"]["id"], row.id.as_str(), "{found}");
        count += 1;
    }
    assert!(count > 50, "only {count} were answered");
}

#[test]
fn a_server_that_waits_for_its_database_obeys_a_signal() {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ringwell@{}/ringwell", database.local_addr().unwrap());
    // Without an address of its own, it would end if another test uses the default one.
    let settings = format!("management.address = \"127.0.0.1:0\"\ndirectory.database = \"{url}\"");
    let site = Site::new(vec![], &settings);
    database.set_nonblocking(true).unwrap();
    for name in ["TERM", "INT"] {
        let mut command = site.serve(&[]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // The database accepts the connection and never answers.
        let until = Instant::now() + SOON;
        let mut waiting = database.accept();
        while waiting.is_err() && child.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
            waiting = database.accept();
        }
        if waiting.is_ok() {
            signal(child.id(), name);
        }
        let until = Instant::now() + SOON;
        while child.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // Has no effect if the server has ended.
        let _ = child.kill();
        let ended = child.wait_with_output().unwrap();
        let log = String::from_utf8(ended.stderr).unwrap();
        assert!(waiting.is_ok(), "{name}: no connection to the database\n{log}");
        assert_eq!(ended.status.code(), Some(0), "{name}: {}\n{log}", ended.status);
        assert!(log.contains("stopped before the startup was complete"), "{log}");
        drop(waiting);
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let site = site();
    let mut server = Server::start(site.serve(&[]));
    let mut slow = server.client();
    let bytes = bytes(&site, "slow");
    slow.send(&bytes[..bytes.len() - 1]).unwrap();
    thread::sleep(Duration::from_millis(50));
    server.terminate();
    wait_until_out_of_rotation(&server);
    let began = Instant::now();
    server.terminate();
    assert_eq!(server.wait(SOON).code(), Some(143), "{}", server.log());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(TcpStream::connect(server.address()).is_err());
}

/// A server whose log the test can read or leave unread. Killed when dropped.
struct Logging {
    child: Child,
    log: Lines<BufReader<PipeReader>>,
    full: Option<JoinHandle<()>>,
    writer: PipeWriter,
}

impl Logging {
    fn start(site: &Site) -> Self {
        let (log, writer) = std::io::pipe().unwrap();
        let mut command = site.serve(&[]);
        command.stdout(Stdio::null()).stderr(writer.try_clone().unwrap());
        let child = command.spawn().unwrap();
        let mut log = BufReader::new(log).lines();
        let serving = { &mut log }.any(|line| line.unwrap().contains("\"serving\""));
        assert!(serving, "the server has ended");
        Self { child, log, full: None, writer }
    }

    /// Fills the log's pipe with empty lines. It stays full until the log is read again.
    fn fill(&mut self) {
        let (mut writer, lines) = (self.writer.try_clone().unwrap(), vec![b'\n'; PIPE_BYTES + 1]);
        self.full = Some(thread::spawn(move || writer.write_all(&lines).unwrap()));
        thread::sleep(Duration::from_millis(200));
    }

    /// Reads what [`Self::fill`] has written.
    fn empty(&mut self) {
        { &mut self.log }.take(PIPE_BYTES + 1).for_each(|line| assert_eq!(line.unwrap(), ""));
        self.full.take().unwrap().join().unwrap();
    }

    fn hang_up(&self) {
        signal(self.child.id(), "HUP");
        thread::sleep(Duration::from_millis(200));
    }

    /// Sends SIGTERM. Returns the exit code and the rest of the log.
    fn stop(mut self) -> (Option<i32>, String) {
        signal(self.child.id(), "TERM");
        let until = Instant::now() + SOON;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill().unwrap();
        drop(self.writer);
        (self.child.wait().unwrap().code(), self.log.map(|line| line.unwrap() + "\n").collect())
    }
}

#[test]
fn lines_that_no_process_reads_are_dropped_and_counted() {
    let site = site();
    let mut server = Logging::start(&site);
    server.fill();
    (0..3).for_each(|_| server.hang_up());
    server.empty();
    server.hang_up();
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    let dropped = log.lines().find(|line| line.contains("log lines were dropped")).expect(&log);
    let dropped: serde_json::Value = serde_json::from_str(dropped).unwrap();
    assert!(dropped["lines"].as_u64() >= Some(3), "one line for each reload: {dropped}");
    assert_eq!(log.matches("SIGHUP").count(), 1, "{log}");
}

#[test]
fn a_log_that_no_process_reads_does_not_prevent_the_shutdown() {
    let site = site();
    let mut server = Logging::start(&site);
    server.fill();
    server.hang_up();
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
}
