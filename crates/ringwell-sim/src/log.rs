//! Machines that share a log: one of them serves, and the others are standbys. Any of them may
//! wrongly assume that it is the serving machine.
//!
//! Owns the log's simulated servers, a run's machines, clients and faults, and the judge that
//! checks every answer to a client. Runs `ringwell-driver` and the crates below it unchanged:
//! startup from a log, the store on the log, and everything that a shard does. Time, disks and
//! clocks are simulated in the same way as in runs without a shared log. Source:
//! docs/spec/simulation.md, "A log shared by machines".

mod client;
mod ending;
mod fault;
mod judge;
mod operator;
mod process;
mod servers;
mod shelf;
mod sim_log;
mod watcher;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ringwell_driver::Bug;
use ringwell_driver::shard::panic_text;

pub use fault::LogFault;

use crate::model::Violation;
use world::World;

/// The options of a run. The same options always give the same run.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The seed from which everything random is drawn.
    pub seed: u64,
    /// The faults that happen at their highest rate.
    pub on: Vec<LogFault>,
    /// The faults that never happen.
    pub off: Vec<LogFault>,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// Whether the events of the run are recorded as lines of text.
    pub keeps_tale: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// The promise that was broken, if any.
    pub violation: Option<Violation>,
    /// The length of the run in simulated microseconds.
    pub length_us: u64,
    /// The number of rows that were answered.
    pub rows: u64,
    /// The number of answered rows that got a number.
    pub numbers: u64,
    /// The number of times that a process took over all shards.
    pub take_overs: u64,
    /// The number of take-overs at which the previous owner was still running.
    pub from_the_living: u64,
    /// The number of faults of each kind.
    pub faults: Vec<(LogFault, u64)>,
    /// A digest of all events. Equal runs have equal digests.
    pub hash: u64,
    /// The events as lines of text, if they were requested.
    pub tale: Vec<String>,
}

/// Runs a seed.
#[must_use]
pub fn run_log(options: &LogOptions) -> LogReport {
    #[cfg(canary)]
    ringwell_driver::canary::plant(options.bug);
    let mut world = World::new(options);
    // Production code asserts its assumptions, and a failed assertion counts as a violation like
    // any other.
    let judged = catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        Err(Violation { rule: "panic", text, number: 0, shard: 0 })
    });
    world.report(judged.err())
}
