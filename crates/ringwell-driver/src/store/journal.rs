//! A handle to one shard's journal files. It answers queries while groups are being stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, believed_wall, shifted, wall_less_shard};

use super::files::{FileError, Files, remove};
use super::identity::{Identity, WrittenJournal};
use super::index::{Index, JournalReader, Shared};
use super::interface::Part;
use super::segments::segment_path;
use super::snapshots::SnapshotFile;
use super::spares::Spares;
use super::stats::Stats;
use crate::canary::{Bug, planted};

/// One shard's open journal. A separate type, [`super::Frames`], stores its groups.
#[derive(Debug)]
pub struct Journal<F> {
    pub(super) id: [u8; 16],
    pub(super) shared: Arc<Shared<F>>,
    pub(super) spares: Arc<Spares<F>>,
}

/// A segment that is no longer part of the journal, but whose file still exists.
#[derive(Debug)]
pub struct Dropped<F> {
    path: PathBuf,
    spares: Arc<Spares<F>>,
    shared: Arc<Shared<F>>,
}

impl<F: Files> Dropped<F> {
    /// Flushes the records that were copied from the segment, and then removes the segment's file
    /// or keeps it as a spare for a later segment. Waits for the disk.
    ///
    /// # Errors
    /// Returns [`FileError`]; the file may then remain, and the next startup reuses or removes it.
    pub fn put_away(&self) -> Result<(), FileError> {
        if !planted(Bug::CopiesUnflushed) {
            self.shared.flush_cached(u64::MAX)?;
        }
        self.spares.give(&self.path)
    }
}

impl<F: Files> Journal<F> {
    /// Returns the journal's identity, for the headers of snapshots.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Returns the journal's name and the number of the startup that began its newest segment. If
    /// the disk was full at this startup, returns the previous startup's number instead.
    #[must_use]
    pub(crate) fn written(&self) -> WrittenJournal {
        let newest = self.shared.index().segments.back().map(|info| info.header.start());
        WrittenJournal { name: Identity::journal_name(self.id), start: newest }
    }

    /// Removes the segments that earlier startups began and left empty, except for `doubted` and
    /// the newest segment. Called once these segments are no longer required; see
    /// [`WrittenJournal::start`].
    ///
    /// # Errors
    /// [`FileError`]
    pub(crate) fn remove_empty(&self, doubted: Option<u64>) -> Result<(), FileError> {
        loop {
            // The lock is not held while the disk is working.
            let empty = self.shared.index().pop_empty(doubted);
            let Some(segno) = empty else { return Ok(()) };
            remove(&self.shared.files, &segment_path(&self.shared.directory, segno))?;
        }
    }

    /// Returns the directory of the journal's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Returns the files that are prepared in advance for later segments.
    #[must_use]
    pub fn spares(&self) -> &Arc<Spares<F>> {
        &self.spares
    }

    /// Returns the number of the group after the last stored one.
    #[must_use]
    pub fn next_n(&self) -> u64 {
        self.shared.index().next_n()
    }

    /// Records that the disk is full and that a group is waiting for space.
    pub fn note_full(&self) {
        self.shared.counters.full();
    }

    /// Returns a reader of stored groups, which can also be used by other threads.
    #[must_use]
    pub fn reader(&self) -> JournalReader<F> {
        JournalReader { shared: Arc::clone(&self.shared) }
    }

    /// Returns the journal's statistics since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (segments, segment_bytes) = {
            let index = self.shared.index();
            (index.segments.len(), index.bytes())
        };
        Stats { segments, segment_bytes, ..self.shared.counters.read() }
    }

    /// Begins a snapshot. Recovery will load it and then replay the frames from `replay_from` on.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn create_snapshot(&self, replay_from: u64) -> Result<SnapshotFile<F>, FileError> {
        SnapshotFile::create(&self.shared, replay_from)
    }

    /// Returns the oldest segment, if it has expired; see [`super::Store::expired`].
    #[must_use]
    pub fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        let index = self.shared.index();
        let oldest = index.oldest()?;
        let is_over = self.is_too_large(&index) || self.is_too_old(&index, now, clocks);
        is_over.then_some(oldest)
    }

    fn is_too_large(&self, index: &Index) -> bool {
        index.bytes() > self.shared.settings.history_bytes
    }

    fn is_too_old(&self, index: &Index, now: Millis, clocks: Clocks) -> bool {
        let noted = index.noted();
        // The head of the second segment contains the clock readings at the end of the oldest one.
        let Some((age, next)) = self.shared.settings.history_age.zip(index.segments.get(1)) else {
            return false;
        };
        let then = wall_less_shard(next.header.tip.clocks, Some(clocks), noted.clone());
        let end = shifted(next.header.tip.last_at, then);
        believed_wall(now, clocks, noted).since(end) > age
    }

    /// Flushes all data that is only in the operating system's cache. Called when nothing more will
    /// be written.
    ///
    /// # Errors
    /// Returns [`FileError`]; the next startup then holds all pools.
    pub fn flush(&self) -> Result<(), FileError> {
        if planted(Bug::StopUnflushed) {
            return Ok(());
        }
        self.shared.flush_cached(u64::MAX)
    }

    /// Whether the history exceeds its configured size only because the kept snapshots need it.
    #[must_use]
    pub fn waits_for_snapshot(&self) -> bool {
        let index = self.shared.index();
        let is_alone = index.segments.len() < 2;
        self.is_too_large(&index) && !is_alone && index.oldest().is_none()
    }

    /// Drops a segment that [`Self::expired`] has returned. Returns `None` if the segment did not
    /// exist or could not be dropped.
    #[must_use]
    pub fn drop_segment(&self, part: Part) -> Option<Dropped<F>> {
        let mut index = self.shared.index();
        index.oldest().filter(|oldest| *oldest == part)?;
        let segment = index.segments.pop_front()?;
        let path = segment_path(&self.shared.directory, segment.header.segno);
        let (spares, shared) = (Arc::clone(&self.spares), Arc::clone(&self.shared));
        Some(Dropped { path, spares, shared })
    }
}
