//! Shutdown and startup of the real program: the state that it keeps, and the reasons why it
//! refuses to start.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "restart/data.rs"]
mod data;
#[path = "restart/disk_use.rs"]
mod disk_use;
#[path = "restart/history.rs"]
mod history;
#[path = "restart/memory.rs"]
mod memory;
mod support;

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::batch::{self, Ask, BULK};
use support::client::Client;
use support::server::{Refused, Server};
use support::site::{Pool, Site};

const LONG: Duration = Duration::from_mins(1);
fn pools(count: u64, numbers: u64, lifetime: Duration) -> Vec<Pool> {
    (1..=count).map(|id| Pool::new(id, numbers, lifetime)).collect()
}

/// Returns the current holder of `number`: the id in the parameters of its newest allocation.
fn holder(client: &mut Client, number: u64) -> Value {
    batch::holder(client, number).unwrap()["parameters"]["id"].clone()
}

fn refused(site: &Site, flags: &[&str]) -> Refused {
    match Server::try_start(site.serve(flags)) {
        Ok(server) => panic!("it started:\n{}", server.log()),
        Err(refused) => refused,
    }
}

#[test]
fn a_clean_stop_keeps_everything_and_the_next_start_reads_snapshots_alone() {
    let site = Site::new(pools(4, 3, LONG), "shards = 2");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    for pool in &site.pools {
        assert_eq!(batch::one(&mut client, pool, &format!("a{}", pool.id)).number, pool.first);
    }
    let gone = site.pools[0].first;
    assert!(batch::release(&mut client, gone));
    let log = server.stop();
    assert!(log.contains("draining") && log.contains("stopped"), "{log}");

    let server = Server::start(site.serve(&[]));
    let log = server.log();
    let reads: Vec<&str> = log.lines().filter(|line| line.contains("read the journal")).collect();
    assert_eq!(reads.len(), 2, "{log}");
    for read in reads {
        assert!(read.contains(r#""snapshot":true,"groups":0,"verdict":"clean""#), "{read}");
    }
    let mut client = server.client();
    for pool in &site.pools {
        assert_eq!(holder(&mut client, pool.first), format!("a{}", pool.id));
        assert_eq!(batch::one(&mut client, pool, "b").number, pool.first + 1);
        assert_eq!(batch::one(&mut client, pool, "c").number, pool.first + 2);
        let is_released = pool.first == gone;
        let last = batch::one(&mut client, pool, "d");
        assert_eq!(last.number == pool.first, is_released, "{last:?}");
        assert_eq!(last.overflow, !is_released, "{last:?}");
    }
    server.stop();
}

/// The test removes the last byte of the journal's newest frame. The frame's last block ends in
/// zeros, so this byte is zero.
/// A damaged newest snapshot must not remain in place of the intact one before it.
#[test]
fn a_damaged_snapshot_does_not_displace_the_intact_one_before_it() {
    let site = Site::new(pools(1, 3, LONG), "shards = 1");
    let visited = || {
        let server = Server::start(site.serve(&[]));
        assert!(!batch::one(&mut server.client(), &site.pools[0], "x").overflow);
        server
    };
    let snapshots = || {
        let files = std::fs::read_dir(site.data().join("journal/0")).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let mut found: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|it| it == "rps")).collect();
        found.sort();
        found
    };
    visited().stop();
    visited().stop();
    // The journal has a group after the newest snapshot, so the next start takes another snapshot
    // without replacing the damaged file.
    visited().kill();
    let before = snapshots();
    assert_eq!(before.len(), 2, "{before:?}");
    let mut bytes = std::fs::read(&before[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&before[1], bytes).unwrap();
    let server = Server::start(site.serve(&[]));
    server.says("trying the one before it");
    let until = Instant::now() + LONG;
    while snapshots().last() == before.last() {
        assert!(Instant::now() < until, "{}", server.log());
        thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    let after = snapshots();
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0], before[0], "the intact one is kept");
}

