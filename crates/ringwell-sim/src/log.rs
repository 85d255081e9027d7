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
mod options;
mod process;
mod servers;
mod sim_log;
mod snapshot_store;
mod snapshots;
mod watcher;
mod world;

pub use fault::LogFault;
pub use options::{LogOptions, LogReport};

use crate::run::judged;
use world::World;

/// Runs a seed.
#[must_use]
pub fn run_log(options: &LogOptions) -> LogReport {
    #[cfg(canary)]
    ringwell_driver::canary::plant(options.bug);
    let mut world = World::new(options);
    let judged = judged(|| world.run());
    world.report(judged.err())
}
