//! The outcome of a row.

use ringwell_core::{Millis, PromoNumber};

/// The outcome of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new number for a row that contains no visitor and cannot be repeated.
    Allocated {
        /// The number.
        number: PromoNumber,
    },
    /// A number, new or not, that a later request can get again: the visitor may ask for it, or the
    /// batch may be repeated.
    Kept {
        /// The number.
        number: PromoNumber,
    },
    /// Every number is locked out until the given time.
    Exhausted {
        /// The time at which the next number becomes free.
        until: Millis,
    },
    /// The shard hands out nothing at the moment.
    Refused(Refusal),
}

impl Outcome {
    /// Returns the number that the row got from its pool's rotation, if it got one.
    #[inline]
    #[must_use]
    pub const fn number(&self) -> Option<PromoNumber> {
        match self {
            Self::Allocated { number } | Self::Kept { number } => Some(*number),
            Self::Exhausted { .. } | Self::Refused(_) => None,
        }
    }
}

/// The reason why a shard hands out nothing, or why it was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The journal has no free space. The engine resumes by itself when space is available again.
    JournalFull,
    /// A write or flush of the journal failed. Only a restart helps.
    JournalFailed,
    /// The journal is taking too long to store a group. The engine resumes by itself when the group
    /// is stored.
    JournalWaits,
    /// The answer would be sent after the batch's deadline, or the process was suspended and has
    /// not yet confirmed that the shard still owns its pools.
    Late,
    /// The shard's queue is full.
    Busy,
    /// The link to the shard is shut at the moment, because the shard was slow.
    Paced,
    /// The shard's node could not be reached, or did not answer correctly.
    Unreachable,
    /// The shard that was asked does not own the pool, for example because its node and the asking
    /// node have different maps.
    Moved,
}
