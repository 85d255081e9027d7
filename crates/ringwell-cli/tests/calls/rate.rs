//! The provider's wait for the document at 500 calls a second, beside batches.

use std::fs::{self, DirEntry};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Switchboard;
use super::phone::Provider;
use super::support::batch::{self, Ask, BULK};
use super::support::client::Client;
use super::support::site::Pool;

const RATE: u32 = 500;
const BATCHES: u32 = 1_000;
const SENDERS: u32 = 50;
/// The account's hook.
const ANSWER: &str = "/t/main/answer";

/// The latencies of requests in one interval, each from its due time, because a late sender has
/// waited too.
#[derive(Default)]
struct Times {
    calls: Vec<Duration>,
    batches: Vec<Duration>,
}

/// Sends `calls` to `path`, and `batches` on `client`, each at its time, whether or not earlier ones
/// were answered.
fn measure(
    (board, client): (&Switchboard, &mut Client),
    span: Duration,
    path: &str,
    (calls, batches): (u32, u32),
) -> Times {
    static SERIES: AtomicU64 = AtomicU64::new(0);
    let series = SERIES.fetch_add(1, Ordering::Relaxed);
    let number = board.visitor("17");
    let began = Instant::now() + Duration::from_millis(200);
    let seconds = u32::try_from(span.as_secs()).unwrap();
    let times = Mutex::new(Vec::new());
    let batches = thread::scope(|scope| {
        let (times, number) = (&times, &number);
        let batches = scope.spawn(move || {
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
                step_back();
                let twilio = Provider::twilio(&board.phone);
                for call in (sender..calls * seconds).step_by(SENDERS as usize) {
                    let due = began + Duration::from_secs(1) * call / calls;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    // Each has a different caller, as most calls do.
                    let from = 2_000_000_000 + series * 1_000_000 + u64::from(call);
                    let ring = format!("CallSid=CA{series}x{call}&From=%2B1{from}&To=%2B1{number}");
                    let answer = twilio.post(path, &ring);
                    times.lock().unwrap().push(due.elapsed());
                    let is_connected = answer.body.contains(">+18005550199</Number>");
                    assert_eq!(is_connected, path == ANSWER, "{}", answer.body);
                }
            });
        }
        batches.join().unwrap()
    });
    let times = Times { calls: times.into_inner().unwrap(), batches };
    assert_eq!(times.calls.len(), (calls * seconds) as usize);
    times
}

/// Lets the batches' client and the server take the processor first: providers have processors of
/// their own.
fn step_back() {
    rustix::process::setpriority_process(None, 19).unwrap();
}

/// The processor time that the server's threads have used. `/proc/PID/stat` counts ticks, which
/// is too coarse for threads that run for some microseconds.
fn used(board: &Switchboard) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", board.server.pid())).unwrap();
    let of = |task: DirEntry| {
        // It may have ended meanwhile.
        let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map_or(Duration::ZERO, Duration::from_nanos)
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

/// The time that `of` thousandths of `times` do not exceed.
fn percentile(times: &mut [Duration], of: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * of).div_ceil(1000) - 1]
}

#[test]
fn every_call_is_connected_at_500_a_second() {
    let board = Switchboard::new("");
    measure((&board, &mut board.server.client()), Duration::from_secs(1), ANSWER, (RATE, 0));
}

/// Batches alone, twice, beside requests that are refused, and beside calls, in turns, so that other
/// load affects all of them. The second series alone shows how much two equal ones differ, and the
/// refused requests show the part of this program's own threads. The call log is in the data
/// directory, and in turns with it in each database of `RINGWELL_RATE_DATABASES`, which are separated
/// by spaces: `sqlite:PATH` or `postgres://...`.
#[test]
#[ignore = "measures: run alone, with --ignored --nocapture"]
fn a_document_is_out_soon_at_500_calls_a_second() {
    const ROUNDS: usize = 15;
    const SECONDS: u32 = 2;
    let databases = std::env::var("RINGWELL_RATE_DATABASES").unwrap_or_default();
    // Numbers return after a minute, so there are enough for any number of rounds.
    let pool = || Pool::new(16, 90_000, Duration::from_mins(1));
    let mut boards = vec![("the data directory", Switchboard::with_pool(pool(), "", "", &[]))];
    boards.extend(databases.split_whitespace().map(|it| (it, Switchboard::with_log(pool(), it))));
    // One connection each, because its shard is chosen by the kernel, and batches on the shard that
    // has the pool are faster.
    let mut clients: Vec<Client> = boards.iter().map(|(_, board)| board.server.client()).collect();
    let span = Duration::from_secs(u64::from(SECONDS));
    let mut cost = vec![Duration::ZERO; boards.len()];
    let (mut alone, mut again, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    // For each call log: p99 of batches, p50 and p99 of documents.
    let mut beside: Vec<[Vec<Duration>; 3]> = boards.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        let (board, client) = (&boards[0].1, &mut clients[0]);
        let start = used(board);
        let mut times = measure((board, client), span, ANSWER, (0, BATCHES));
        alone.push(percentile(&mut times.batches, 990));
        let alone_cost = used(board).saturating_sub(start);
        let mut times = measure((board, client), span, "/t/unknown/answer", (RATE, BATCHES));
        refused.push(percentile(&mut times.batches, 990));
        println!("batch p99 {:?} alone, {:?} beside refused", alone.last(), refused.last());
        for (at, ((log, board), client)) in boards.iter().zip(&mut clients).enumerate() {
            let start = used(board);
            let mut times = measure((board, client), span, ANSWER, (RATE, BATCHES));
            cost[at] += used(board).saturating_sub(start + alone_cost);
            let (batches, calls) = (&mut times.batches, &mut times.calls);
            let row = [percentile(batches, 990), percentile(calls, 500), percentile(calls, 990)];
            println!("{log}: batch p99 {:?}, document p50 {:?}, p99 {:?}", row[0], row[1], row[2]);
            for (column, time) in beside[at].iter_mut().zip(row) {
                column.push(time);
            }
        }
        let mut times = measure((board, &mut clients[0]), span, ANSWER, (0, BATCHES));
        again.push(percentile(&mut times.batches, 990));
    }
    let both = median([&alone[..], &again].concat());
    let (alone, again, refused) = (median(alone), median(again), median(refused));
    println!(
        "medians: batch p99 {alone:?} alone, {again:?} alone again, {both:?} of both, {refused:?} \
         beside refused requests"
    );
    for (((log, _), columns), cost) in boards.iter().zip(beside).zip(cost) {
        let [calls, p50, p99] = columns.map(median);
        println!(
            "beside calls logged in {log}: {calls:?}, {:.2} of both alone, {:.2} of beside refused; \
             document p50 {p50:?}, p99 {p99:?}; processor time of the server for a call {:?}",
            calls.as_secs_f64() / both.as_secs_f64(),
            calls.as_secs_f64() / refused.as_secs_f64(),
            cost / (RATE * SECONDS * u32::try_from(ROUNDS).unwrap()),
        );
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
