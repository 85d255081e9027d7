//! The journal of a shard whose groups are stored by the thread that asks for it.
//!
//! The same files, written by the same code, without the two threads that a server has: for a
//! process that may fork, in which no thread of ours would live on. Whoever has it waits for the
//! disk, and a segment that is to be begun is filled with zeros while he waits.

use std::ops::Deref;

use ringwell_journal::Group;

use super::files::{FileError, Files};
use super::frames::Frames;
use super::journal::Journal;

/// One shard's journal, open for storing groups here and now.
#[derive(Debug)]
pub struct InlineJournal<F: Files> {
    pub(super) journal: Journal<F>,
    /// `None` if groups are kept in memory.
    pub(super) frames: Option<Frames<F>>,
}

/// A group that could not be stored.
#[derive(Debug)]
pub struct Unstored {
    /// The group. If the disk is full it must be tried again before any other.
    pub group: Group,
    /// What went wrong. If [`FileError::is_full`] is false, nothing may be stored any more.
    pub error: FileError,
}

impl<F: Files> InlineJournal<F> {
    /// Stores a group: as durable as configured when this returns. Gives back its body, to gather
    /// another group in.
    ///
    /// # Errors
    /// [`Unstored`]: no answer that it covers may leave.
    pub fn store(&mut self, group: Group) -> Result<Vec<u8>, Box<Unstored>> {
        let Some(frames) = &mut self.frames else {
            self.journal.keep(group);
            return Ok(Vec::new());
        };
        match frames.store(&group) {
            Ok(()) => Ok(group.body),
            Err(error) => Err(Box::new(Unstored { group, error })),
        }
    }

    /// What is asked while groups are stored, and what stores them: for a thread of its own.
    #[must_use]
    pub fn into_parts(self) -> (Journal<F>, Option<Frames<F>>) {
        (self.journal, self.frames)
    }

    /// What stores groups in files; `None` if they are kept in memory.
    pub fn frames(&mut self) -> Option<&mut Frames<F>> {
        self.frames.as_mut()
    }
}

impl<F: Files> Deref for InlineJournal<F> {
    type Target = Journal<F>;

    fn deref(&self) -> &Journal<F> {
        &self.journal
    }
}
