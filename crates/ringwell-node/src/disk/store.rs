//! Opening one shard's journal: what there is, whether it can be trusted, and going on from it.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use ringwell_journal::{
    BLOCK_BYTES, Cut, DecodeError, Durability, GroupHeader, Plan, RecoverError, Recovered,
    SegmentHeader, SegmentInfo, Snapshot, SnapshotError, SnapshotReader, Tip, Verdict, encode_end,
    recover,
};

use super::Settings;
use super::buffer::AlignedBuffer;
use super::file::{Context, FileError, create_directory, open_write, remove};
use super::flusher::{Flusher, OnFlushed, random};
use super::index::{Index, Kept, Shared};
use super::inline::InlineJournal;
use super::journal::{Journal, Threads};
use super::memory::Memory;
use super::segments::{SegmentFiles, segment_path};
use super::snapshots::{self, SnapshotRef, SnapshotSource};
use super::spares::Spares;

/// One shard's journal before it is opened. Changes nothing but making its directory, until
/// [`Self::start`].
#[derive(Debug)]
pub struct ShardStore {
    settings: Settings,
    shard: u32,
    directory: PathBuf,
}

/// Why a shard's journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be trusted, or not be read.
    #[error("the journal of shard {shard} in {}: {source}", directory.display())]
    Refused {
        /// The shard.
        shard: u32,
        /// Where its files are.
        directory: PathBuf,
        /// What is wrong, where, and what can be done.
        source: RecoverError<FileError>,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ShardStore {
    /// Looks at the directory of `shard`, and makes it if it is not there.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn open(settings: &Settings, shard: u32) -> Result<Self, FileError> {
        let directory = settings.shard_directory(shard);
        if settings.durability != Durability::Memory {
            create_directory(&directory)?;
        }
        Ok(Self { settings: settings.clone(), shard, directory })
    }

    /// The snapshots, newest first: try one after the other until one can be read to its end.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn snapshots(&self) -> Result<Vec<SnapshotRef>, FileError> {
        if self.settings.durability == Durability::Memory {
            return Ok(Vec::new());
        }
        snapshots::list(&self.directory)
    }

    /// Begins to read a snapshot.
    ///
    /// # Errors
    /// [`SnapshotError`]: take an older one.
    pub fn read_snapshot(
        &self,
        snapshot: &SnapshotRef,
    ) -> Result<SnapshotReader<SnapshotSource>, SnapshotError<FileError>> {
        snapshots::read(snapshot)
    }

    /// Reads the journal on top of the snapshot that was loaded, or from its beginning, and shows
    /// `visit` each group. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError`]: the shard must not start.
    pub fn recover(
        &self,
        snapshot: Option<&Snapshot>,
        visit: impl FnMut(&GroupHeader, &[u8]) -> Result<(), DecodeError>,
    ) -> Result<Recovered, OpenError> {
        if self.settings.durability == Durability::Memory {
            let (tip, verdict) = (Tip::FIRST, Verdict::Clean);
            return Ok(Recovered { tip, journal: None, verdict, segments: Vec::new(), frames: 0 });
        }
        let plan = Plan {
            shard: self.shard,
            from: snapshot.map_or(1, |snapshot| snapshot.header.replay_from),
            snapshot: snapshot.map(Snapshot::mark),
        };
        let files = SegmentFiles::from_disk(self.directory.clone());
        recover(&files, &plan, visit).map_err(|source| {
            let directory = self.directory.clone();
            OpenError::Refused { shard: self.shard, directory, source }
        })
    }

    /// Goes on from what was recovered: cuts what was never finished, begins a new segment and
    /// starts the threads. Returns the tip to gather on, its epoch raised.
    ///
    /// A disk that is full now is reported with the first group, not here.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start(
        self,
        recovered: Recovered,
        on_flushed: OnFlushed,
    ) -> Result<(Journal, Tip), FileError> {
        let shard = self.shard;
        let (mut journal, flusher, tip) = self.begin(recovered, on_flushed)?;
        if let Some((flusher, spares)) = flusher.zip(journal.spares.clone()) {
            let filler = spares.start()?;
            let (groups, receiver) = mpsc::channel();
            let closing = Arc::clone(&flusher.closing);
            let thread = std::thread::Builder::new().name(format!("journal-{shard}"));
            let flusher = thread
                .spawn(move || flusher.run(&receiver))
                .context("start the thread that stores in", &journal.shared.directory)?;
            journal.threads = Some(Threads { groups, flusher, spares, filler, closing });
        }
        Ok((journal, tip))
    }

    /// As [`Self::start`], without threads: whoever has the journal stores its groups.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start_inline(self, recovered: Recovered) -> Result<(InlineJournal, Tip), FileError> {
        let nobody = Box::new(|_| ());
        let (journal, flusher, tip) = self.begin(recovered, nobody)?;
        Ok((InlineJournal { journal, flusher }, tip))
    }

    /// What [`Self::start`] does before it starts threads. Without files there is no flusher.
    fn begin(
        self,
        recovered: Recovered,
        on_flushed: OnFlushed,
    ) -> Result<(Journal, Option<Flusher>, Tip), FileError> {
        let tip = recovered.tip.raise_epoch();
        let id = match recovered.journal {
            Some(id) => id,
            None => random().context("draw an identity for", &self.directory)?,
        };
        if self.settings.durability == Durability::Memory {
            let memory = Memory::new(self.settings.history_bytes);
            let shared = Shared::new(self.settings, self.directory, Kept::Memory(memory));
            let journal = Journal { id, shared: Arc::new(shared), spares: None, threads: None };
            return Ok((journal, None, tip));
        }
        let mut segments = recovered.segments;
        self.settle(&mut segments, &recovered.verdict, recovered.tip.next_n)?;
        // A segment whose first frame is rotten stays: until a frame follows, each start must see it.
        let doubted = match recovered.verdict {
            Verdict::Rotten(Cut { segno, .. }) => Some(segno),
            Verdict::Torn(_) | Verdict::Clean => None,
        };
        let leftover = segments.pop_if(|last| {
            let is_empty = last.offsets.as_ref().is_some_and(|offsets| offsets.len() == 1);
            is_empty && doubted != Some(last.header.segno)
        });
        let newest = leftover.as_ref().or(segments.last()).map_or(0, |info| info.header.segno);
        let Settings { segment_bytes, spare_segments, .. } = self.settings;
        let spares = Spares::open(&self.directory, segment_bytes, spare_segments)?;
        let snapshots = self.snapshots()?.iter().map(|snapshot| snapshot.replay_from).collect();
        let index = Index { segments: segments.into(), snapshots };
        let head = SegmentHeader {
            shard: self.shard,
            journal: id,
            segno: newest,
            salt: 0,
            tip,
            file_bytes: None,
        };
        let shared = Arc::new(Shared::new(self.settings, self.directory, Kept::Files(index)));
        let mut flusher = Flusher {
            shared: Arc::clone(&shared),
            spares: Arc::clone(&spares),
            head,
            tip,
            segment: None,
            buffer: AlignedBuffer::default(),
            on_flushed,
            closing: Arc::new(AtomicBool::new(false)),
        };
        match flusher.next_segment() {
            Err(error) if error.is_full() => {
                tracing::error!(%error, "the disk is full: the journal has no room to begin");
            }
            begun => flusher.segment = Some(begun?),
        }
        // Without frames it says no more than the new one. Only now: a file must always tell
        // where the journal ends.
        match leftover {
            Some(leftover) if flusher.segment.is_some() => {
                remove(&segment_path(&shared.directory, leftover.header.segno))?;
            }
            // Its file stays, and must go with those behind it.
            Some(leftover) => {
                if let Kept::Files(index) = &mut *shared.kept() {
                    index.push(leftover);
                }
            }
            None => {}
        }
        Ok((Journal { id, shared, spares: Some(spares), threads: None }, Some(flusher), tip))
    }

    /// Makes the end of the old journal durable, as it may only have been in the page cache, and
    /// cuts off what was never finished. Rotten frames stay: they may be evidence.
    ///
    /// A block that says so comes first: a file that is short without it has lost its tail.
    fn settle(
        &self,
        segments: &mut [SegmentInfo],
        verdict: &Verdict,
        n: u64,
    ) -> Result<(), FileError> {
        let Some(last) = segments.last_mut() else { return Ok(()) };
        let path = segment_path(&self.directory, last.header.segno);
        let file = open_write(&path)?;
        let rotten_here =
            matches!(verdict, Verdict::Rotten(Cut { segno, .. }) if *segno == last.header.segno);
        let used = last.offsets.as_ref().and_then(|offsets| offsets.last().copied());
        let end = used.map(|used| (used, used + BLOCK_BYTES as u64));
        if let Some((used, end)) = end.filter(|(_, end)| !rotten_here && *end < last.file_bytes) {
            file.write_all_at(&encode_end(last.header.salt, n), used).context("write", &path)?;
            file.sync_all().context("flush", &path)?;
            file.set_len(end).context("cut", &path)?;
            last.file_bytes = end;
        }
        file.sync_all().context("flush", &path)
    }
}
