//! Bugs that are planted on purpose, to show that the simulator finds them.
//!
//! They are in production code, behind [`planted`], which is `false` at compile time unless all is
//! built with `--cfg canary`. Then each thread plants its own.

/// A mistake that somebody could make in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Answers leave before their group is durable.
    ReplyBeforeFlush,
    /// An owner serves rows after their deadline.
    DeadlineIgnored,
    /// The numbers of a batch whose client went away stay locked.
    HoldUnanswered,
    /// A flush that failed is tried again, and believed.
    FlushAgain,
    /// A rename is not made durable.
    NoNameFlush,
    /// Every use of a file has the same salt.
    OneSalt,
    /// A journal is cut at its first bad frame, whatever comes after it.
    CutAtBadFrame,
    /// A rotten end is cut, and nothing is held.
    NoHoldAfterRot,
    /// A start takes the wall clock's word for how long it was away, also within one boot.
    WallAtStart,
    /// Lifetimes are taken as they are, although shard time is rounded down.
    NoRounding,
    /// Pools that come with a new map are not held.
    NoHoldAfterMove,
    /// A snapshot says that it knows the group that gathers.
    SnapshotMissesGroup,
    /// A snapshot counts before the last group that it knows of is stored.
    SnapshotTooEarly,
    /// A snapshot leaves out the numbers that changes of pools moved while it was taken.
    SnapshotMissesMoved,
    /// Old history is dropped without copying what is still the newest.
    NoCarry,
    /// A log that says that it ends elsewhere is believed: another owner must have written.
    TakenIsTheirs,
    /// A log that says that it ends elsewhere must have stored what was sent before.
    TakenIsMine,
    /// A shard is taken over in the epoch of the owner before.
    EpochNotRaised,
}

/// Whether `bug` is planted on this thread.
#[cfg(not(canary))]
#[must_use]
#[inline]
pub const fn planted(_bug: Bug) -> bool {
    false
}

#[cfg(canary)]
pub use self::plants::{plant, planted};

#[cfg(canary)]
mod plants {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants `bug` on this thread in place of the one before.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether `bug` is planted on this thread.
    #[must_use]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
