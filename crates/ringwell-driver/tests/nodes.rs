//! Nodes of a cluster in virtual time: moves, lists, holds, links, journals and records of their
//! files. One program, because each compiles the driver again.

#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests: a panic is their report")]

#[path = "nodes/arrivals.rs"]
mod arrivals;
#[path = "nodes/disk.rs"]
mod disk;
#[path = "nodes/holder.rs"]
mod holder;
#[path = "nodes/journals.rs"]
mod journals;
#[path = "nodes/life.rs"]
mod life;
#[path = "nodes/link.rs"]
mod link;
#[path = "nodes/moves.rs"]
mod moves;
mod pair;
#[path = "nodes/rows.rs"]
mod rows;
mod support;
