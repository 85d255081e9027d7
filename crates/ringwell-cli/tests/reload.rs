//! Reloads by SIGHUP: pools appear, change and disappear while the real program serves requests.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::batch::{self, Ask, BULK, Row};
use support::client::Client;
use support::server::Server;
use support::site::{Pool, Site};

const LONG: Duration = Duration::from_mins(1);
fn pools(count: u64, numbers: u64) -> Vec<Pool> {
    (1..=count).map(|id| Pool::new(id, numbers, LONG)).collect()
}

fn started(site: &Site) -> Server {
    Server::start(site.serve(&[]))
}

#[test]
fn pools_grow_appear_and_disappear_and_no_lockout_is_lost() {
    let mut site = Site::new(pools(8, 2), "shards = 2");
    let server = started(&site);
    let mut client = server.client();
    for pool in &site.pools {
        assert_eq!(batch::one(&mut client, pool, "a").number, pool.first);
    }
    let mut next = pools(10, 3);
    let gone = next.remove(0);
    site.write(next);
    let logged = server.reload();
    assert!(logged.contains("reloaded") && logged.contains("\"ring_pools\":9"), "{logged}");
    for pool in &site.pools[..7] {
        let rows: Vec<Row> = (0..3).map(|_| batch::one(&mut client, pool, "b")).collect();
        let wanted = [pool.first + 1, pool.first + 2, pool.overflow];
        assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), wanted);
    }
    assert_eq!(batch::one(&mut client, &site.pools[8], "c").number, site.pools[8].first);
    let body = batch::body(&[Ask { pool: 1, id: "x".into() }], std::slice::from_ref(&gone));
    let answer = client.post(BULK, &[], &body).unwrap();
    assert!(answer.body.contains("InvalidKey"), "{}", answer.body);
    let held = batch::holder(&mut client, gone.first).unwrap();
    assert_eq!(held["parameters"]["id"], "a", "a removed pool keeps its history: {held}");
    // The history is still available after a restart, and after the pool has been added again.
    server.kill();
    let server = started(&site);
    let mut client = server.client();
    site.write(pools(10, 3));
    server.reload();
    let rows: Vec<u64> =
        (0..3).map(|_| batch::one(&mut client, &site.pools[0], "d").number).collect();
    assert_eq!(rows, [gone.first + 1, gone.first + 2, gone.overflow], "{rows:?}");
    server.stop();
}

/// Numbers that move repeatedly between pools of different shards must keep their lockouts.
#[test]
fn a_number_that_changes_pools_and_shards_keeps_its_lockout() {
    const POOLS: u64 = 6;
    let rotated = |turn: u64| -> Vec<Pool> {
        let first = |id: u64| Pool::new((id + turn) % POOLS + 1, 1, LONG).first;
        pools(POOLS, 4).into_iter().map(|pool| Pool { first: first(pool.id), ..pool }).collect()
    };
    let mut site = Site::new(rotated(0), "shards = 3");
    let server = started(&site);
    let mut client = server.client();
    let mut given = BTreeMap::new();
    for turn in 1..=4 {
        for pool in &site.pools {
            let row = batch::one(&mut client, pool, &format!("{turn}-{}", pool.id));
            assert!(!row.overflow, "each has a free number left: {row:?}");
            assert_eq!(given.insert(row.number, row.id.clone()), None, "{row:?} was locked");
        }
        site.write(rotated(turn));
        assert!(server.reload().contains("reloaded"));
    }
    for pool in &site.pools {
        assert!(batch::one(&mut client, pool, "late").overflow, "all are locked out");
    }
    for (number, id) in given {
        let held = batch::holder(&mut client, number).unwrap();
        assert_eq!(held["parameters"]["id"], id, "{held}");
    }
    server.stop();
}

