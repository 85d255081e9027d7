//! Simulates whole clusters in virtual time. The production driver runs under injected faults, and
//! one seed determines the entire run.
//!
//! Owns time, disks, the network, the clients, and a reference model that judges every answer. Runs
//! `ringwell-driver` and the crates below it unchanged, and contains no product logic. Nothing in
//! this crate reads a real clock, and all randomness comes from the seed. Invariant: the same
//! options always give exactly the same run. Source: docs/spec/simulation.md.

mod batches;
mod calls;
mod clients;
mod cluster;
mod copies;
mod disk;
mod event;
mod fault;
mod files;
mod inject;
mod judge;
mod links;
mod log;
mod machine;
mod manage;
mod map_change;
mod message;
mod model;
mod name;
mod net;
mod older;
mod options;
mod pace;
mod process;
mod random;
mod removed;
mod run;
mod served;
mod shrink;
mod start;
mod stored;
mod story;
mod suspension;
mod world;

pub use fault::Kind;
pub use log::{LogFault, LogOptions, LogReport, run_log};
pub use model::Violation;
pub use options::Options;
pub use ringwell_driver::Bug;
pub use run::{Report, run};
pub use shrink::shrink;

/// Plants a bug in the crates that contain the allocation rules. The bug affects the whole process.
#[cfg(canary)]
pub fn plant_in_core(bug: Option<Bug>) {
    ringwell_core::canary::plant(bug.and_then(Bug::in_core));
}
