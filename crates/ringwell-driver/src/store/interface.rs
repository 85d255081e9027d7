//! One shard's ordered groups, in any store: files, memory, a log shared by several machines.
//!
//! Independent of the meaning of a record. Invariant: one append is in progress at a time, and
//! groups are stored in order without gaps. Source: docs/spec/journal.md, "Stores".

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group, Noted};

use super::files::FileError;
use super::index::ReadError;
use super::stats::Stats;

/// The result of storing a group.
#[derive(Debug)]
pub enum Appended {
    /// It is as durable as configured: answers may be sent.
    Stored {
        /// Its buffer, to be reused for another group.
        spare: Vec<u8>,
    },
    /// There is no room, and nothing has happened: the same group may be tried again.
    Full {
        /// The group.
        group: Group,
        /// The reason, for the operator.
        error: String,
    },
    /// Another process has taken the shard over: this store accepts nothing any more.
    Taken {
        /// The epoch of the other owner.
        epoch: u64,
    },
    /// Nothing is stored any more until the shard is opened again.
    Failed(String),
}

/// A part of the oldest history: the unit in which it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first group.
    pub first_n: u64,
    /// The group after its last.
    pub next_n: u64,
    /// The space that it takes.
    pub bytes: u64,
    /// Time of its last record.
    pub last_at: Millis,
}

/// Keeps the groups of one shard.
pub trait Store: 'static {
    /// Reads groups back.
    type Reader: Reader;
    /// A snapshot that is being written.
    type Draft: Draft;

    /// Stores a group. The result is always definite: if a store is uncertain, it finds out before
    /// the future completes. Dropping the future does not undo the append.
    fn append(&self, group: Group) -> impl Future<Output = Appended>;

    /// The time after which rows no longer wait for an append in progress: they overflow at once
    /// until it ends. `None` if each waits until its own deadline.
    fn wait_max(&self) -> Option<Duration> {
        None
    }

    /// Reads stored groups, also from other threads.
    fn reader(&self) -> Self::Reader;

    /// The oldest part of the history, if it exceeds the limits and no snapshot needs it. Read its
    /// groups, copy the records that still matter, and drop it once those are stored. `now` is in
    /// shard time, and `clocks` are the current readings; age is measured by a trusted wall clock.
    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part>;

    /// Whether more is kept than configured only because the kept snapshots need it.
    fn waits_for_snapshot(&self) -> bool;

    /// Drops a part of the history that [`Self::expired`] has returned.
    fn drop_part(&self, part: Part) -> impl Future<Output = Result<(), FileError>>;

    /// Removes the oldest group, if that costs nothing and more is kept than configured. The caller
    /// copies its records that still matter.
    fn take_oldest(&self) -> Option<Group> {
        None
    }

    /// Keeps this many bytes more from now on, because most of the result of [`Self::take_oldest`]
    /// had to be copied.
    fn keep_more(&self, _bytes: u64) {}

    /// Begins a snapshot on which the groups from `replay_from` on will be replayed.
    ///
    /// # Errors
    /// [`FileError`]; always if nothing outlives the process.
    fn draft(&self, replay_from: u64) -> Result<Self::Draft, FileError>;

    /// The journal's identity, for the headers of snapshots.
    fn identity(&self) -> [u8; 16];

    /// The store's counts since it was opened.
    fn stats(&self) -> Stats;

    /// Ends the store's running work, and flushes what is only in the operating system's cache.
    ///
    /// # Errors
    /// The error, as text.
    fn close(self) -> Result<(), String>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// Reads stored groups, from any thread. All calls block until they are done.
pub trait Reader: Clone + Send + 'static {
    /// Reads group `n` back and checks it.
    ///
    /// # Errors
    /// [`ReadError`]
    fn read(&self, n: u64) -> Result<Group, ReadError>;

    /// The clock readings at the ends of the segments that are kept.
    fn noted(&self) -> Vec<Noted>;

    /// Whether another process can continue the journal while this one runs.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether another process has stored the group after `newest`. Waits for the log.
    ///
    /// # Errors
    /// [`ReadError`] if that is unknown.
    fn is_followed(&self, _newest: u64) -> Result<bool, ReadError> {
        Ok(false)
    }

    /// The groups that were not read at startup.
    fn unread(&self) -> Range<u64> {
        0..0
    }

    /// Reads these groups; each must name its predecessor. Records that are no longer kept are
    /// skipped.
    ///
    /// # Errors
    /// [`Damage`]
    fn check(&self, _groups: Range<u64>) -> Result<(), Damage> {
        Ok(())
    }
}

/// Part of the history that cannot be read.
#[derive(Debug)]
pub struct Damage {
    /// The error.
    pub error: ReadError,
    /// The start of the next part of the history.
    pub next_n: u64,
}

/// A snapshot that is being written. If it is dropped without [`Self::publish`], nothing remains of
/// it.
pub trait Draft: Send + 'static {
    /// Appends bytes that the snapshot writer has made. Waits for the disk.
    ///
    /// # Errors
    /// [`FileError`]; the snapshot cannot be published then.
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError>;

    /// Makes the snapshot the newest one, durably. `through` is the last group that it may cover,
    /// which must be stored. Waits for the disk.
    ///
    /// # Errors
    /// [`FileError`]; then the older snapshots still exist.
    fn publish(self, through: u64) -> Result<(), FileError>;

    /// The last group that is stored.
    fn stored(&self) -> u64;
}