#[test]
fn a_journal_that_lost_its_last_byte_is_refused_and_not_reported_as_clean() {
    let site = Site::new(pools(1, 3, LONG), "");
    let server = Server::start(site.serve(&[]));
    let number = batch::one(&mut server.client(), &site.pools[0], "a").number;
    server.kill();
    let newest = site.newest_segment();
    let bytes = std::fs::read(&newest).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap().next_multiple_of(4096);
    std::fs::write(&newest, &bytes[..used - 1]).unwrap();
    let refused = refused(&site, &[]);
    assert!(refused.log.contains("was longer when it was created"), "{}", refused.log);
    std::fs::write(&newest, &bytes).unwrap();
    let server = Server::start(site.serve(&[]));
    assert_eq!(holder(&mut server.client(), number), "a");
    assert_ne!(batch::one(&mut server.client(), &site.pools[0], "b").number, number);
    server.stop();
}

#[test]
fn another_number_of_shards_changes_no_lockout_and_no_attribution() {
    let site = Site::new(pools(24, 3, LONG), "");
    let mut handed_out = Vec::new();
    for (shards, id) in [("2", "a"), ("1", "b"), ("3", "c"), ("2", "d")] {
        let server = Server::start(site.serve(&["--shards", shards]));
        let mut client = server.client();
        for (number, id) in &handed_out {
            assert_eq!(holder(&mut client, *number), *id, "{number} with {shards} shards");
        }
        for pool in &site.pools {
            let row = batch::one(&mut client, pool, &format!("{id}{}", pool.id));
            let is_known = handed_out.iter().any(|(number, _)| *number == row.number);
            assert!(!is_known, "{row:?} was locked, {shards} shards");
            assert_eq!(row.overflow, id == "d", "{row:?}, {shards} shards");
            if !row.overflow {
                handed_out.push((row.number, row.id));
            }
        }
        // Some servers are stopped and some are killed. No data is lost either way.
        server.end(shards == "1");
    }
}

