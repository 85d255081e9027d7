//! Tests that the server fetches ring pools from the main application when requests need them, and
//! accepts the application's pushes. A small HTTP server in this test acts as the application.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use serde_json::{Value, json};
use support::batch::{self, Ask, BULK};
use support::client::{Client, HttpAnswer};
use support::server::Server;
use support::site::{Pool, Site};
use tempfile::TempDir;

const LONG: Duration = Duration::from_mins(1);
const SECRET: &str = "a-shared-secret-of-tests";

/// The application's answer for a pool.
#[derive(Clone)]
enum Reply {
    Pool(Value),
    Text(&'static str),
    Hang,
}

/// A main application that answers after a delay.
struct Backend {
    port: u16,
    replies: Arc<Mutex<BTreeMap<u64, Reply>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    fn new(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let replies: Arc<Mutex<BTreeMap<u64, Reply>>> = Arc::default();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (of_thread, seen) = (Arc::clone(&replies), Arc::clone(&heads));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (replies, seen) = (Arc::clone(&of_thread), Arc::clone(&seen));
                // An error is ignored, because the Ringwell server must handle a broken connection.
                thread::spawn(move || answer(stream, delay, &replies, &seen).ok());
            }
        });
        Self { port, replies, heads }
    }

    fn knows(&self, pool: &Pool) {
        self.replies.lock().unwrap().insert(pool.id, Reply::Pool(as_json(pool)));
    }

    fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }

    /// Creates a server's configuration with one pool.
    fn site(&self, more: &str) -> Site {
        self.site_with(more, "")
    }

    fn site_with(&self, more: &str, of_application: &str) -> Site {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("data");
        fs::write(folder.path().join("app.token"), "the-token-of-the-application\n").unwrap();
        fs::write(folder.path().join("hook.secret"), SECRET).unwrap();
        let port = self.port;
        let more = format!(
            "shards = 2\n{more}\n[application]\nurl = \"http://127.0.0.1:{port}/pools/{{id}}.json\"\n\
             token_file = \"app.token\"\nwebhook_secret_file = \"hook.secret\"\n\
             refusal_age = \"500ms\"\n{of_application}"
        );
        Site::with_data(folder, data, vec![Pool::new(1, 100, LONG)], &more)
    }
}

fn as_json(pool: &Pool) -> Value {
    let last = pool.first + pool.numbers - 1;
    json!({
        "id": pool.id, "ring_pool_key": pool.key, "lifetime_seconds": pool.lifetime.as_secs(),
        "numbers": [format!("{}-{last}", pool.first)],
        "overflow_number": pool.overflow.to_string(),
    })
}

