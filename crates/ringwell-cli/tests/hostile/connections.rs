//! Clients that are slow, stop in the middle of a request, send everything at once, or connect in
//! large numbers.

use std::thread;
use std::time::{Duration, Instant};

use super::metrics;
use super::raw::{Raw, good, good_body, start, wait_until_nobody_is_connected};
use super::support::batch::BULK;
use super::support::client::request;
use super::support::site::TOKEN;

/// The server detects within a second that a phase of a request has exceeded its time limit. The
/// additional time allows for a busy machine.
const CUT_WITHIN: Duration = Duration::from_secs(4);

/// Returns the head of a batch and the first bytes of its body. The rest of the body is missing.
fn head_of_a_batch(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{more}content-length: 500\r\n\r\n{{\"requests\"")
}

fn chunked_head(rest: &str) -> String {
    format!("POST {BULK} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{rest}")
}

/// Returns the resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Even unauthenticated clients can occupy memory, because bodies are read before their senders are
/// authenticated.
#[test]
fn stalled_bodies_stay_within_their_memory_limit_and_small_ones_are_served() {
    let (site, server) = start(
        "limits.body_bytes = \"256KiB\"\nlimits.bodies_bytes = \"2MiB\"\n\
         limits.body_timeout = \"3s\"",
    );
    let before = resident(server.pid());
    let part = "x".repeat(250 << 10);
    let stalled = |path: &str, more: &str| {
        let mut raw = Raw::connect(&server);
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\n{more}content-length: 262144\r\n\r\n");
        raw.send(head.as_bytes());
        raw.send(part.as_bytes());
        raw
    };
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let mut open: Vec<Raw> = (0..150)
        .map(|place| match place % 3 {
            0 => stalled(BULK, ""),
            1 => stalled("/v1/releases", ""),
            _ => stalled("/v1/releases", &token),
        })
        .collect();
    let until = Instant::now() + CUT_WITHIN;
    while metrics::sum(&server, "ringwell_bodies_refused_total") < 130 {
        assert!(Instant::now() < until, "most of them are refused");
    }
    let grown = resident(server.pid()).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    // A body that arrives together with its head does not count against the memory limit. A large
    // body does count, and is accepted again after the other requests have ended.
    let small = server.client().post(BULK, &[], &good_body(&site.pools[0])).unwrap();
    assert_eq!(small.status, 200);
    for raw in &mut open {
        let reply = raw.reply(true).unwrap();
        assert!([408, 503].contains(&reply.status), "{reply:?}");
        assert_eq!(reply.header("retry-after"), (reply.status == 503).then_some("1"));
        assert_eq!(reply.header("connection"), Some("close"));
        assert_eq!(raw.rest(), 0);
    }
    let large = good_body(&site.pools[0])
        .replace("\"requests\"", &format!("\"x\":\"{part}\",\"requests\""));
    assert_eq!(server.client().post(BULK, &[], &large).unwrap().status, 200);
}

#[test]
fn slow_clients_are_disconnected_and_the_others_served() {
    let (site, server) = start(
        "limits.head_timeout = \"300ms\"\nlimits.body_timeout = \"300ms\"\n\
         limits.idle_timeout = \"600ms\"\nlimits.write_timeout = \"300ms\"",
    );
    let pool = &site.pools[0];
    let begun = Instant::now();
    thread::scope(|scope| {
        let silent = |bytes: &'static [u8]| {
            let mut raw = Raw::connect(&server);
            raw.send(bytes);
            scope.spawn(move || assert_eq!(raw.rest(), 0, "it is cut off without an answer"));
        };
        silent(b"");
        silent(b"POST /api/2013-07-01/bulk.json HT");
        silent(b"GET /healthz HTTP/1.1\r\nhost: x\r\n");
        scope.spawn(|| {
            // One byte at a time does not count as progress.
            let mut raw = Raw::connect(&server);
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                raw.send(b"\n");
                thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(raw.rest(), 0);
        });
        scope.spawn(|| {
            let mut raw = Raw::connect(&server);
            raw.send(good(pool).as_bytes());
            assert_eq!(raw.reply(true).unwrap().status, 200);
            assert_eq!(raw.rest(), 0, "an idle connection is closed");
        });
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        for head in [
            head_of_a_batch(BULK, ""),
            head_of_a_batch(BULK, "expect: 100-continue\r\n"),
            head_of_a_batch("/v1/releases", &token),
            head_of_a_batch("/nope", ""),
            chunked_head("5\r\nab"),
            chunked_head("ffffffffff\r\nab"),
        ] {
            let mut raw = Raw::connect(&server);
            scope.spawn(move || {
                raw.send(head.as_bytes());
                let mut reply = raw.reply(true).unwrap();
                if reply.status == 100 {
                    reply = raw.reply(true).unwrap();
                }
                assert_eq!(reply.status, 408, "{head}: {}", reply.body);
                assert_eq!(raw.rest(), 0, "{head}");
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                let answer = server.client().post(BULK, &[], &good_body(pool)).unwrap();
                assert_eq!(answer.status, 200, "good clients do not notice");
                thread::sleep(Duration::from_millis(50));
            }
        });
    });
    assert!(begun.elapsed() < CUT_WITHIN, "{:?}", begun.elapsed());
    wait_until_nobody_is_connected(&server);
    assert!(metrics::sum(&server, "ringwell_connections_cut_total") >= 4);
}

