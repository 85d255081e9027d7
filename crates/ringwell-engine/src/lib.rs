//! One shard's engine: the rules of allocation joined with the journal's records.
//!
//! A state machine without I/O: time and bytes come in as arguments, answers and groups go out as
//! values. Whoever drives it (a server's thread, a simulator, a test) writes the groups and lets
//! an answer out once its group is durable. Same inputs, same state, same journal bytes.

mod answers;
mod attribution;
mod carry;
mod changes;
mod engine;
mod facts;
mod live;
mod restore;
mod snapshot;
#[cfg(test)]
mod tests;

pub use answers::ANSWER_AGE;
pub use attribution::{BrokenChain, Held, Step, Walk};
pub use engine::{Ask, Counts, Engine, Outcome, Refusal};
pub use facts::Facts;
pub use restore::{CLOCK_GAP_MAX, Doubts, Restore};
pub use ringwell_journal::RowKey;
pub use snapshot::SnapshotStep;
