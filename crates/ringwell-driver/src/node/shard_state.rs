//! The state of one shard: the shard's thread sets it, and all threads of the process read it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::platform::Moment;

/// The health of a shard's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// The journal stores groups.
    Writing,
    /// The disk of the journal is full.
    Full,
    /// The journal has failed, and stores nothing until a restart.
    Failed,
    /// The journal is slow to store a group.
    Waiting,
    /// Another process serves the shard.
    Taken,
}

impl JournalState {
    /// The displayed text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Full => "full",
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Taken => "taken",
        }
    }
}

/// The reason why a shard's rows get overflow numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The time when the trouble began.
    pub since: Moment,
    /// The error from the journal, or the reason why the journal waits.
    pub reason: String,
}

/// Whether the part of a shard's history that was not read at startup is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryState {
    /// This part has not been read yet.
    Unread,
    /// The whole part is readable.
    Whole,
    /// Some of this part is unreadable.
    Damaged,
}

impl HistoryState {
    /// The displayed text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Whole => "whole",
            Self::Damaged => "damaged",
        }
    }
}

/// The state of one shard. The shard's thread updates it, and other threads read it.
#[derive(Debug)]
pub(super) struct ShardState {
    pub(super) shard: u16,
    pub(super) journal: AtomicU8,
    /// The newest group that the shard's log has stored since startup; 0 if there is no such group
    /// or no log.
    pub(super) stored: AtomicU64,
    pub(super) history: AtomicU8,
    /// The reason for a journal state other than [`JournalState::Writing`].
    pub(super) trouble: Mutex<Trouble>,
    /// The end of the shard's longest hold, in milliseconds; 0 if no pool is held.
    pub(super) held_until_ms: AtomicU64,
}

impl ShardState {
    pub(super) fn new(shard: u16) -> Self {
        Self {
            shard,
            journal: AtomicU8::new(JournalState::Writing as u8),
            stored: AtomicU64::default(),
            history: AtomicU8::new(HistoryState::Unread as u8),
            trouble: Mutex::default(),
            held_until_ms: AtomicU64::default(),
        }
    }

    pub(super) fn journal(&self) -> JournalState {
        match self.journal.load(Ordering::Relaxed) {
            0 => JournalState::Writing,
            1 => JournalState::Full,
            2 => JournalState::Failed,
            3 => JournalState::Waiting,
            _ => JournalState::Taken,
        }
    }

    pub(super) fn history(&self) -> HistoryState {
        match self.history.load(Ordering::Relaxed) {
            0 => HistoryState::Unread,
            1 => HistoryState::Whole,
            _ => HistoryState::Damaged,
        }
    }
}
