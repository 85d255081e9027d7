//! The provider's waiting time for the document at 500 calls a second, while batches run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Switchboard;
use super::phone::Provider;
use super::support::batch::{self, Ask, BULK};

const RATE: u32 = 500;
const SENDERS: u32 = 50;

/// Sends each call at its time, whether or not earlier ones were answered; prints percentiles.
fn measure(span: Duration, batches: u64) {
    let board = Switchboard::new("");
    let number = board.visitor("17");
    let times = Mutex::new(Vec::new());
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now() + Duration::from_millis(200);
    let calls = RATE * u32::try_from(span.as_secs()).unwrap();
    thread::scope(|scope| {
        let (times, is_over, sent, board) = (&times, &is_over, &sent, &board);
        scope.spawn(move || {
            let mut client = board.server.client();
            while !is_over.load(Ordering::Relaxed) && batches > 0 {
                let place = sent.fetch_add(1, Ordering::Relaxed);
                let at = began
                    + Duration::from_secs(1) * u32::try_from(place).unwrap()
                        / u32::try_from(batches).unwrap();
                thread::sleep(at.saturating_duration_since(Instant::now()));
                let ask = Ask { pool: 16, id: place.to_string() };
                client.post(BULK, &[], &batch::body(&[ask], &board.site.pools)).unwrap();
            }
        });
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    let twilio = Provider::twilio(&board.phone);
                    for call in (sender..calls).step_by(SENDERS as usize) {
                        let at = began + Duration::from_secs(1) * call / RATE;
                        thread::sleep(at.saturating_duration_since(Instant::now()));
                        let ring = format!("CallSid=CA{call}&From=%2B14155551234&To=%2B1{number}");
                        let answer = twilio.post("/t/main/answer", &ring);
                        // Measured from the due time, so that a late sender counts as waiting.
                        times.lock().unwrap().push(at.elapsed());
                        assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut times = times.into_inner().unwrap();
    times.sort_unstable();
    assert_eq!(times.len(), calls as usize);
    let percentile = |of: usize| times[(times.len() * of).div_ceil(1000) - 1];
    println!(
        "webhook in to document out, {RATE} calls/s for {span:?} beside {} batches: p50 {:?}, p90 {:?}, \
         p99 {:?}, p99.9 {:?}, most {:?}",
        sent.load(Ordering::Relaxed),
        percentile(500),
        percentile(900),
        percentile(990),
        percentile(999),
        times[times.len() - 1]
    );
}

#[test]
fn every_call_is_connected_at_500_a_second() {
    measure(Duration::from_secs(1), 0);
}

#[test]
#[ignore = "measures: run alone, with --ignored --nocapture"]
fn a_document_is_out_soon_at_500_calls_a_second() {
    measure(Duration::from_secs(20), 0);
    measure(Duration::from_secs(20), 1_000);
}