#[test]
fn a_repeated_batch_gets_no_number_of_another_pool() {
    let mut site = Site::new(pools(2, 2), "shards = 1");
    let server = started(&site);
    let mut client = server.client();
    let [one, other] = [site.pools[0].clone(), site.pools[1].clone()];
    let body = batch::body(&[Ask { pool: one.id, id: "a".into() }], std::slice::from_ref(&one));
    let mut send = || {
        let answer = client.post(BULK, &[("idempotency-key", "order-1")], &body).unwrap();
        batch::rows(&answer)[0].number
    };
    assert_eq!(send(), one.first);
    // The first pool's numbers are moved to the other pool.
    site.write(vec![
        Pool { first: one.first + 10, ..one.clone() },
        Pool { first: one.first, ..other.clone() },
    ]);
    assert!(server.reload().contains("reloaded"));
    assert_eq!(send(), one.overflow);
    site.write(vec![one.clone(), other]);
    assert!(server.reload().contains("reloaded"));
    assert_eq!(
        send(),
        one.first,
        "it belongs to the pool again, and no other visitor has had \
        it"
    );
    server.stop();
}

#[test]
fn an_impossible_change_changes_nothing_and_is_reported() {
    let mut site = Site::new(pools(3, 2), "shards = 2");
    let server = started(&site);
    let mut client = server.client();
    let given = batch::one(&mut client, &site.pools[0], "a").number;
    let mut twice = pools(3, 2);
    twice[1].first = given;
    site.write(twice);
    assert!(server.reload().contains("are unchanged"));
    server.says("is in ring pool 1 too");
    let mut everybodys = pools(3, 2);
    everybodys[1].overflow = given;
    everybodys[0].first += 1;
    site.write(everybodys.clone());
    let logged = server.reload();
    assert!(logged.contains("it is in rotation"), "{logged}");
    // A number that has been taken out of rotation is still locked for its visitor.
    everybodys[1].overflow = Pool::new(2, 2, LONG).overflow;
    site.write(everybodys.clone());
    assert!(server.reload().contains("reloaded"));
    everybodys[1].overflow = given;
    site.write(everybodys);
    let logged = server.reload();
    assert!(logged.contains("a visitor holds it"), "{logged}");
    let good = fs::read_to_string(site.config()).unwrap();
    let (before, rest) = good.split_once("ring_pool_key = \"").unwrap();
    let sample = format!("{before}ring_pool_key = \"change-me-{rest}");
    fs::write(site.config(), sample).unwrap();
    assert!(server.reload().contains("are unchanged"));
    server.says("is a key of the sample");
    fs::write(site.config(), "data = ").unwrap();
    assert!(server.reload().contains("are unchanged"));
    let pool = Pool { first: given + 1, ..site.pools[0].clone() };
    assert_eq!(batch::one(&mut client, &pool, "b").number, given + 1);
    server.stop();
}

#[test]
fn pools_change_under_load_and_no_number_goes_out_twice() {
    let mut site = Site::new(pools(12, 40), "shards = 2");
    let server = started(&site);
    let is_over = AtomicBool::new(false);
    let shifted = |turn: u64| -> Vec<Pool> {
        let grown = |pool: Pool| Pool { numbers: 40 + 10 * ((turn + pool.id) % 4), ..pool };
        pools(12, 40).into_iter().map(grown).collect()
    };
    let given = thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|caller| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut numbers = Vec::new();
                    let asks: Vec<Ask> =
                        (1..=12).map(|pool| Ask { pool, id: format!("c{caller}") }).collect();
                    let body = batch::body(&asks, &pools(12, 1));
                    while !is_over.load(Ordering::Relaxed) {
                        let answer = client.post(BULK, &[], &body).unwrap();
                        let rows = batch::rows(&answer);
                        numbers.extend(rows.iter().filter(|r| !r.overflow).map(|r| r.number));
                    }
                    numbers
                })
            })
            .collect();
        for turn in 0..20 {
            site.write(shifted(turn));
            assert!(server.reload().contains("reloaded"));
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
    });
    let mut once = given.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), given.len(), "a number went out twice within its lockout");
    let all: u64 = 12 * 70;
    assert!(given.len() as u64 <= all && given.len() > 12 * 40, "{} of {all}", given.len());
    server.stop();
}

/// Waits until the process that serves `site` has a handler for SIGHUP. Returns its process id.
fn process_of(site: &Site) -> u32 {
    let config = site.config().to_str().unwrap().to_owned();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < until, "no process catches SIGHUP");
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
            let is_ours = String::from_utf8_lossy(&read("cmdline")).contains(&config);
            let status = String::from_utf8_lossy(&read("status")).into_owned();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            if is_ours && caught.is_some_and(|mask| mask & 1 != 0) {
                return process.file_name().to_str().unwrap().parse().unwrap();
            }
        }
    }
}

