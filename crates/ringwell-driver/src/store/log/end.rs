//! The end that a log has, or must have reached.

use std::time::Duration;

/// The highest value that has been reported so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The value.
    pub value: u64,
    /// The time since the last report of this value or a higher one.
    pub ago: Duration,
}

/// The highest values that were reported for the end of a shard's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The epoch of the log's owner.
    pub epoch: Peak,
    /// The newest group in the log.
    pub group: Peak,
}

/// The epoch and the newest group that a shard's log must have reached; zeros if they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The owner's epoch.
    pub epoch: u64,
    /// The group.
    pub group: u64,
}

impl LogEnd {
    /// Whether a log must have lost groups or been replaced since this end was reported for it. A
    /// process now takes the log over with `epoch`, and adds group `taken_n`.
    #[must_use]
    pub fn is_beyond(self, epoch: u64, taken_n: u64) -> bool {
        self.epoch >= epoch || self.group >= taken_n
    }
}
