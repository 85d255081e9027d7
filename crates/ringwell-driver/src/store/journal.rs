//! The handle of one shard's journal in files: answers queries while groups are stored.

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

/// One shard's journal, open. A separate type stores its groups: [`super::Frames`].
#[derive(Debug)]
pub struct Journal<F> {
    pub(super) id: [u8; 16],
    pub(super) shared: Arc<Shared<F>>,
    pub(super) spares: Arc<Spares<F>>,
}

/// A segment that is no longer part of the journal; its file still exists.
#[derive(Debug)]
pub struct Dropped<F> {
    path: PathBuf,
    spares: Arc<Spares<F>>,
    shared: Arc<Shared<F>>,
}

impl<F: Files> Dropped<F> {
    /// Makes its file a spare, or removes it, once the copies of its records are on the disk. Waits
    /// for the disk.
    ///
    /// # Errors
    /// [`FileError`]; then the file may remain, and the next start handles it.
    pub fn put_away(&self) -> Result<(), FileError> {
        if !planted(Bug::CopiesUnflushed) {
            self.shared.flush_cached(u64::MAX)?;
        }
        self.spares.give(&self.path)
    }
}

impl<F: Files> Journal<F> {
    /// The journal's identity, for the headers of snapshots.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The journal as this start has left it. If the disk was full, it names the previous start.
    #[must_use]
    pub(crate) fn written(&self) -> WrittenJournal {
        let newest = self.shared.index().segments.back().map(|info| info.header.start());
        WrittenJournal { name: Identity::journal_name(self.id), start: newest }
    }

    /// Removes the segments that earlier starts have begun and left empty, except for `doubted` and
    /// the newest one, once they are no longer required: see [`WrittenJournal::start`].
    ///
    /// # Errors
    /// [`FileError`]
    pub(crate) fn remove_empty(&self, doubted: Option<u64>) -> Result<(), FileError> {
        loop {
            // The lock is not held while the disk works.
            let empty = self.shared.index().pop_empty(doubted);
            let Some(segno) = empty else { return Ok(()) };
            remove(&self.shared.files, &segment_path(&self.shared.directory, segno))?;
        }
    }

    /// The directory of its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// The files that are prepared in advance.
    #[must_use]
    pub fn spares(&self) -> &Arc<Spares<F>> {
        &self.spares
    }

    /// The group after the last that is stored.
    #[must_use]
    pub fn next_n(&self) -> u64 {
        self.shared.index().next_n()
    }

    /// Records that the disk is full: a group waits.
    pub fn note_full(&self) {
        self.shared.counters.full();
    }

    /// Reads stored groups, also from other threads.
    #[must_use]
    pub fn reader(&self) -> JournalReader<F> {
        JournalReader { shared: Arc::clone(&self.shared) }
    }

    /// The journal's counts since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (segments, segment_bytes) = {
            let index = self.shared.index();
            (index.segments.len(), index.bytes())
        };
        Stats { segments, segment_bytes, ..self.shared.counters.read() }
    }

    /// Begins a snapshot on which the frames from `replay_from` on will be replayed.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn create_snapshot(&self, replay_from: u64) -> Result<SnapshotFile<F>, FileError> {
        SnapshotFile::create(&self.shared, replay_from)
    }

    /// The oldest segment, in the form that [`super::Store::expired`] returns.
    #[must_use]
    pub fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        let index = self.shared.index();
        let oldest = index.oldest()?;
        let too_much = index.bytes() > self.shared.settings.history_bytes;
        (too_much || self.is_too_old(&index, now, clocks)).then_some(oldest)
    }

    fn is_too_old(&self, index: &Index, now: Millis, clocks: Clocks) -> bool {
        let noted = index.noted();
        // The head of the next segment contains the clock readings at its end.
        let Some((age, next)) = self.shared.settings.history_age.zip(index.segments.get(1)) else {
            return false;
        };
        let then = wall_less_shard(next.header.tip.clocks, Some(clocks), noted.clone());
        let end = shifted(next.header.tip.last_at, then);
        believed_wall(now, clocks, noted).since(end) > age
    }

    /// Flushes everything that is only in the operating system's cache. Runs when nothing more is
    /// written.
    ///
    /// # Errors
    /// [`FileError`]; then the next start holds all pools.
    pub fn flush(&self) -> Result<(), FileError> {
        if planted(Bug::StopUnflushed) {
            return Ok(());
        }
        self.shared.flush_cached(u64::MAX)
    }

    /// Whether more is kept than configured only because the kept snapshots need it.
    #[must_use]
    pub fn waits_for_snapshot(&self) -> bool {
        let index = self.shared.index();
        let is_alone = index.segments.len() < 2;
        let too_much = index.bytes() > self.shared.settings.history_bytes;
        too_much && !is_alone && index.oldest().is_none()
    }

    /// Drops a segment that [`Self::expired`] has returned. `None` if it did not exist or could not
    /// be dropped.
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
