//! The settings of a run, and its progress.

use std::path::PathBuf;
use std::time::Duration;

use crate::outcome::Latency;
use crate::pace::Pace;
use crate::pools::Pool;
use crate::request::Spread;
use crate::tally::Counts;
use crate::target::Target;

/// The settings of a run: its batches, and the endpoints that they are sent to.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The endpoints. Connections are assigned to them in turn.
    pub targets: Vec<Target>,
    /// The pools that rows request numbers from.
    pub pools: Vec<Pool>,
    /// The way pools are chosen for rows.
    pub spread: Spread,
    /// Rows in each batch, 1 or more.
    pub rows: usize,
    /// The method that determines when batches are sent.
    pub pace: Pace,
    /// The time during which the rate, or in a closed loop the number of connections, rises from 0.
    pub ramp: Duration,
    /// The time during which batches are sent.
    pub duration: Duration,
    /// The count of keep-alive connections, at least one per thread.
    pub connections: usize,
    /// Threads, 1 or more.
    pub threads: usize,
    /// The time after which a batch without an answer is abandoned.
    pub timeout: Duration,
    /// The deadline that each batch sets for its answer, if any.
    pub deadline: Option<Duration>,
    /// The file in which every row is recorded.
    pub history: Option<PathBuf>,
    /// Whether a batch whose answer was lost is sent again, with an `Idempotency-Key`; requires
    /// `history`.
    pub retry: bool,
}

/// The progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Seconds since the start.
    pub elapsed: f64,
    /// The requested duration in seconds.
    pub duration: f64,
    /// Answers with status 200 per second, in the last interval.
    pub batches_per_second: f64,
    /// Latencies of the last interval.
    pub latency: Latency,
    /// All counts so far.
    pub counts: Counts,
}

/// The name of the plan's mode.
pub(crate) fn mode(plan: &LoadPlan) -> &'static str {
    if plan.pace == Pace::Closed { "closed" } else { "open" }
}
