//! One shard's engine: combines the allocation rules with the journal's records.
//!
//! A state machine without I/O: time and bytes are passed in as arguments, and answers and groups
//! are returned as values. The caller (a server's thread, a simulator or a test) writes each group,
//! and sends an answer once the answer's group is durable. The same inputs always produce the same
//! state and the same journal bytes.

mod answers;
mod attribution;
mod carry;
mod changes;
mod clock;
mod counts;
mod engine;
mod facts;
mod live_records;
mod outcome;
mod restore;
mod snapshot;
#[cfg(test)]
mod tests;

pub use answers::{ANSWER_AGE, AnswersPlace};
pub use attribution::{
    BrokenChain, KEEP_ALIVES_MAX, KeepAlives, Missing, Moment, Past, PastAllocation, Step, Walk,
};
pub use clock::{
    CLOCK_GAP_MAX, Reading, Recorded, SLEW_EVERY, WALL_STEP_MIN, lifetime, lockout, observed,
    slewed,
};
pub use counts::Counts;
pub use engine::{ANSWER_DELAY_MAX, Ask, BATCH_BYTES_MAX, Engine};
pub use facts::{Apart, Facts};
pub use outcome::{Outcome, Refusal};
pub use restore::{Doubts, Restore};
pub use ringwell_journal::{Clocks, RowKey};
pub use snapshot::{PIECE_ENTRIES, SnapshotStep};
