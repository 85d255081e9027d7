//! Machines that share a log: one serves and another one is its standby; both may wrongly assume
//! that they serve.
//!
//! Owns the simulated servers of the log, the machines, clients and faults of a run, and the judge
//! of the answers that clients saw. Runs `ringwell-driver` and the crates below it unchanged: the
//! start from a log, the store on it, and all the work of a shard. Time, disks and clocks are those
//! of the other runs. Source: docs/spec/simulation.md, "A log shared by machines".

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

/// The options of a run. The same options give the same run.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The source of all draws.
    pub seed: u64,
    /// Faults that happen at their highest rate.
    pub on: Vec<LogFault>,
    /// Faults that do not happen.
    pub off: Vec<LogFault>,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// Whether the story for a person is kept.
    pub keeps_tale: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct LogReport {
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// Simulated time in microseconds.
    pub length_us: u64,
    /// Rows that were answered.
    pub rows: u64,
    /// Numbers among them.
    pub numbers: u64,
    /// The count of take-overs of all shards by a process.
    pub take_overs: u64,
    /// The count of take-overs while the previous owner still ran.
    pub from_the_living: u64,
    /// The count of each fault.
    pub faults: Vec<(LogFault, u64)>,
    /// A digest of all events: equal for equal runs.
    pub hash: u64,
    /// The story, if it was requested.
    pub tale: Vec<String>,
}

/// Runs a seed.
#[must_use]
pub fn run_log(options: &LogOptions) -> LogReport {
    #[cfg(canary)]
    ringwell_driver::canary::plant(options.bug);
    let mut world = World::new(options);
    // Production code asserts its assumptions: a failed assertion is a finding like any other.
    let judged = catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_owned();
        Err(Violation { rule: "panic", text, number: 0, shard: 0 })
    });
    world.report(judged.err())
}
