//! The real program on a disk that becomes full. It must answer with overflow numbers instead of
//! errors, log the cause, and hand out numbers again as soon as the disk has free space.
//!
//! Needs permission to mount a small file system. Without this permission, the tests print a
//! message and end.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::fs::{self, OpenOptions};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use support::batch::{self, Ask, BULK, Row};
use support::client::Client;
use support::disk::Disk;
use support::server::{Server, signal};
use support::site::{Pool, Site};
use tempfile::TempDir;

const SETTINGS: &str = "\
shards = 2
durability = \"disk\"
journal.segment_bytes = \"1MiB\"
journal.snapshot_every_bytes = \"1MiB\"";

/// The size of the disk, which is enough for a few segments of two shards and a snapshot.
const DISK: &str = "24m";
const ROWS: usize = 20;
const LOOKED_UP: usize = 500;
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that records the numbers that it gets.
#[derive(Debug)]
struct Visitors<'a> {
    site: &'a Site,
    client: Client,
    count: usize,
    given: Vec<Row>,
}

impl<'a> Visitors<'a> {
    fn new(site: &'a Site, server: &Server) -> Self {
        Self { site, client: server.client(), count: 0, given: Vec::new() }
    }

    /// Sends one batch, and returns the count of its overflow numbers. No row may be an error.
    fn ask(&mut self) -> usize {
        let ask = |row: usize| Ask {
            pool: self.site.pools[row % self.site.pools.len()].id,
            id: format!("v{}-{row}", self.count),
        };
        let asks: Vec<Ask> = (0..ROWS).map(ask).collect();
        self.count += 1;
        let body = batch::body(&asks, &self.site.pools);
        let rows = batch::rows(&self.client.post(BULK, &[], &body).unwrap());
        for (ask, row) in asks.iter().zip(&rows) {
            assert_eq!(ask.id, row.id);
            let pool = self.site.pools.iter().find(|pool| pool.id == ask.pool).unwrap();
            let is_good = if row.overflow {
                row.number == pool.overflow
            } else {
                (pool.first..pool.first + pool.numbers).contains(&row.number)
            };
            assert!(is_good, "{row:?}");
        }
        let (overflow, given): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|r| r.overflow);
        self.given.extend(given);
        overflow.len()
    }

    /// Sends batches until a batch gets `overflow` overflow numbers.
    fn ask_until(&mut self, overflow: usize) {
        let until = Instant::now() + PATIENCE;
        while self.ask() != overflow {
            assert!(Instant::now() < until, "no batch has {overflow} overflow numbers");
            if overflow == 0 {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn readiness(&mut self) -> (u16, String) {
        let answer = self.client.get("/readyz", &[]).unwrap();
        (answer.status, answer.body)
    }

    /// Checks that no number was allocated twice. Also checks that the newest numbers, and a sample
    /// of all numbers, are attributed to their visitors.
    fn check(&mut self) {
        let mut numbers: Vec<u64> = self.given.iter().map(|row| row.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), self.given.len(), "a number went out twice");
        let newest = self.given.iter().rev().take(LOOKED_UP);
        for row in newest.chain(self.given.iter().step_by(self.given.len() / LOOKED_UP + 1)) {
            let found = batch::holder(&mut self.client, row.number).unwrap();
            assert_eq!(found["parameters"]["id"], row.id.as_str(), "{row:?}: {found}");
        }
    }
}

/// Returns the count of rows, over all shards, that overflowed because the journal was full.
fn overflow_of_full(client: &mut Client) -> u64 {
    let metrics = client.get("/metrics", &[]).unwrap().body;
    let lines = metrics.lines().filter(|line| {
        line.starts_with("ringwell_overflow_rows_total") && line.contains("journal_full")
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Creates a site on a small separate disk. Prints a message and returns `None` if mounting is not
/// permitted.
fn site_on_small_disk() -> Option<(Site, Disk)> {
    let folder = TempDir::new().unwrap();
    let Some(disk) = Disk::mount(folder.path(), DISK) else {
        println!("SKIPPED: no right to mount a small file system here");
        return None;
    };
    // Lockouts outlast the test, so each number is handed out once.
    let pools = (1..=20).map(|id| Pool::new(id, 5_000, Duration::from_mins(30))).collect();
    let site = Site::with_data(folder, disk.at.join("data"), pools, SETTINGS);
    Some((site, disk))
}

#[test]
fn a_full_disk_costs_numbers_and_nothing_else() {
    let Some((site, disk)) = site_on_small_disk() else { return };
    let server = Server::start(site.serve(&[]));
    let mut visitors = Visitors::new(&site, &server);
    for _ in 0..20 {
        assert_eq!(visitors.ask(), 0, "there is room");
    }
    disk.fill();
    visitors.ask_until(ROWS);
    let (status, body) = visitors.readiness();
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(r#""journals":["full","full"]"#), "{body}");
    assert!(overflow_of_full(&mut visitors.client) >= ROWS as u64);
    assert_eq!(visitors.client.get("/healthz", &[]).unwrap().status, 200, "it lives");
    server.says("the disk is full");
    visitors.check();
    // Work that fails while the disk is full is tried again every second, but reported only once
    // per minute.
    thread::sleep(Duration::from_secs(5));
    let log = server.log();
    let retries = log.lines().filter(|line| line.contains("trying again later")).count();
    assert!(retries <= 4, "{retries} lines for two shards: {log}");

    // As soon as the disk has free space, the server resumes by itself.
    disk.make_room();
    visitors.ask_until(0);
    let (status, body) = visitors.readiness();
    assert_eq!(status, 200, "{body}");
    server.says("the journal has room again");

    // The server is killed while the disk is full again. All answered allocations must be kept, and
    // no number may be handed out twice.
    disk.fill();
    visitors.ask_until(ROWS);
    server.kill();
    disk.make_room();
    let server = Server::start(site.serve(&[]));
    visitors.client = server.client();
    visitors.check();
    for _ in 0..20 {
        assert_eq!(visitors.ask(), 0, "there is room");
    }
    visitors.check();
    server.stop();
}

#[test]
fn a_stop_and_a_start_on_a_full_disk_lose_nothing() {
    let Some((site, disk)) = site_on_small_disk() else { return };
    let mut server = Server::start(site.serve(&[]));
    let mut visitors = Visitors::new(&site, &server);
    assert_eq!(visitors.ask(), 0, "there is room");
    disk.fill();
    visitors.ask_until(ROWS);
    server.terminate();
    // Allocations that waited for disk space were neither stored nor answered. The exit code
    // reports this.
    assert_eq!(server.wait(PATIENCE).code(), Some(1), "{}", server.log());

    let server = Server::start(site.serve(&[]));
    visitors.client = server.client();
    visitors.check();
    visitors.ask_until(ROWS);
    assert_eq!(visitors.readiness().0, 503);
    server.kill();

    disk.make_room();
    let server = Server::start(site.serve(&[]));
    visitors.client = server.client();
    visitors.check();
    visitors.ask_until(0);
    visitors.check();
    server.stop();
}

/// At startup, the server needs the longest lifetime that may have been guaranteed to an earlier
/// allocation. On a full disk, a lifetime can therefore be shortened only if the longer lifetime
/// has already been recorded.
#[test]
fn a_shorter_lifetime_takes_effect_on_a_full_disk_if_the_longer_one_is_recorded() {
    let Some((mut site, disk)) = site_on_small_disk() else { return };
    let server = Server::start(site.serve(&[]));
    let kept = site.data().join("lifetimes.json");
    let before = fs::read_to_string(&kept).unwrap();
    let pools = site.pools.clone();
    let with = |lifetime| {
        let pool = |pool: &Pool| Pool { lifetime, ..pool.clone() };
        pools.iter().map(pool).collect::<Vec<_>>()
    };
    let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
    disk.fill();
    site.write(with(second));
    assert!(server.reload().contains("reloaded"));
    server.says("lifetimes could not be recorded");
    assert_eq!(fs::read_to_string(&kept).unwrap(), before);
    server.kill();
    let server = Server::start(site.serve(&[]));
    server.says("lifetimes could not be recorded");

    // Startup freed some disk space, and the first rounds of maintenance may free more. The test
    // therefore keeps filling the disk. A lifetime of an hour was never recorded.
    disk.kept_full(|| thread::sleep(Duration::from_secs(3)));
    site.write(with(hour));
    assert!(server.reload().contains("reloaded"));
    site.write(with(second));
    // On a busy machine, the server may still free disk space during this reload.
    let line = disk.kept_full(|| server.reload());
    for part in ["cannot reload the pools", "lifetimes.json", "free some space"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), before);
    disk.make_room();
    let line = server.reload();
    assert!(line.contains("reloaded"), "{line}");
    let recorded = fs::read_to_string(&kept).unwrap();
    // The lifetime of an hour is recorded in shard time, and is therefore slightly longer.
    assert!(recorded.contains("\"earlier\":3601801"), "{recorded}");

    // The server also cannot record a longer lifetime at startup.
    disk.fill();
    server.kill();
    site.write(with(hour * 2));
    let refused = Server::try_start(site.serve(&[])).unwrap_err();
    for part in ["lifetimes.json", "free some space"] {
        assert!(refused.log.contains(part), "{part}: {}", refused.log);
    }
}

#[test]
fn lines_of_the_log_that_a_full_disk_cuts_off_are_ended_and_counted() {
    let folder = TempDir::new().unwrap();
    let Some(disk) = Disk::mount(folder.path(), "64k") else {
        println!("SKIPPED: no right to mount a small file system here");
        return;
    };
    let site = Site::new(vec![Pool::new(1, 10, Duration::from_mins(1))], "shards = 1");
    let log = disk.at.join("log");
    let file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
    let mut command = site.serve(&[]);
    let mut child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let read = || fs::read_to_string(&log).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !read().contains("\"serving\"") {
        assert!(Instant::now() < until, "{}", read());
        thread::sleep(Duration::from_millis(5));
    }
    // Log lines fill the last page of the log file until one of them is cut off.
    disk.fill();
    for _ in 0..30 {
        signal(child.id(), "HUP");
        thread::sleep(Duration::from_millis(20));
    }
    let before = read();
    disk.make_room();
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let log = read();
    assert!(!before.ends_with('\n'), "no line was cut off:\n{before}");
    let cut = log.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_err());
    assert_eq!(cut.count(), 1, "{log}");
    assert!(log.contains("log lines were dropped"), "{log}");
}
