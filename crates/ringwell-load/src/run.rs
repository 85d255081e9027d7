//! Executes a run, from its plan to its outcome: starts the threads, and collects their reports.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::clock::{as_ns, now_ns};
use crate::gather::Gather;
use crate::history::{Heading, History};
use crate::outcome::Outcome;
use crate::pace::Pace;
use crate::plan::{LoadPlan, Progress, mode};
use crate::request::Batches;
use crate::target::Target;
use crate::worker::{Seen, Shared, Worker};

/// The reason why a run could not start, or could not finish.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The settings contradict each other.
    #[error("{0}")]
    Plan(&'static str),
    /// An endpoint accepts no connection.
    #[error("{}", no_connection(target, source))]
    Connect {
        /// The endpoint.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// The history cannot be written.
    #[error("cannot write the history {}: {source}", path.display())]
    History {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Polling failed, or a thread could not write the history.
    #[error("the run was interrupted: {0}")]
    Broken(#[from] io::Error),
}

fn no_connection(target: &str, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            format!("nothing listens at {target}: {source}; `ringwell demo` starts a test server")
        }
        _ => format!("cannot connect to {target}: {source}"),
    }
}

/// The delay between the time when all threads are ready and the start of the run.
const HEAD_START_NS: u64 = 2_000_000;
/// The maximum number of intervals in a run. All of them are kept in memory.
const INTERVALS_MAX: f64 = 600.0;
/// The minimum number of intervals in a run, so that it can be compared with another run.
const INTERVALS_MIN: f64 = 10.0;

/// Executes `plan`. `stop` ends the run early; `live` receives its progress.
///
/// # Errors
/// [`LoadError`] if the run could not start or could not finish. Failures of single batches are
/// part of the outcome.
pub fn run(
    plan: &LoadPlan,
    stop: &AtomicBool,
    live: &mut dyn FnMut(&Progress),
) -> Result<Outcome, LoadError> {
    check(plan)?;
    allow_open_files();
    let history = plan.history.as_ref().map(|path| create_history(plan, path)).transpose()?;
    let shared = share(plan, stop, history.as_ref())?;
    let started_at = jiff::Timestamp::now().to_string();
    let mut gather = Gather::new(&shared);
    thread::scope(|scope| {
        let (sender, seen) = channel();
        let (ready, is_ready) = channel();
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for index in 0..plan.threads {
            let (start, on_start) = channel();
            let (shared, sender, ready) = (&shared, sender.clone(), ready.clone());
            starts.push(start);
            threads.push(scope.spawn(move || work(shared, index, &ready, &on_start, &sender)));
        }
        drop((sender, ready));
        for _ in 0..plan.threads {
            if let Ok(Err((endpoint, source))) = is_ready.recv() {
                let target = plan.targets[endpoint].to_string();
                return Err(LoadError::Connect { target, source });
            }
        }
        let start_ns = now_ns() + HEAD_START_NS;
        for start in starts {
            // If a thread ended with an error, joining the thread returns the error.
            let _ = start.send(start_ns);
        }
        gather.follow(start_ns, &seen, live)?;
        threads.into_iter().try_for_each(join)
    })?;
    if let Some(history) = &history {
        history.end()?;
    }
    Ok(gather.outcome(started_at))
}

type Thread<'s> = ScopedJoinHandle<'s, io::Result<()>>;

fn join(thread: Thread<'_>) -> Result<(), LoadError> {
    match thread.join() {
        Ok(result) => result.map_err(LoadError::Broken),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The main function of a thread: connects, reports that it is ready, waits for the start, and
/// runs.
fn work(
    shared: &Shared<'_>,
    index: usize,
    ready: &Sender<Result<(), (usize, io::Error)>>,
    on_start: &Receiver<u64>,
    seen: &Sender<Seen>,
) -> io::Result<()> {
    let worker = match Worker::connect(shared, index) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    // The report can be lost only if another thread could not connect. In that case, the run does
    // not start.
    let _ = ready.send(Ok(()));
    on_start.recv().map_or(Ok(()), |start_ns| worker.run(start_ns, seen))
}

/// Raises the limit on open files as far as the system allows, because each connection needs a file
/// descriptor. A failure to raise the limit is ignored here; an error is reported later if a
/// connection cannot be opened.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn check(plan: &LoadPlan) -> Result<(), LoadError> {
    let is_closed = plan.pace == Pace::Closed;
    let faults = [
        (plan.targets.is_empty(), "at least one endpoint is required"),
        (plan.pools.is_empty(), "at least one pool is required"),
        (plan.rows == 0, "a batch must have at least one row"),
        (plan.threads == 0, "at least one thread is required"),
        (plan.connections < plan.threads, "each thread needs a connection"),
        (plan.duration < Duration::from_millis(10), "a run must last at least 10 ms"),
        (plan.timeout.is_zero(), "a timeout of 0 leaves no time to answer"),
        (plan.retry && plan.history.is_none(), "only a run with a history can repeat batches"),
        (
            plan.deadline.is_some_and(|deadline| deadline < Duration::from_millis(1)),
            "a deadline must be at least 1 ms",
        ),
        (is_closed && plan.ramp > plan.duration, "the ramp is longer than the run"),
    ];
    match faults.iter().find(|(is_so, _)| *is_so) {
        Some((_, what)) => Err(LoadError::Plan(what)),
        None => Ok(()),
    }
}

fn create_history(plan: &LoadPlan, path: &Path) -> Result<History, LoadError> {
    let heading = Heading {
        mode: mode(plan),
        nodes: plan.targets.iter().map(ToString::to_string).collect(),
        deadline_ms: plan.deadline.map(|deadline| as_ns(deadline) / 1_000_000),
    };
    History::create(path, &heading, &plan.pools)
        .map_err(|source| LoadError::History { path: path.to_owned(), source })
}

fn share<'a>(
    plan: &'a LoadPlan,
    stop: &'a AtomicBool,
    history: Option<&'a History>,
) -> Result<Shared<'a>, LoadError> {
    let resolve = |target: &Target| {
        target.resolve().map_err(|source| LoadError::Connect { target: target.to_string(), source })
    };
    let deadline_ms = plan.deadline.map(|deadline| as_ns(deadline) / 1_000_000);
    let host = plan.targets[0].host();
    let batches = Batches::new(&plan.pools, plan.spread, plan.rows, host, deadline_ms);
    // An interval lasts about one second in runs of 10 s to 600 s, so that curves are easy to read.
    let seconds = plan.duration.as_secs_f64();
    let intervals = seconds.round().clamp(INTERVALS_MIN, INTERVALS_MAX);
    Ok(Shared {
        plan,
        endpoints: plan.targets.iter().map(resolve).collect::<Result<_, _>>()?,
        nodes: plan.targets.iter().map(ToString::to_string).collect(),
        ready: if history.is_some() { Vec::new() } else { batches.ready() },
        batches,
        history,
        stop,
        interval_ns: as_ns(Duration::from_secs_f64(seconds / intervals)).max(1),
    })
}