fn answer(
    stream: TcpStream,
    delay: Duration,
    replies: &Mutex<BTreeMap<u64, Reply>>,
    seen: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    seen.lock().unwrap().push(head.clone());
    let id = head.split(['/', '.']).find_map(|part| part.parse::<u64>().ok()).unwrap();
    let reply = replies.lock().unwrap().get(&id).cloned();
    thread::sleep(delay);
    let text = match reply {
        Some(Reply::Pool(pool)) => {
            let body = pool.to_string();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
        Some(Reply::Text(text)) => text.to_owned(),
        Some(Reply::Hang) => {
            thread::sleep(Duration::from_secs(5));
            return Ok(());
        }
        None => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    reader.get_mut().write_all(text.as_bytes())
}

/// Sends a batch with one row for each pool.
fn ask(client: &mut Client, pools: &[Pool], id: &str) -> HttpAnswer {
    let asks: Vec<Ask> =
        pools.iter().map(|pool| Ask { pool: pool.id, id: format!("{id}-{}", pool.id) }).collect();
    client.post(BULK, &[], &batch::body(&asks, pools)).unwrap()
}

#[test]
fn a_pool_is_requested_once_however_many_batches_wait_and_is_known_afterwards() {
    let backend = Backend::new(Duration::from_millis(100));
    let pools: Vec<Pool> = (1..=4).map(|id| Pool::new(id, 100, LONG)).collect();
    pools[1..].iter().for_each(|pool| backend.knows(pool));
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let numbers: Vec<u64> = thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|caller| {
                let (server, pools) = (&server, &pools);
                scope.spawn(move || {
                    let answer = ask(&mut server.client(), pools, &format!("c{caller}"));
                    batch::rows(&answer).iter().map(|row| row.number).collect::<Vec<_>>()
                })
            })
            .collect();
        asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    });
    assert_eq!(backend.requests(), 3, "one for each unknown pool");
    let head = backend.heads.lock().unwrap()[0].to_ascii_lowercase();
    assert!(head.contains("authorization: bearer the-token-of-the-application"), "{head}");
    let mut once = numbers.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!((once.len(), numbers.len()), (32, 32), "{numbers:?}");
    let mut client = server.client();
    let begun = Instant::now();
    let rows = batch::rows(&ask(&mut client, &pools, "later"));
    assert!(rows.iter().all(|row| !row.overflow && row.number > 0), "{rows:?}");
    assert!(begun.elapsed() < Duration::from_millis(90), "it asked again");
    let wrong = Pool { key: "another-key-of-2".into(), ..pools[1].clone() };
    assert!(ask(&mut client, &[wrong], "wrong").body.contains("InvalidKey"));
    assert_eq!(backend.requests(), 3);
    // After a restart, fetched pools must be fetched again, but their lockouts are still known.
    server.kill();
    let server = Server::start(site.serve(&[]));
    let rows = batch::rows(&ask(&mut server.client(), &pools, "again"));
    assert!(rows.iter().all(|row| !numbers.contains(&row.number)), "{rows:?}");
    assert_eq!(backend.requests(), 6);
    server.stop();
}

/// All requests for single allocations have the same `Idempotency-Key`, and each is for a pool that
/// must be fetched first. Each request must get a number from its own pool.
#[test]
fn one_key_for_single_allocations_of_unknown_pools_returns_a_number_of_each() {
    let backend = Backend::new(Duration::ZERO);
    // The pools are distributed over two shards, so some pools share a shard.
    let pools: Vec<Pool> = (17..22).map(|id| Pool::new(id, 5, LONG)).collect();
    for pool in &pools {
        backend.knows(pool);
    }
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    for pool in &pools {
        let path = format!("/api/2013-07-01/ring_pools/{}", pool.suffix("a=1"));
        let answer = client.get(&path, &[("idempotency-key", "order-1")]).unwrap();
        let first = pool.first.to_string();
        assert!(answer.body.contains(&first), "pool {}: {}", pool.id, answer.body);
    }
    assert_eq!(backend.requests(), 5);
    server.stop();
}

#[test]
fn a_refusal_is_remembered_and_rows_of_known_pools_have_their_numbers() {
    let backend = Backend::new(Duration::ZERO);
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let pools = [Pool::new(1, 100, LONG), Pool::new(9, 100, LONG)];
    for round in 0..5 {
        let answer = ask(&mut client, &pools, &format!("r{round}"));
        assert!(answer.body.contains("InvalidKey"), "{}", answer.body);
        let number = format!("{}", pools[0].first + round);
        assert!(answer.body.contains(&number), "{}", answer.body);
    }
    assert_eq!(backend.requests(), 1, "the refusal is remembered");
    backend.knows(&pools[1]);
    thread::sleep(Duration::from_millis(600));
    let rows = batch::rows(&ask(&mut client, &pools, "known"));
    assert_eq!(rows[1].number, pools[1].first, "and forgotten after a while");
    server.stop();
}

