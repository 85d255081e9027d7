//! Sends batches at a fixed rate, whether or not earlier answers have arrived.
//!
//! Latency is measured from the time when a batch should have been sent. Therefore, if a server
//! stalls, the latency of each delayed batch includes its wait (no coordinated omission). A free
//! connection takes the next batch. If no connection is free, batches wait, and their latency
//! grows. The pacer spins instead of sleeping, because the runtime's timers have a resolution of a
//! millisecond. Give this process its own core, or use `--coarse`, which sleeps. `--coarse` is only
//! suitable for checking answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{JoinSet, LocalSet};

use crate::batch::Batches;
use crate::client::Connection;
use crate::report::{Latency, Recorder};
use crate::target::Target;

/// Flags of `ringwell-bench openloop`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    batches: Batches,
    /// Batches per second.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Kept-alive connections.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Duration of sending.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Sleep instead of spinning: latencies are then no better than 2 ms.
    #[arg(long)]
    coarse: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// The counts of batches and of their answers.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    sent: u64,
    ok: u64,
    other_status: u64,
    broken: u64,
    rows: u64,
    overflow_rows: u64,
    error_rows: u64,
    seconds: f64,
    batches_per_second: f64,
    latency: Latency,
}

struct Tally {
    recorder: Recorder,
    ok: u64,
    other_status: u64,
    broken: u64,
    rows: u64,
    overflow: u64,
    errors: u64,
}

/// A batch that is due: the time when it should be sent, and its bytes.
type Due = (Instant, Bytes);
type Queue = Rc<Mutex<mpsc::UnboundedReceiver<Due>>>;

/// Sends and reports.
///
/// # Errors
/// If the pools cannot be read or no connection can be opened.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rate > 0 && args.connections > 0, "nothing to send");
    let requests = args.batches.requests()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = LocalSet::new().block_on(&runtime, measure(args, &requests))?;
    if args.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        print_text(&outcome);
    }
    Ok(())
}

async fn measure(args: &Args, requests: &[Bytes]) -> anyhow::Result<Outcome> {
    let tally = Rc::new(RefCell::new(Tally {
        recorder: Recorder::new()?,
        ok: 0,
        other_status: 0,
        broken: 0,
        rows: 0,
        overflow: 0,
        errors: 0,
    }));
    let (sender, receiver) = mpsc::unbounded_channel();
    let queue: Queue = Rc::new(Mutex::new(receiver));
    let mut workers = JoinSet::new();
    for index in 0..args.connections {
        let mut connection = Connection::open(&args.batches.target).await?;
        // Each connection is used once before the measurement begins.
        let first = &requests[index % requests.len()];
        connection.exchange(first).await.context("the first exchange failed")?;
        let work =
            work(connection, args.batches.target.clone(), Rc::clone(&queue), Rc::clone(&tally));
        workers.spawn_local(work);
    }
    let start = Instant::now();
    let sent = u64::from(args.rate) * u64::from(args.seconds);
    for (index, request) in (0..sent).zip(requests.iter().cycle()) {
        let due = start + Duration::from_nanos(index * 1_000_000_000 / u64::from(args.rate));
        if args.coarse {
            tokio::time::sleep_until(due.into()).await;
        }
        while Instant::now() < due {
            tokio::task::yield_now().await;
        }
        sender.send((due, request.clone())).context("all connections have failed")?;
    }
    drop(sender);
    while workers.join_next().await.is_some() {}
    let seconds = start.elapsed().as_secs_f64();
    let tally = tally.borrow();
    Ok(Outcome {
        sent,
        ok: tally.ok,
        other_status: tally.other_status,
        broken: tally.broken,
        rows: tally.rows,
        overflow_rows: tally.overflow,
        error_rows: tally.errors,
        seconds,
        batches_per_second: f64::from(u32::try_from(tally.ok).unwrap_or(u32::MAX)) / seconds,
        latency: tally.recorder.latency(),
    })
}

/// Takes batches from the queue and sends them until there are no more. A broken connection is
/// counted and replaced.
async fn work(mut connection: Connection, target: Target, queue: Queue, tally: Rc<RefCell<Tally>>) {
    loop {
        let due = queue.lock().await.recv().await;
        let Some((due, request)) = due else { return };
        let answer = connection.exchange(&request).await;
        let taken = due.elapsed();
        {
            let mut tally = tally.borrow_mut();
            match &answer {
                Ok(answer) => tally.count(answer, taken),
                Err(_) => tally.broken += 1,
            }
        }
        if answer.is_err() {
            match Connection::open(&target).await {
                Ok(fresh) => connection = fresh,
                Err(_) => return,
            }
        }
    }
}

impl Tally {
    fn count(&mut self, answer: &crate::client::AnswerCounts, taken: Duration) {
        self.recorder.add(taken);
        if answer.status == 200 {
            self.ok += 1;
        } else {
            self.other_status += 1;
        }
        self.rows += answer.rows;
        self.overflow += answer.overflow;
        self.errors += answer.errors;
    }
}

fn print_text(outcome: &Outcome) {
    println!(
        "{} batches sent in {:.2} s: {} answered 200, {} another status, {} broken",
        outcome.sent, outcome.seconds, outcome.ok, outcome.other_status, outcome.broken
    );
    println!(
        "{} rows with a number, including {} with overflow numbers; {} error rows",
        outcome.rows, outcome.overflow_rows, outcome.error_rows
    );
    println!("latency from the intended sending time: {}", outcome.latency.line());
}
