//! Whole clusters in virtual time: the production engine under faults, driven by one seed.
//!
//! Owns time, disks, the network, clients, and a reference model that judges every answer. Runs
//! `ringwell-engine`, `ringwell-journal` and `ringwell-mesh` as they are; what `ringwell-node` does
//! around them is done here again in the same order, thinly, because that is made of sockets and
//! threads. Nothing here reads a clock or draws what no seed gives.
//! Invariant: the same options give the same run, to the last bit.
//! Source: docs/spec/simulation.md.

mod befall;
mod bug;
mod change;
mod clients;
mod cluster;
#[cfg(all(test, canary))]
mod core_bugs;
mod disk;
mod event;
mod fault;
mod files;
mod gather;
mod give;
mod keeping;
mod link;
mod lookup;
mod manage;
mod model;
mod post;
mod random;
mod run;
mod serve;
mod served;
mod shrink;
mod start;
mod step;
mod thread;
mod world;

pub use bug::Bug;
pub use fault::Kind;
pub use model::Violation;
pub use run::{Options, Report, run};
pub use shrink::shrink;

/// Plants a bug in the rules themselves, for the whole process.
#[cfg(canary)]
pub fn plant_in_core(bug: Option<Bug>) {
    let which = match bug {
        Some(Bug::LockCompare) => ringwell_core::canary::LOCK_COMPARE,
        Some(Bug::NotFifo) => ringwell_core::canary::NOT_FIFO,
        _ => 0,
    };
    ringwell_core::canary::plant(which);
}
