//! Fifty users view live dashboard pages while numbers are allocated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::DashboardServer;
use super::support::batch::{self, Ask, BULK};
use super::support::site::{Pool, TOKEN};

const PAGES: usize = 50;
const BATCHES: u32 = 1_000;
const ROUNDS: usize = 7;
const SECONDS: u32 = 7;

/// Sends batches on a schedule. Returns their p99 latency, measured from the scheduled time to the
/// answer.
fn p99(place: &DashboardServer, seconds: u32) -> Duration {
    let mut client = place.server.client();
    let began = Instant::now();
    let mut times = Vec::new();
    for batch in 0..BATCHES * seconds {
        let due = began + Duration::from_secs(1) * batch / BATCHES;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let ask = Ask { pool: 16, id: batch.to_string() };
        let body = batch::body(&[ask], &place.site.pools);
        let answer = client.post(BULK, &[], &body).unwrap();
        times.push(due.elapsed());
        assert!(!batch::rows(&answer)[0].overflow, "{}", answer.body);
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Opens the pages' streams of changes.
fn open(place: &DashboardServer) -> Vec<TcpStream> {
    let person = place.log_in(TOKEN);
    let paths = ["now", "pools", "pools/16", "calls"];
    let open = |page: usize| {
        let path = paths[page % paths.len()];
        let mut stream = TcpStream::connect(&place.ui).unwrap();
        let (host, cookie) = (&place.ui, &person.cookie);
        write!(stream, "GET /ui/live/{path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n")
            .unwrap();
        stream
    };
    (0..PAGES).map(open).collect()
}

/// Checks that the page has received changes. They must fit into the socket's buffer, because they
/// are read only now.
fn check(mut page: TcpStream) {
    let mut received = vec![0; 1 << 20];
    let length = page.read(&mut received).unwrap();
    let received = String::from_utf8_lossy(&received[..length]);
    assert!(received.contains("text/event-stream") && received.contains("data:"), "{received}");
}

#[test]
#[ignore = "measures: run alone, with --ignored --nocapture"]
fn batches_are_as_fast_beside_fifty_open_pages() {
    let numbers = u64::from(BATCHES * SECONDS) * 2 * ROUNDS as u64;
    let place = DashboardServer::open(Pool::new(16, numbers, Duration::from_mins(10)), None, true);
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let alone = p99(&place, SECONDS);
        let pages = open(&place);
        let beside = p99(&place, SECONDS);
        for page in pages {
            check(page);
        }
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!(
            "round {round}: batch p99 {alone:?} alone, {beside:?} beside {PAGES} pages: {ratio:.2}"
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {ROUNDS} ratios: {:.2}", ratios[ROUNDS / 2]);
}
