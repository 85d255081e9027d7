//! The provider's wait for the document at 500 calls a second, beside batches.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::phone::Provider;
use super::support::batch::{self, Ask, BULK};
use super::support::site::Pool;
use super::{LIFETIME, Switchboard};

const RATE: u32 = 500;
const BATCHES: u32 = 1_000;
const SENDERS: u32 = 50;

/// The times of requests in one interval, each from its due time: a late sender has waited too.
#[derive(Default)]
struct Times {
    calls: Vec<Duration>,
    batches: Vec<Duration>,
}

/// Sends `calls` and `batches` a second, each at its time, whether or not earlier ones were
/// answered.
fn measure(board: &Switchboard, span: Duration, calls: u32, batches: u32) -> Times {
    static SERIES: AtomicU64 = AtomicU64::new(0);
    let series = SERIES.fetch_add(1, Ordering::Relaxed);
    let number = board.visitor("17");
    let began = Instant::now() + Duration::from_millis(200);
    let seconds = u32::try_from(span.as_secs()).unwrap();
    let times = Mutex::new(Vec::new());
    let batches = thread::scope(|scope| {
        let (times, number) = (&times, &number);
        let batches = scope.spawn(move || {
            let mut client = board.server.client();
            let mut times = Vec::new();
            for batch in 0..batches * seconds {
                let due = began + Duration::from_secs(1) * batch / batches;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let ask = Ask { pool: 16, id: batch.to_string() };
                let body = batch::body(&[ask], &board.site.pools);
                let answer = client.post(BULK, &[], &body).unwrap();
                times.push(due.elapsed());
                assert!(!batch::rows(&answer)[0].overflow, "{}", answer.body);
            }
            times
        });
        for sender in 0..SENDERS {
            scope.spawn(move || {
                let twilio = Provider::twilio(&board.phone);
                for call in (sender..calls * seconds).step_by(SENDERS as usize) {
                    let due = began + Duration::from_secs(1) * call / calls;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let ring =
                        format!("CallSid=CA{series}x{call}&From=%2B14155551234&To=%2B1{number}");
                    let answer = twilio.post("/t/main/answer", &ring);
                    times.lock().unwrap().push(due.elapsed());
                    assert!(answer.body.contains(">+18005550199</Number>"), "{}", answer.body);
                }
            });
        }
        batches.join().unwrap()
    });
    let times = Times { calls: times.into_inner().unwrap(), batches };
    assert_eq!(times.calls.len(), (calls * seconds) as usize);
    times
}

/// The time that `of` thousandths of `times` stay within.
fn percentile(times: &mut [Duration], of: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * of).div_ceil(1000) - 1]
}

#[test]
fn every_call_is_connected_at_500_a_second() {
    measure(&Switchboard::new(""), Duration::from_secs(1), RATE, 0);
}

/// Batches alone and beside calls, in turns, so that other load affects both.
#[test]
#[ignore = "measures: run alone, with --ignored --nocapture"]
fn a_document_is_out_soon_at_500_calls_a_second() {
    const ROUNDS: usize = 7;
    const SECONDS: u32 = 7;
    let numbers = u64::from(BATCHES * SECONDS) * 2 * ROUNDS as u64 + 100;
    let board = Switchboard::with_pool(Pool::new(16, numbers, LIFETIME), "", "", &[]);
    let span = Duration::from_secs(u64::from(SECONDS));
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let mut alone = measure(&board, span, 0, BATCHES);
        let mut both = measure(&board, span, RATE, BATCHES);
        let [before, beside] =
            [&mut alone, &mut both].map(|times| percentile(&mut times.batches, 990));
        let ratio = beside.as_secs_f64() / before.as_secs_f64();
        println!(
            "round {round}: document p50 {:?}, p99 {:?}, p99.9 {:?}; batch p99 {before:?} alone, \
             {beside:?} beside calls: {ratio:.2}",
            percentile(&mut both.calls, 500),
            percentile(&mut both.calls, 990),
            percentile(&mut both.calls, 999),
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of {ROUNDS} ratios: {:.2}", ratios[ROUNDS / 2]);
}
