//! The handle of one shard's journal.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group, believed_wall, shifted, wall_less_shard};

use super::file::FileError;
use super::flusher::Flushed;
use super::index::{Index, JournalReader, Kept, SegmentRef, Shared};
use super::segments::segment_path;
use super::snapshots::SnapshotFile;
use super::spares::Spares;
use super::stats::Stats;

/// One shard's journal, open for storing groups.
#[derive(Debug)]
pub struct Journal {
    pub(super) id: [u8; 16],
    pub(super) shared: Arc<Shared>,
    /// `None` if groups are kept in memory.
    pub(super) spares: Option<Arc<Spares>>,
    /// `None` if groups are kept in memory, or stored by whoever has the handle
    /// ([`super::InlineJournal`]).
    pub(super) threads: Option<Threads>,
}

/// What stores groups in files.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) groups: Sender<Group>,
    pub(super) flusher: JoinHandle<Option<u64>>,
    pub(super) spares: Arc<Spares>,
    pub(super) filler: JoinHandle<()>,
    pub(super) closing: Arc<AtomicBool>,
}

/// A segment that is not part of the journal any more; its file is still there.
#[derive(Debug)]
pub struct Dropped {
    path: PathBuf,
    spares: Arc<Spares>,
}

impl Dropped {
    /// Makes its file a spare, or removes it. Waits for the disk.
    ///
    /// # Errors
    /// [`FileError`]; the file may be left over then, and is looked at again by the next start.
    pub fn put_away(&self) -> Result<(), FileError> {
        self.spares.give(&self.path)
    }
}

/// Groups that were submitted and are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// The disk was full, or had failed before.
    #[error("group {0} and those after it are not stored")]
    Lost(u64),
    /// A thread of the journal has panicked: see the log.
    #[error("a thread of the journal has panicked")]
    Panicked,
}

impl Journal {
    /// The journal's identity, for the headers of snapshots.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Hands over a group to be stored; never blocks. At most one should be on its way: the next
    /// one gathers meanwhile.
    ///
    /// Returns what became of it if that is known at once: in memory, or if the journal's thread
    /// is gone. Otherwise the function given at the start is called.
    #[must_use]
    pub fn submit(&self, group: Group) -> Option<Flushed> {
        let n = group.header.n;
        let Some(threads) = &self.threads else {
            return Some(self.keep(group));
        };
        threads
            .groups
            .send(group)
            .err()
            .map(|_| Flushed::Failed { n, error: "the journal's thread has panicked".to_owned() })
    }

    /// Keeps a group in memory.
    pub(super) fn keep(&self, group: Group) -> Flushed {
        let n = group.header.n;
        let took = Duration::ZERO;
        self.shared.counters.stored(group.body.len(), 0, took);
        // Without threads there is no index of files.
        if let Kept::Memory(memory) = &mut *self.shared.kept() {
            memory.store(group);
        }
        Flushed::Stored { n, spare: Vec::new(), took }
    }

    /// Reads stored groups, also from other threads.
    #[must_use]
    pub fn reader(&self) -> JournalReader {
        JournalReader { shared: Arc::clone(&self.shared) }
    }

    /// What the journal has done since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (segments, segment_bytes) = match &*self.shared.kept() {
            Kept::Files(index) => (index.segments.len(), index.bytes()),
            Kept::Memory(memory) => (0, memory.bytes()),
        };
        Stats { segments, segment_bytes, ..self.shared.counters.read() }
    }

    /// Begins a snapshot on which the frames from `replay_from` on will be replayed.
    ///
    /// # Errors
    /// [`FileError`]; always if the journal is kept in memory.
    pub fn create_snapshot(&self, replay_from: u64) -> Result<SnapshotFile, FileError> {
        SnapshotFile::create(&self.shared, replay_from)
    }

    /// The oldest segment, if there is more than is to be kept and no snapshot needs it. Read
    /// its groups, carry forward what still matters, and drop it once that is stored. It is `now` by
    /// shard time, and `clocks` stand so; age is that by a wall clock that is believed.
    #[must_use]
    pub fn expired(&self, now: Millis, clocks: Clocks) -> Option<SegmentRef> {
        match &*self.shared.kept() {
            Kept::Memory(_) => None,
            Kept::Files(index) => {
                let oldest = index.oldest()?;
                let too_much = index.bytes() > self.shared.settings.history_bytes;
                (too_much || self.is_too_old(index, now, clocks)).then_some(oldest)
            }
        }
    }

    fn is_too_old(&self, index: &Index, now: Millis, clocks: Clocks) -> bool {
        let heads = index.segments.iter().rev().map(|info| &info.header);
        // The head of the segment after it has the clocks at its end.
        let Some((age, next)) = self.shared.settings.history_age.zip(index.segments.get(1)) else {
            return false;
        };
        let then = wall_less_shard(next.header.tip.clocks, Some(clocks), heads.clone());
        let end = shifted(next.header.tip.last_at, then);
        believed_wall(now, clocks, heads).since(end) > age
    }

    /// Whether more is kept than should be, and only because the snapshots that are kept need it.
    #[must_use]
    pub fn waits_for_snapshot(&self) -> bool {
        match &*self.shared.kept() {
            Kept::Memory(_) => false,
            Kept::Files(index) => {
                let is_alone = index.segments.len() < 2;
                let too_much = index.bytes() > self.shared.settings.history_bytes;
                too_much && !is_alone && index.oldest().is_none()
            }
        }
    }

    /// In memory: takes the oldest group out, if more is kept than should be. The caller carries
    /// forward what still matters in it.
    #[must_use]
    pub fn take_oldest(&self) -> Option<Group> {
        match &mut *self.shared.kept() {
            Kept::Memory(memory) => memory.take_oldest(),
            Kept::Files(_) => None,
        }
    }

    /// In memory: keeps more from now on, because most of what was taken out had to be carried.
    pub fn keep_more(&self, bytes: u64) {
        if let Kept::Memory(memory) = &mut *self.shared.kept() {
            memory.keep_more(bytes);
        }
    }

    /// Forgets a part of the history that [`Self::expired`] has named. `None` if it was not there
    /// or could not go.
    #[must_use]
    pub fn drop_segment(&self, segment: SegmentRef) -> Option<Dropped> {
        let Kept::Files(index) = &mut *self.shared.kept() else { return None };
        index.oldest().filter(|oldest| *oldest == segment)?;
        index.segments.pop_front();
        let path = segment_path(&self.shared.directory, segment.segno);
        let spares = self.spares.clone()?;
        Some(Dropped { path, spares })
    }

    /// Stores what was submitted and ends the threads.
    ///
    /// # Errors
    /// [`CloseError`]: some groups are not stored, and their answers must not leave.
    pub fn close(mut self) -> Result<(), CloseError> {
        self.threads.take().map_or(Ok(()), Threads::end)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            // Whoever wants to know what was stored calls `close`, or hears it from the callback.
            let _ = threads.end();
        }
    }
}

impl Threads {
    fn end(self) -> Result<(), CloseError> {
        drop(self.groups);
        self.closing.store(true, Ordering::Release);
        self.flusher.thread().unpark();
        let lost = self.flusher.join().map_err(|_| CloseError::Panicked);
        self.spares.close();
        self.filler.join().map_err(|_| CloseError::Panicked)?;
        lost?.map_or(Ok(()), |n| Err(CloseError::Lost(n)))
    }
}