#[test]
fn a_client_that_does_not_read_its_answers_is_disconnected() {
    let (site, server) = start("limits.write_timeout = \"300ms\"");
    let mut deaf = Raw::connect(&server);
    // The answers are many megabytes long, so they do not fit into the socket buffers.
    deaf.send(request("GET", "/metrics", &[], "").repeat(4_000).as_bytes());
    let begun = Instant::now();
    while metrics::sum(&server, "ringwell_connections_cut_total") == 0 {
        assert!(begun.elapsed() < CUT_WITHIN, "still there");
        thread::sleep(Duration::from_millis(20));
    }
    wait_until_nobody_is_connected(&server);
    deaf.rest();
    let answer = server.client().post(BULK, &[], &good_body(&site.pools[0])).unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn a_request_that_stops_after_any_byte_leaves_nothing_behind() {
    let (site, server) = start("");
    let pool = &site.pools[0];
    let body = good_body(pool);
    let chunked = chunked_head(&format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    for whole in [good(pool), chunked] {
        let body_at = whole.find("\r\n\r\n").unwrap() + 4;
        for cut in 0..whole.len() {
            // One client shuts down its sending side. Another client disconnects.
            let mut done = Raw::connect(&server);
            done.send(&whole.as_bytes()[..cut]);
            done.end_of_sending();
            Raw::connect(&server).send(&whole.as_bytes()[..cut]);
            let reply = done.reply(true);
            match reply.as_ref().map(|reply| reply.status) {
                Some(400) => {}
                None if cut < body_at => {}
                other => panic!("cut at {cut}: {other:?}"),
            }
            assert_eq!(done.rest(), 0, "cut at {cut}");
        }
    }
    wait_until_nobody_is_connected(&server);
    assert_eq!(metrics::sum(&server, "ringwell_allocations_total"), 0, "nothing was handed out");
}

#[test]
fn a_client_that_has_sent_everything_still_gets_its_answers() {
    let (site, server) = start("");
    let bytes = good(&site.pools[0]);
    for requests in [1, 2, 8] {
        let mut raw = Raw::connect(&server);
        raw.send(bytes.repeat(requests).as_bytes());
        raw.end_of_sending();
        for _ in 0..requests {
            assert_eq!(raw.reply(true).unwrap().status, 200);
        }
        assert_eq!(raw.rest(), 0, "then it is closed");
    }
    wait_until_nobody_is_connected(&server);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let (site, server) = start("shards = 2");
    let mut bytes = String::new();
    for id in 0..32 {
        let suffix = site.pools[0].suffix("a=1");
        let body = format!(r#"{{"requests":[{{"api_suffix":"{suffix}","request_id":{id}}}]}}"#);
        bytes += &request("POST", BULK, &[], &body);
        bytes += &request("GET", "/healthz", &[], "");
    }
    let mut at_once = Raw::connect(&server);
    at_once.send(bytes.as_bytes());
    let mut in_pieces = Raw::connect(&server);
    for piece in bytes.as_bytes().chunks(97) {
        in_pieces.send(piece);
    }
    for raw in [&mut at_once, &mut in_pieces] {
        for id in 0..32 {
            let batch = raw.reply(true).unwrap();
            assert!(batch.body.contains(&format!("\"request_id\":{id},")), "{id}: {}", batch.body);
            assert!(raw.reply(true).unwrap().body.contains("\"status\":\"ok\""));
        }
    }
}

#[test]
fn a_client_beyond_the_connection_limit_is_asked_to_retry() {
    let (site, server) = start("shards = 1\nlimits.connections = 4");
    let greeted = || {
        let mut raw = Raw::connect(&server);
        raw.send(good(&site.pools[0]).as_bytes());
        let reply = raw.reply(true).unwrap();
        (raw, reply)
    };
    let mut open: Vec<_> = (0..4).map(|_| greeted()).collect();
    assert!(open.iter().all(|(_, reply)| reply.status == 200));
    let mut refused = Raw::connect(&server);
    let reply = refused.reply(true).unwrap();
    assert_eq!(reply.status, 503, "including silent clients");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.body.contains("\"class\":\"ServiceUnavailable\""), "{}", reply.body);
    assert_eq!(refused.rest(), 0);
    open.truncate(2);
    let until = Instant::now() + CUT_WITHIN;
    while greeted().1.status != 200 {
        assert!(Instant::now() < until, "there is room again, but no client is admitted");
    }
    assert!(metrics::sum(&server, "ringwell_connections_refused_total") >= 1);
}
