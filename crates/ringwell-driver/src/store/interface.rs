//! One shard's groups, in order, in any store: in files, in memory, or in a log shared by several
//! machines.
//!
//! Does not depend on the meaning of a record. Invariant: only one append is in progress at a time,
//! and groups are stored in order and without gaps. Source: docs/spec/journal.md, "Stores".

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group, Noted};

use super::files::FileError;
use super::read_error::ReadError;
use super::stats::Stats;

/// The result of storing a group.
#[derive(Debug)]
pub enum Appended {
    /// The group is as durable as configured, so answers may be sent.
    Stored {
        /// The group's buffer, to be reused for another group.
        spare: Vec<u8>,
    },
    /// There is no space left, and nothing has been stored. The caller may try to store the same
    /// group again.
    Full {
        /// The group.
        group: Group,
        /// The reason, as text for the operator.
        error: String,
    },
    /// Another process has taken the shard over, so this store accepts no more groups.
    Taken {
        /// That process's epoch for the shard.
        epoch: u64,
    },
    /// Storing has failed, for this reason. Nothing more is stored until the shard is opened again.
    Failed(String),
}

/// The oldest part of the history. History is dropped one part at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's first group.
    pub first_n: u64,
    /// The group after the part's last group.
    pub next_n: u64,
    /// The space that the part takes up.
    pub bytes: u64,
    /// The time of the part's last record.
    pub last_at: Millis,
}

/// Keeps the groups of one shard.
pub trait Store: 'static {
    /// Reads groups back.
    type Reader: Reader;
    /// A snapshot that is being written.
    type Draft: Draft;

    /// Stores a group. The result is always certain: if a store cannot determine the result at
    /// first, the future does not complete until it can. Dropping the future does not undo the
    /// append.
    fn append(&self, group: Group) -> impl Future<Output = Appended>;

    /// Returns the time after which rows no longer wait for an append in progress. Until that
    /// append ends, they overflow at once. Returns `None` if each row waits until its own deadline.
    fn wait_max(&self) -> Option<Duration> {
        None
    }

    /// Returns a reader of stored groups, which can also be used by other threads.
    fn reader(&self) -> Self::Reader;

    /// Returns the oldest part of the history, if the history exceeds the limits and no snapshot
    /// needs this part. The caller must read the part's groups, copy the records that still matter,
    /// and drop the part once the copies are stored. `now` is in shard time, and `clocks` are the
    /// current readings. The age of history is measured by the wall clock, corrected for recent
    /// jumps forward.
    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part>;

    /// Whether the history exceeds its configured size only because the kept snapshots need it.
    fn waits_for_snapshot(&self) -> bool;

    /// Drops a part of the history that [`Self::expired`] has returned.
    fn drop_part(&self, part: Part) -> impl Future<Output = Result<(), FileError>>;

    /// Removes and returns the oldest group, if more history is kept than configured and the group
    /// can be removed without I/O. The caller copies the group's records that still matter.
    fn take_oldest(&self) -> Option<Group> {
        None
    }

    /// Raises the limit on the kept history by this many bytes. Called if most of the group that
    /// [`Self::take_oldest`] returned had to be copied.
    fn keep_more(&self, _bytes: u64) {}

    /// Begins a snapshot. Recovery will load it and then replay the groups from `replay_from` on.
    ///
    /// # Errors
    /// Returns [`FileError`] if the snapshot cannot be begun, which is always the case for a store
    /// whose data does not outlive the process.
    fn draft(&self, replay_from: u64) -> Result<Self::Draft, FileError>;

    /// Returns the journal's identity, for the headers of snapshots.
    fn identity(&self) -> [u8; 16];

    /// Returns the store's statistics since it was opened.
    fn stats(&self) -> Stats;

    /// Completes the store's work in progress, and flushes data that is only in the operating
    /// system's cache.
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

    /// Returns the clock readings at the ends of the segments that are kept.
    fn noted(&self) -> Vec<Noted>;

    /// Whether another process could continue the journal while this one is running.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether another process has stored the group after `newest`. Waits for the log's servers if
    /// the groups are in a shared log.
    ///
    /// # Errors
    /// Returns [`ReadError`] if this cannot be determined.
    fn is_followed(&self, _newest: u64) -> Result<bool, ReadError> {
        Ok(false)
    }

    /// Returns the range of groups that were not read at startup.
    fn unread(&self) -> Range<u64> {
        0..0
    }

    /// Reads these groups, and checks that each refers to its predecessor. Groups that are no
    /// longer kept are skipped.
    ///
    /// # Errors
    /// [`Damage`]
    fn check(&self, _groups: Range<u64>) -> Result<(), Damage> {
        Ok(())
    }
}

/// A part of the history that cannot be read.
#[derive(Debug)]
pub struct Damage {
    /// The error.
    pub error: ReadError,
    /// The start of the history's next part.
    pub next_n: u64,
}

/// A snapshot that is being written. If the draft is dropped without [`Self::publish`], nothing
/// remains of it.
pub trait Draft: Send + 'static {
    /// Appends bytes that the snapshot writer has produced. Waits for the disk.
    ///
    /// # Errors
    /// Returns [`FileError`]; the snapshot can no longer be published.
    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError>;

    /// Durably makes this the newest snapshot. `through` is the last group that the snapshot may
    /// cover. This group must already be stored. Waits for the disk.
    ///
    /// # Errors
    /// Returns [`FileError`]; the older snapshots then still exist.
    fn publish(self, through: u64) -> Result<(), FileError>;

    /// Returns the number of the newest group that the store has stored.
    fn stored(&self) -> u64;
}
