//! Causes real faults in the real program while `ringwell load` uses it. `ringwell check` judges
//! the history afterwards: no number may be handed out twice within its lockout, and no answered
//! allocation may be lost.
//!
//! If a fault needs a permission or a program that is missing on this machine, its test prints a
//! message and ends. The faults are listed in docs/reliability.md, "Real faults".

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[path = "faults/clock.rs"]
mod clock;
#[path = "faults/crowd.rs"]
mod crowd;
#[path = "faults/descriptors.rs"]
mod descriptors;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/kill.rs"]
mod kill;
#[path = "faults/limits.rs"]
mod limits;
#[path = "hostile/metrics.rs"]
mod metrics;
#[path = "faults/pauses.rs"]
mod pauses;
#[path = "faults/power.rs"]
mod power;
mod support;
#[path = "faults/trial.rs"]
#[allow(dead_code, reason = "engine uses the rest")]
mod trial;
#[path = "faults/wall.rs"]
mod wall;
