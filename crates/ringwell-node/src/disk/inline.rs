//! The journal of a shard whose groups are stored by the thread that asks for it.
//!
//! The same files, written by the same code, without the two threads that a server has: for a
//! process that may fork, in which no thread of ours would live on. Whoever has it waits for the
//! disk, and a segment that is to be begun is filled with zeros while he waits.

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group};

use super::file::FileError;
use super::flusher::Flusher;
use super::index::{JournalReader, SegmentRef};
use super::journal::{Dropped, Journal};
use super::snapshots::SnapshotFile;
use super::stats::Stats;

/// One shard's journal, open for storing groups here and now.
#[derive(Debug)]
pub struct InlineJournal {
    pub(super) journal: Journal,
    /// `None` if groups are kept in memory.
    pub(super) flusher: Option<Flusher>,
}

/// A group that could not be stored.
#[derive(Debug)]
pub struct Unstored {
    /// The group. If the disk is full it must be tried again before any other.
    pub group: Group,
    /// What went wrong. If [`FileError::is_full`] is false, nothing may be stored any more.
    pub error: FileError,
}

impl InlineJournal {
    /// Stores a group: as durable as configured when this returns. Gives back its body, to gather
    /// another group in.
    ///
    /// # Errors
    /// [`Unstored`]: no answer that it covers may leave.
    pub fn store(&mut self, group: Group) -> Result<Vec<u8>, Box<Unstored>> {
        let Some(flusher) = &mut self.flusher else {
            self.journal.keep(group);
            return Ok(Vec::new());
        };
        match flusher.write_counted(&group) {
            Ok(_) => Ok(group.body),
            Err(error) => Err(Box::new(Unstored { group, error })),
        }
    }

    /// See [`Journal::id`].
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.journal.id()
    }

    /// See [`Journal::stats`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.journal.stats()
    }

    /// See [`Journal::reader`].
    #[must_use]
    pub fn reader(&self) -> JournalReader {
        self.journal.reader()
    }

    /// See [`Journal::create_snapshot`].
    ///
    /// # Errors
    /// [`FileError`]; always if the journal is kept in memory.
    pub fn create_snapshot(&self, replay_from: u64) -> Result<SnapshotFile, FileError> {
        self.journal.create_snapshot(replay_from)
    }

    /// See [`Journal::expired`].
    #[must_use]
    pub fn expired(&self, now: Millis, clocks: Clocks) -> Option<SegmentRef> {
        self.journal.expired(now, clocks)
    }

    /// See [`Journal::waits_for_snapshot`].
    #[must_use]
    pub fn waits_for_snapshot(&self) -> bool {
        self.journal.waits_for_snapshot()
    }

    /// See [`Journal::drop_segment`].
    #[must_use]
    pub fn drop_segment(&self, segment: SegmentRef) -> Option<Dropped> {
        self.journal.drop_segment(segment)
    }

    /// See [`Journal::take_oldest`].
    #[must_use]
    pub fn take_oldest(&self) -> Option<Group> {
        self.journal.take_oldest()
    }

    /// See [`Journal::keep_more`].
    pub fn keep_more(&self, bytes: u64) {
        self.journal.keep_more(bytes);
    }
}
