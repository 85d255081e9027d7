//! The driver in virtual time: batches, startups, stores, links, moves, and the nodes of a cluster.
//! All these tests are one program, because the driver would have to be compiled again for each
//! further program.

#![allow(missing_docs, unreachable_pub, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests report failures by panicking")]
#![allow(clippy::disallowed_methods, reason = "files are lost, damaged and replaced by hand")]

mod appends;
mod arrivals;
mod batch;
mod belongs;
#[cfg(canary)]
mod bugs;
mod changes;
mod clocks;
mod conflict;
mod disk;
mod first_starts;
mod follow;
mod held_buckets;
mod holder;
mod journals;
mod lifecycle;
mod link;
mod moves;
mod moves_agreed;
mod moves_back;
mod newer;
mod open;
mod pair;
mod returned;
mod rows;
mod scatter;
mod shard_counts;
mod slow_store;
mod snapshot_store;
mod snapshots;
mod support;
mod unknown;
mod unseen;
mod withheld;
mod witness;