#[test]
fn a_slow_or_broken_application_only_affects_its_own_rows_and_the_deadline_holds() {
    let backend = Backend::new(Duration::from_millis(600));
    let known = Pool::new(1, 100, LONG);
    let slow = Pool::new(2, 100, LONG);
    backend.knows(&slow);
    let misled = Pool { id: 3, ..Pool::new(77, 10, LONG) };
    let clash = Pool { first: known.first, ..Pool::new(4, 5, LONG) };
    for (id, reply) in [
        (3, Reply::Pool(as_json(&Pool::new(77, 10, LONG)))),
        (4, Reply::Pool(as_json(&clash))),
        (5, Reply::Text("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")),
        (6, Reply::Text("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{\"id")),
        (7, Reply::Text("SSH-2.0-nonsense\r\n")),
        (8, Reply::Hang),
    ] {
        backend.replies.lock().unwrap().insert(id, reply);
    }
    let site = backend.site("");
    let server = Server::start(site.serve(&["--deadline", "400ms"]));
    let mut client = server.client();
    let begun = Instant::now();
    let answer = ask(&mut client, &[known.clone(), slow.clone()], "first");
    let took = begun.elapsed();
    assert!(answer.body.contains(&known.first.to_string()), "{}", answer.body);
    assert!(answer.body.contains("InvalidKey"), "{}", answer.body);
    // The server stops waiting for the application after seven eighths of the time until the
    // deadline.
    assert!(took >= Duration::from_millis(345) && took < Duration::from_millis(580), "{took:?}");
    // The application's answer came too late for the first batch, but the next batch can use it.
    thread::sleep(Duration::from_millis(500));
    let rows = batch::rows(&ask(&mut client, &[known.clone(), slow.clone()], "second"));
    assert_eq!(rows[1].number, slow.first);
    let others = (5..=8).map(|id| Pool::new(id, 10, LONG));
    for pool in [misled, clash].into_iter().chain(others) {
        // Waits because the server logs at most one failed fetch per second.
        thread::sleep(Duration::from_millis(1_600));
        let answer = ask(&mut client, &[known.clone(), pool.clone()], "broken");
        assert!(answer.body.contains("InvalidKey"), "{}: {}", pool.id, answer.body);
    }
    thread::sleep(Duration::from_millis(200));
    let log = server.log();
    for reason in [
        "a different ring pool, 77",
        "is in ring pool 1 too",
        "500",
        "is not JSON",
        "cannot fetch a ring pool from the main",
    ] {
        assert!(log.contains(reason), "{reason}: {log}");
    }
    assert!(!log.contains("the-token-of-the-application"));
    server.stop();
}

