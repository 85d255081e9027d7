//! Tests the generator's results with servers whose behaviour is known: a fixed delay, a stall,
//! refusals.
//!
//! These tests sleep, because they measure time. A busy machine can only add latency, so lower
//! limits are exact and upper limits are generous.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringwell_load::{LoadError, LoadPlan, Outcome, Pace, Pool, Spread, Target, run};

const ROWS: &str = concat!(
    r#"{"responses":[{"request_id":"1","promo_number":"2000000000"},"#,
    r#"{"request_id":"2","promo_number":"9990000000","overflow":true},"#,
    r#"{"request_id":"3","error_class":"InvalidKey","message":"x"}]}"#
);

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A server with a thread for each connection. `respond` receives the request's number and may
/// sleep. The bytes that it returns are sent unchanged; `None` closes the connection.
fn serve(respond: impl Fn(u64) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (respond, count) = (Arc::new(respond), Arc::new(AtomicU64::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (respond, count) = (Arc::clone(&respond), Arc::clone(&count));
            thread::spawn(move || {
                let mut stream = stream;
                while read_request(&mut stream).is_some() {
                    let answer = respond(count.fetch_add(1, Ordering::Relaxed));
                    let Some(answer) = answer else { return };
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn read_request(stream: &mut TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let got = stream.read(&mut part).ok().filter(|got| *got > 0)?;
        bytes.extend_from_slice(&part[..got]);
        let text = std::str::from_utf8(&bytes).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                return Some(());
            }
        }
    }
}

fn plan(address: SocketAddr) -> LoadPlan {
    let pool = Pool {
        id: 1,
        ring_pool_key: "k".to_owned(),
        overflow_number: Some(number("9990000000")),
        lifetime_ms: 1000,
        first_number: number("2000000000"),
        numbers: 10,
    };
    LoadPlan {
        targets: vec![address.to_string().parse::<Target>().unwrap()],
        pools: vec![pool],
        spread: Spread::Pools,
        rows: 3,
        pace: Pace::Closed,
        ramp: Duration::ZERO,
        duration: Duration::from_secs(1),
        connections: 4,
        threads: 1,
        timeout: Duration::from_secs(5),
        deadline: None,
        history: None,
        retry: false,
    }
}

fn open(rate: f64) -> Pace {
    Pace::Open { rate, spikes: Vec::new() }
}

fn measure(plan: &LoadPlan) -> Outcome {
    run(plan, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn a_delay_of_20_ms_is_reported_as_20_ms_in_both_loops() {
    let address = serve(|_| {
        thread::sleep(Duration::from_millis(20));
        Some(answer("200 OK", ROWS))
    });
    for pace in [Pace::Closed, open(50.0)] {
        let outcome = measure(&LoadPlan { pace, ..plan(address) });
        let latency = outcome.latency;
        assert!(latency.min_us >= 19_990.0, "{latency:?}");
        // A busy machine may delay answers, but it does not double the median latency.
        assert!(latency.p50_us < 40_000.0, "{latency:?}");
        assert_eq!(outcome.counts.failures(), 0, "{:?}", outcome.counts);
        let ok = outcome.counts.ok();
        assert!(ok >= 25, "{ok} answers");
        let counts = &outcome.counts;
        assert_eq!(counts.rows, 2 * ok);
        assert_eq!((counts.overflow_rows, counts.error_rows), (ok, ok));
    }
}

#[test]
fn an_open_loop_shows_a_server_that_stops_for_a_second_and_a_closed_one_hides_it() {
    let stalling = || {
        let start = Instant::now();
        serve(move |_| {
            let since = start.elapsed();
            let (from, to) = (Duration::from_millis(500), Duration::from_millis(1500));
            if since >= from && since < to {
                thread::sleep(to.saturating_sub(since));
            }
            Some(answer("200 OK", ROWS))
        })
    };
    let duration = Duration::from_millis(2500);
    let open_loop = measure(&LoadPlan { pace: open(200.0), duration, ..plan(stalling()) });
    // Of the 500 batches, 200 were due during the stall. These batches waited for up to 1 s, half
    // of them for more than 0.5 s.
    let latency = open_loop.latency;
    assert!(latency.p90_us > 500_000.0, "{latency:?}");
    assert!(latency.max_us > 900_000.0 && latency.max_us < 2_000_000.0, "{latency:?}");
    assert_eq!(open_loop.counts.ok(), 500, "all were sent, late: {:?}", open_loop.counts);
    let closed_loop = measure(&LoadPlan { duration, ..plan(stalling()) });
    assert!(closed_loop.latency.p90_us < 100_000.0, "{:?}", closed_loop.latency);
}

#[test]
fn failures_are_counted_by_kind_and_connections_are_reopened() {
    let address = serve(|number| match number % 5 {
        0 => Some(answer("503 Service Unavailable", "{}")),
        1 => None,
        2 => Some("hello\r\n\r\n".to_owned()),
        3 => {
            thread::sleep(Duration::from_millis(600));
            None
        }
        _ => Some(answer("200 OK", ROWS)),
    });
    let timeout = Duration::from_millis(200);
    let outcome = measure(&LoadPlan { timeout, duration: Duration::from_secs(2), ..plan(address) });
    let counts = &outcome.counts;
    assert!(counts.ok() > 2 && counts.statuses[&503] > 2, "{counts:?}");
    assert!(counts.reset > 2 && counts.bad_answers > 2 && counts.timeouts > 2, "{counts:?}");
    let ended = counts.ok() + counts.failures();
    assert_eq!(ended - counts.refused, counts.sent, "each batch ended once: {counts:?}");
    assert!(outcome.latency.max_us >= 200_000.0, "timeouts count: {:?}", outcome.latency);
}

#[test]
fn unsent_batches_are_reported() {
    let address = serve(|_| {
        thread::sleep(Duration::from_secs(30));
        None
    });
    let timeout = Duration::from_millis(300);
    let plan = LoadPlan { pace: open(100.0), timeout, connections: 1, ..plan(address) };
    let counts = measure(&plan).counts;
    assert_eq!(counts.ok(), 0);
    assert_eq!(counts.sent + counts.unsent, 100, "{counts:?}");
    assert!(counts.unsent > 80, "{counts:?}");
}

#[test]
fn answers_in_pieces_and_closed_connections_are_handled() {
    let closing = ROWS.len();
    let address = serve(move |_| {
        Some(format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {closing}\r\n\r\n{ROWS}"
        ))
    });
    let counts = measure(&plan(address)).counts;
    assert!(counts.ok() >= 4 && counts.failures() == 0, "{counts:?}");

    let long = ROWS.replace("}]}", &format!("{}}}]}}", " ".repeat(1_000_000)));
    let address = serve(move |_| Some(answer("200 OK", &long)));
    let counts = measure(&plan(address)).counts;
    assert!(counts.ok() >= 4 && counts.failures() == 0, "{counts:?}");
    assert_eq!(counts.rows, 2 * counts.ok());
}

#[test]
fn without_a_server_there_is_no_run() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&plan(address), &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(error, LoadError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("nothing listens at 127.0.0.1:"), "{error}");
}

#[test]
fn a_stopped_run_ends_soon_and_keeps_its_figures() {
    let address = serve(|_| Some(answer("200 OK", ROWS)));
    let stop = AtomicBool::new(false);
    let plan = LoadPlan { duration: Duration::from_mins(1), ..plan(address) };
    let before = Instant::now();
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| run(&plan, &stop, &mut |_| {}).unwrap());
        thread::sleep(Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(before.elapsed() < Duration::from_secs(10));
    assert!(outcome.interrupted && outcome.counts.ok() > 0 && outcome.seconds < 10.0);
}

#[test]
fn a_lost_batch_is_repeated_under_its_key_and_the_history_records_it() {
    let address = serve(|number| (number % 3 != 0).then(|| answer("200 OK", ROWS)));
    let folder = tempfile::tempdir().unwrap();
    let history: PathBuf = folder.path().join("run.jsonl");
    let duration = Duration::from_millis(500);
    let plan = LoadPlan { history: Some(history.clone()), retry: true, duration, ..plan(address) };
    let counts = measure(&plan).counts;
    let text = std::fs::read_to_string(history).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["k"] == kind).collect::<Vec<_>>();
    assert_eq!((of("run").len(), of("cfg").len()), (1, 1));
    assert!(of("clk").len() >= 2);
    let (inv, ret, unk) = (of("inv"), of("ret"), of("unk"));
    assert_eq!(inv.len() as u64, counts.sent);
    assert_eq!(ret.len() as u64, counts.ok());
    assert_eq!(unk.len() as u64, counts.reset + counts.unanswered);
    let again: Vec<_> = inv.iter().filter(|line| line["try"] == 2).collect();
    assert!(!again.is_empty());
    for second in again {
        let first = inv.iter().find(|line| line["id"] == second["key"]).unwrap();
        assert_eq!(first["key"], second["key"]);
        assert_eq!(first["rows"], second["rows"]);
        assert_ne!(first["id"], second["id"]);
    }
}

#[test]
fn connections_use_all_endpoints_and_threads_in_turn() {
    let counted = || {
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let address = serve(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Some(answer("200 OK", ROWS))
        });
        (address, count)
    };
    let ((first, of_first), (second, of_second)) = (counted(), counted());
    let mut plan = LoadPlan { threads: 3, connections: 6, pace: open(300.0), ..plan(first) };
    plan.targets.push(second.to_string().parse().unwrap());
    let outcome = measure(&plan);
    let (of_first, of_second) =
        (of_first.load(Ordering::Relaxed), of_second.load(Ordering::Relaxed));
    assert_eq!(outcome.counts.ok(), 300, "{:?}", outcome.counts);
    assert_eq!(of_first + of_second, 300);
    assert!(of_first > 50 && of_second > 50, "{of_first} and {of_second}");
}

#[test]
fn in_a_closed_loop_a_ramp_lets_connections_join_one_after_another() {
    let address = serve(|_| {
        thread::sleep(Duration::from_millis(10));
        Some(answer("200 OK", ROWS))
    });
    let ramp = Duration::from_secs(1);
    let outcome = measure(&LoadPlan { connections: 10, ramp, ..plan(address) });
    let part = |samples: &[ringwell_load::Sample]| samples.iter().map(|s| s.ok).sum::<u64>();
    let (first, second) = outcome.samples.split_at(5);
    assert!(part(first) > 0 && 2 * part(first) < part(second), "{:?}", outcome.samples);
}

fn number(text: &str) -> ringwell_load::Number {
    ringwell_load::Number::try_from(text.to_owned()).unwrap()
}