#[test]
fn a_repeated_batch_gets_the_same_rows_even_after_a_restart_with_other_shards() {
    let site = Site::new(pools(6, 1, LONG), "shards = 2");
    let asks = (0..12).map(|row| Ask { pool: row % 6 + 1, id: format!("row{row}") });
    let body = batch::body(&asks.collect::<Vec<_>>(), &site.pools);
    let key = [("idempotency-key", "once")];
    let mut first = None;
    for (shards, is_killed) in [("2", true), ("2", false), ("1", true), ("3", false), ("2", true)] {
        let server = Server::start(site.serve(&["--shards", shards]));
        let mut client = server.client();
        // The answer must not wait until further records are written, because an idle server might
        // write none.
        for _ in 0..2 {
            let began = Instant::now();
            let answer = client.post(BULK, &key, &body).unwrap();
            assert_eq!(answer.body, *first.get_or_insert(answer.body.clone()));
            assert!(began.elapsed() < Duration::from_secs(5), "it waited for its deadline");
        }
        server.end(is_killed);
    }
    let overflow = first.unwrap().matches(r#""overflow":true"#).count();
    assert_eq!(overflow, 6, "half of the rows found their pool exhausted");
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let site = Site::new(pools(1, 1, LONG), "");
    let server = Server::start(site.serve(&[]));
    let refused = refused(&site, &[]);
    assert_eq!(refused.code, Some(1), "{}", refused.log);
    let data = site.data().to_str().unwrap();
    assert!(refused.log.contains(data), "{}", refused.log);
    let said = format!("is in use by process {}: stop that process first", server.pid());
    assert!(refused.log.contains(&said), "{}", refused.log);
    // The refused second process must not affect the first process.
    assert_eq!(batch::one(&mut server.client(), &site.pools[0], "a").number, site.pools[0].first);
    server.kill();
    Server::start(site.serve(&[])).stop();
}

#[test]
fn a_port_in_use_is_reported_by_its_number() {
    let site = Site::new(pools(1, 1, LONG), "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let refused = refused(&site, &["--listen", &taken.to_string()]);
    assert_eq!(refused.code, Some(1), "{}", refused.log);
    assert!(refused.log.contains(&format!("cannot listen on {taken}")), "{}", refused.log);
    assert!(refused.log.contains("another program already listens"), "{}", refused.log);
    drop(holder);
    // The shards of one server share an address. If another Ringwell server listens on it, the
    // address must still be reported as in use.
    let ours = Server::start(site.serve(&[]));
    let other = Site::new(pools(1, 1, LONG), "");
    let refused = self::refused(&other, &["--listen", ours.address()]);
    assert!(refused.log.contains("another program already listens"), "{}", refused.log);
}

#[test]
fn durability_is_shown_in_logs_health_and_metrics() {
    for durability in ["disk", "os", "memory"] {
        let site = Site::new(pools(1, 1, LONG), "");
        let server = Server::start(site.serve(&["--durability", durability]));
        let mut client = server.client();
        for path in ["/healthz", "/readyz"] {
            let answer = client.get(path, &[]).unwrap();
            assert_eq!((answer.status, &answer.json()["durability"]), (200, &durability.into()));
        }
        let log = server.stop();
        assert!(log.contains(&format!("\"durability\":\"{durability}\"")), "{log}");
        let warns = log.contains("a crash can lose allocations");
        assert_eq!(warns, durability != "disk", "{log}");
    }
}

#[test]
fn memory_forgets_and_the_system_remembers_when_the_process_is_killed() {
    for (durability, is_kept) in [("os", true), ("memory", false)] {
        let site = Site::new(pools(1, 2, LONG), "");
        let flags = ["--durability", durability];
        let server = Server::start(site.serve(&flags));
        let row = batch::one(&mut server.client(), &site.pools[0], "a");
        server.kill();
        let server = Server::start(site.serve(&flags));
        let is_there = holder(&mut server.client(), row.number) == "a";
        assert_eq!(is_there, is_kept, "{durability}");
    }
}

/// Requests a number from `pool` until the pool's only number is allocated. Returns an upper and a
/// lower bound on the time since an earlier request, which was sent and answered at the times in
/// `since`.
fn until_free(client: &mut Client, pool: &Pool, since: (Instant, Instant)) -> (Duration, Duration) {
    let (invoked, returned) = since;
    loop {
        let began = Instant::now();
        if !batch::one(client, pool, "again").overflow {
            return (invoked.elapsed(), began.saturating_duration_since(returned));
        }
        assert!(returned.elapsed() < Duration::from_secs(30), "it does not come back");
        thread::sleep(Duration::from_millis(2));
    }
}

fn take(client: &mut Client, pool: &Pool) -> (Instant, Instant) {
    let invoked = Instant::now();
    assert!(!batch::one(client, pool, "first").overflow);
    (invoked, Instant::now())
}

/// The maximum delay between the end of a lockout and the next allocation.
const LATE: Duration = Duration::from_millis(250);

#[test]
fn a_number_returns_after_its_lockout_and_not_before() {
    let lifetime = Duration::from_millis(300);
    let site = Site::new(pools(1, 1, lifetime), "");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let mut soonest = Duration::MAX;
    for _ in 0..3 {
        let since = take(&mut client, &site.pools[0]);
        let (at_most, at_least) = until_free(&mut client, &site.pools[0], since);
        assert!(at_most >= lifetime, "after {at_most:?}");
        soonest = soonest.min(at_least);
        // The result is not checked: on a slow machine, the new lockout may have ended already.
        batch::release(&mut client, site.pools[0].first);
        // The number is free from the next millisecond on.
        thread::sleep(Duration::from_millis(2));
    }
    // A busy machine delays some requests, but not all.
    assert!(soonest <= lifetime + LATE, "after {soonest:?}");
}

#[test]
fn a_restart_neither_ends_nor_extends_a_lockout() {
    let lifetime = Duration::from_secs(3);
    let site = Site::new(pools(1, 1, lifetime), "");
    let is_prompt_after = |is_killed| {
        let server = Server::start(site.serve(&[]));
        let since = take(&mut server.client(), &site.pools[0]);
        // If a restart started the lockout again from the beginning, the number would be locked out
        // for this much longer.
        thread::sleep(lifetime / 2);
        server.end(is_killed);
        let server = Server::start(site.serve(&[]));
        let mut client = server.client();
        let (at_most, at_least) = until_free(&mut client, &site.pools[0], since);
        assert!(at_most >= lifetime, "after {at_most:?}");
        assert!(batch::release(&mut client, site.pools[0].first));
        server.stop();
        at_least < lifetime + lifetime / 2
    };
    for is_killed in [true, false] {
        // A busy machine delays some startups, but not all.
        assert!((0..3).any(|_| is_prompt_after(is_killed)), "killed: {is_killed}");
    }
}