#[test]
fn unknown_pools_requested_while_the_application_is_down_do_not_fill_the_log() {
    let backend = Backend::new(Duration::ZERO);
    for id in 100..700 {
        let reply = Reply::Text("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
        backend.replies.lock().unwrap().insert(id, reply);
    }
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let begun = Instant::now();
    for first in (100..700).step_by(50) {
        let pools: Vec<Pool> = (first..first + 50).map(|id| Pool::new(id, 1, LONG)).collect();
        ask(&mut server.client(), &pools, "unknown");
    }
    let asked = backend.requests();
    assert!(asked > 100, "{asked}");
    let log = server.log();
    let lines =
        log.lines().filter(|line| line.contains("cannot fetch a ring pool from the main")).count();
    // The server logs at most one failed fetch per second.
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    assert!((1..=most).contains(&lines), "{lines} lines of {asked} requests");
    server.stop();
}

/// Repeatedly requests a number from the pool until `is_it` returns true for the answer.
fn ask_until(client: &mut Client, pool: &Pool, is_it: impl Fn(&HttpAnswer) -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    for round in 0.. {
        let answer = ask(client, std::slice::from_ref(pool), &format!("until-{round}"));
        if is_it(&answer) {
            return;
        }
        assert!(Instant::now() < until, "{}", answer.body);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_pool_from_the_application_is_requested_again_and_removed_if_unused() {
    let backend = Backend::new(Duration::ZERO);
    let pool = Pool::new(5, 500, LONG);
    let (idle, ended) = (Pool::new(6, 5, LONG), Pool::new(7, 500, LONG));
    for pool in [&pool, &idle, &ended] {
        backend.knows(pool);
    }
    let site = backend.site_with("", "pool_age = \"1s\"\n");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let all = [pool.clone(), idle.clone(), ended.clone()];
    let rows = batch::rows(&ask(&mut client, &all, "first"));
    assert!(rows.iter().all(|row| !row.overflow && row.number > 0), "{rows:?}");
    // One pool's key changes and another pool is removed, but the application does not push these
    // changes.
    let changed = Pool { key: "another-key-of-5".into(), ..pool.clone() };
    backend.knows(&changed);
    backend.replies.lock().unwrap().remove(&ended.id);
    ask_until(&mut client, &pool, |answer| answer.body.contains("InvalidKey"));
    ask_until(&mut client, &changed, |answer| batch::rows(answer)[0].number > 0);
    ask_until(&mut client, &ended, |answer| answer.body.contains("InvalidKey"));
    // The server forgets the idle pool, which received no rows after the first batches.
    let asked = |id: u64| {
        let heads = backend.heads.lock().unwrap();
        heads.iter().filter(|head| head.contains(&format!("/pools/{id}."))).count()
    };
    let pools = || {
        let health = server.client().get("/healthz", &[]).unwrap().body;
        serde_json::from_str::<Value>(&health).unwrap()["ring_pools"].as_u64().unwrap()
    };
    let until = Instant::now() + Duration::from_secs(20);
    while pools() > 1 {
        assert!(Instant::now() < until, "{} pools are there still", pools());
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(asked(idle.id), 2, "it was in use in its first second");
    // The idle pool is fetched again, and its lockouts still apply. The pool that is in the
    // configuration was never removed.
    let rows = batch::rows(&ask(&mut client, &[idle.clone(), site.pools[0].clone()], "again"));
    assert_eq!(rows[0].number, idle.first + 1);
    assert_eq!((rows[1].number, asked(idle.id)), (site.pools[0].first, 3));
    server.stop();
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn push(client: &mut Client, body: &str, secret: &str) -> HttpAnswer {
    push_of(client, body, secret, seconds())
}

/// Sends a push with the timestamp `seconds`, signed with `secret`.
fn push_of(client: &mut Client, body: &str, secret: &str, seconds: u64) -> HttpAnswer {
    let signature = sign(&format!("{seconds}.{body}"), secret);
    let (seconds, signature) = (seconds.to_string(), format!("sha256={signature}"));
    let headers = [("ringwell-timestamp", &*seconds), ("ringwell-signature", &*signature)];
    client.post("/v1/webhooks/ring_pools", &headers, body).unwrap()
}

/// Signs with Python, as a main application might, and not with this project's code.
fn sign(text: &str, secret: &str) -> String {
    let code = "import hmac,sys;print(hmac.new(sys.argv[1].encode(),sys.argv[2].encode(),'sha256').hexdigest())";
    let output = Command::new("python3").args(["-c", code, secret, text]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A push that has already been accepted must be refused, because an attacker may have copied it.
#[test]
fn a_repeated_push_does_not_restore_an_older_state_even_after_a_restart() {
    let backend = Backend::new(Duration::ZERO);
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let pool = Pool::new(5, 2, LONG);
    let old = json!({"ring_pool": as_json(&pool)}).to_string();
    let other = Pool { key: "a-new-key-of-5".into(), ..pool.clone() };
    let new = json!({"ring_pool": as_json(&other)}).to_string();
    let begun = seconds();
    assert_eq!(push_of(&mut client, &old, SECRET, begun).status, 204);
    assert_eq!(push_of(&mut client, &new, SECRET, begun).status, 204);
    let copied = push_of(&mut client, &old, SECRET, begun);
    assert_eq!(copied.status, 409, "{}", copied.body);
    assert!(copied.body.contains("has already been accepted"), "{}", copied.body);
    assert_eq!(push_of(&mut client, &new, SECRET, begun).status, 204, "the last one may");
    assert_eq!(batch::one(&mut client, &other, "a").number, pool.first);
    assert_eq!(push_of(&mut client, "{\"removed\":5}", SECRET, begun + 1).status, 204);
    server.kill();
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    for body in [&old, &new, "{\"removed\":5}"] {
        assert_eq!(push_of(&mut client, body, SECRET, begun).status, 409);
    }
    assert_eq!(push_of(&mut client, &new, SECRET, begun + 2).status, 204);
    server.stop();
}

#[test]
fn a_push_is_not_undone_by_the_answer_to_an_earlier_request() {
    let backend = Backend::new(Duration::from_secs(1));
    let (old, gone) = (Pool::new(5, 2, LONG), Pool::new(6, 2, LONG));
    backend.knows(&old);
    backend.knows(&gone);
    let site = backend.site("");
    let server = Server::start(site.serve(&["--deadline", "300ms"]));
    let mut client = server.client();
    ask(&mut client, &[old.clone(), gone.clone()], "first");
    assert_eq!(backend.requests(), 2);
    let new = Pool { key: "a-new-key-of-5".into(), ..old };
    let body = json!({"ring_pool": as_json(&new)}).to_string();
    assert_eq!(push(&mut client, &body, SECRET).status, 204);
    assert_eq!(push(&mut client, "{\"removed\":6}", SECRET).status, 204);
    // The pushed changes remain in effect, although the application still answers with the pools as
    // they were before the pushes.
    thread::sleep(Duration::from_millis(1_200));
    assert_eq!(batch::one(&mut client, &new, "second").number, new.first);
    assert!(ask(&mut client, &[gone], "second").body.contains("InvalidKey"));
    server.stop();
}

#[test]
fn a_signed_push_changes_pools_and_an_unsigned_one_does_not() {
    let backend = Backend::new(Duration::ZERO);
    let site = backend.site("");
    let server = Server::start(site.serve(&[]));
    let mut client = server.client();
    let pool = Pool::new(5, 2, LONG);
    let body = json!({"ring_pool": as_json(&pool)}).to_string();
    assert_eq!(push(&mut client, &body, "another-secret-of-16").status, 401);
    assert_eq!(push(&mut client, &body, SECRET).status, 204);
    assert_eq!(batch::one(&mut client, &pool, "a").number, pool.first);
    let grown = Pool { numbers: 3, key: "a-new-key-of-5".into(), ..pool.clone() };
    let body = json!({"ring_pool": as_json(&grown)}).to_string();
    assert_eq!(push(&mut client, &body, SECRET).status, 204);
    assert!(ask(&mut client, std::slice::from_ref(&pool), "old key").body.contains("InvalidKey"));
    let more: Vec<u64> = (0..2).map(|_| batch::one(&mut client, &grown, "b").number).collect();
    assert_eq!(more, [pool.first + 1, pool.first + 2], "the lockout has stayed");
    assert_eq!(push(&mut client, "{\"removed\":5}", SECRET).status, 204);
    assert!(ask(&mut client, &[grown], "gone").body.contains("InvalidKey"));
    let clash = Pool { first: site.pools[0].first, ..Pool::new(6, 2, LONG) };
    let refused = push(&mut client, &json!({"ring_pool": as_json(&clash)}).to_string(), SECRET);
    assert!(refused.status == 409 && refused.body.contains("ring pool 1"), "{}", refused.body);
    for bad in ["{}", "[]", "{\"removed\":1,\"ring_pool\":{}}", "{\"ring_pool\":{\"id\":1}}"] {
        assert_eq!(push(&mut client, bad, SECRET).status, 400, "{bad}");
    }
    let without = Site::new(vec![Pool::new(1, 1, LONG)], "");
    let plain = Server::start(without.serve(&[]));
    assert_eq!(push(&mut plain.client(), "{\"removed\":1}", SECRET).status, 404);
    server.stop();
}
