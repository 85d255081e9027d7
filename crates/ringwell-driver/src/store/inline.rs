//! A shard's store in which the calling thread stores the groups.
//!
//! It uses the same files and code as a server, but without the server's two threads. It is
//! intended for processes that may fork, because threads do not survive a fork. The caller waits
//! for the disk, and also while a new segment is filled with zeros.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::ops::Deref;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group};

use super::either::Either;
use super::files::{FileError, Files};
use super::frames::Frames;
use super::index::JournalReader;
use super::interface::{Appended, Part, Store};
use super::journal::Journal;
use super::memory::Memory;
use super::snapshots::SnapshotFile;
use super::stats::Stats;

/// One shard's journal in files, opened for storing groups synchronously.
#[derive(Debug)]
pub struct InlineJournal<F: Files> {
    journal: Journal<F>,
    frames: RefCell<Frames<F>>,
}

/// An opened store, in files or in memory, that has no threads yet.
pub type Inline<F> = Either<InlineJournal<F>, Memory>;

/// A group that could not be stored.
#[derive(Debug)]
pub struct Unstored {
    /// The group. If the disk is full, this group must be stored before any other group.
    pub group: Group,
    /// The error. If [`FileError::is_full`] is false, nothing may be stored any more.
    pub error: FileError,
}

impl<F: Files> InlineJournal<F> {
    pub(super) fn new(journal: Journal<F>, frames: Frames<F>) -> Self {
        Self { journal, frames: RefCell::new(frames) }
    }

    /// Stores a group, which is as durable as configured when this function returns. Returns the
    /// group's buffer, to be reused for another group.
    ///
    /// # Errors
    /// Returns [`Unstored`]; no answer that depends on the group may be sent.
    pub fn store(&self, group: Group) -> Result<Vec<u8>, Box<Unstored>> {
        match self.frames.borrow_mut().store(&group) {
            Ok(()) => Ok(group.body),
            Err(error) => Err(Box::new(Unstored { group, error })),
        }
    }

    /// Splits the journal into the handle for requests and the part that stores groups, which can
    /// then run on its own thread.
    #[must_use]
    pub fn into_parts(self) -> (Journal<F>, Frames<F>) {
        (self.journal, self.frames.into_inner())
    }

    /// Returns the part that stores groups.
    pub fn frames(&mut self) -> &mut Frames<F> {
        self.frames.get_mut()
    }
}

impl<F: Files> Deref for InlineJournal<F> {
    type Target = Journal<F>;

    fn deref(&self) -> &Journal<F> {
        &self.journal
    }
}

impl<F: Files> Store for InlineJournal<F> {
    type Reader = JournalReader<F>;
    type Draft = SnapshotFile<F>;

    fn append(&self, group: Group) -> impl Future<Output = Appended> {
        ready(match self.store(group) {
            Ok(spare) => Appended::Stored { spare },
            Err(unstored) if unstored.error.is_full() => {
                self.journal.note_full();
                Appended::Full { error: unstored.error.to_string(), group: unstored.group }
            }
            Err(unstored) => Appended::Failed(unstored.error.to_string()),
        })
    }

    fn reader(&self) -> JournalReader<F> {
        self.journal.reader()
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        self.journal.expired(now, clocks)
    }

    fn waits_for_snapshot(&self) -> bool {
        self.journal.waits_for_snapshot()
    }

    fn drop_part(&self, part: Part) -> impl Future<Output = Result<(), FileError>> {
        let dropped = self.journal.drop_segment(part);
        ready(dropped.map_or(Ok(()), |dropped| dropped.put_away()))
    }

    fn draft(&self, replay_from: u64) -> Result<SnapshotFile<F>, FileError> {
        self.journal.create_snapshot(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        self.journal.id()
    }

    fn stats(&self) -> Stats {
        self.journal.stats()
    }
}