#[test]
fn a_starting_server_reloads_its_pools_once_it_serves() {
    let mut site = Site::new(pools(1, 2), "shards = 2");
    let command = site.serve(&[]);
    let server = thread::scope(|scope| {
        let starting = scope.spawn(|| Server::start(command));
        let process = process_of(&site).to_string();
        site.write(pools(2, 2));
        let sent = Command::new("kill").args(["-HUP", &process]).status().unwrap();
        assert!(sent.success());
        starting.join().unwrap()
    });
    server.says("\"ring_pools\":2");
    let pool = &site.pools[1];
    assert_eq!(batch::one(&mut server.client(), pool, "a").number, pool.first);
    server.stop();
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[test]
fn a_call_to_a_number_while_it_was_an_overflow_number_belongs_to_no_earlier_visitor() {
    let lifetime = Duration::from_secs(1);
    let pool = Pool::new(1, 2, lifetime);
    let mut site = Site::new(vec![pool.clone()], "");
    let server = started(&site);
    let mut client = server.client();
    let number = batch::one(&mut client, &pool, "alice").number;
    assert_eq!(number, pool.first);
    let shown_at = now_ms();
    thread::sleep(lifetime + Duration::from_millis(100));
    // The allocated number leaves the pool's rotation, and then becomes the pool's overflow number.
    let other = Pool { first: pool.first + 1, numbers: 1, ..pool.clone() };
    site.write(vec![other.clone()]);
    server.reload();
    let late_at = now_ms();
    thread::sleep(Duration::from_millis(20));
    site.write(vec![Pool { overflow: number, ..other.clone() }]);
    server.reload();
    let rows: Vec<Row> = (0..2).map(|_| batch::one(&mut client, &pool, "bob")).collect();
    assert!(rows[1].overflow && rows[1].number == number, "{rows:?}");
    let overflow_at = now_ms();
    thread::sleep(Duration::from_millis(20));
    let outcome = |client: &mut Client, at: u64| {
        batch::attribution(client, number, at).unwrap()["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome(&mut client, overflow_at), "overflow");
    // The number is now in no pool.
    site.write(vec![other]);
    server.reload();
    let mut running = Some(server);
    for _ in 0..2 {
        let server = running.take().unwrap_or_else(|| started(&site));
        let mut client = server.client();
        assert_eq!(outcome(&mut client, overflow_at), "not_kept");
        assert_eq!(outcome(&mut client, shown_at), "allocated");
        assert_eq!(outcome(&mut client, late_at), "allocated", "late, and nothing else since");
        server.stop();
    }
    // If `overflow-periods.json` is unreadable, any number may have been an overflow number before
    // this startup.
    let file = site.data().join("overflow-periods.json");
    fs::write(&file, "{").unwrap();
    let server = started(&site);
    let mut client = server.client();
    for (at, wanted) in [(overflow_at, "not_kept"), (shown_at, "allocated"), (late_at, "not_kept")]
    {
        assert_eq!(outcome(&mut client, at), wanted);
    }
    assert_eq!(fs::read_to_string(file.with_extension("bad")).unwrap(), "{");
    assert!(server.stop().contains("overflow-periods.bad"));
}

#[test]
fn a_number_whose_pool_is_gone_had_no_visitor_before_its_first_and_a_strange_number_is_unknown() {
    let before = now_ms();
    thread::sleep(Duration::from_millis(20));
    let mut site = Site::new(pools(2, 10), "");
    let server = started(&site);
    let mut client = server.client();
    let number = batch::one(&mut client, &site.pools[1], "alice").number;
    let shown_at = now_ms();
    site.write(pools(1, 10));
    server.reload();
    let look_up = |client: &mut Client, number: u64, at: u64| {
        let found = batch::attribution(client, number, at).unwrap();
        (found["outcome"].as_str().map(str::to_owned), found["status"].as_u64())
    };
    assert_eq!(look_up(&mut client, number, shown_at), (Some("allocated".to_owned()), None));
    assert_eq!(look_up(&mut client, number, before), (Some("none".to_owned()), None));
    assert_eq!(look_up(&mut client, number + 1, before), (None, Some(404)), "never handed out");
    server.stop();
}
