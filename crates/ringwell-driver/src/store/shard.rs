//! Opens one shard's journal: finds the shard's files, decides whether they can be trusted, and
//! continues from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwell_journal::{
    BLOCK_BYTES, Cut, DecodeError, GroupHeader, RecoverError, Recovered, RecoveryPlan,
    SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo, Snapshot, SnapshotError, SnapshotReader, Tip,
    Verdict, encode_end, recover,
};

use super::Settings;
use super::aligned::AlignedBuffer;
use super::files::{Access, FileError, Files, numbered, remove};
use super::frames::Frames;
use super::index::{Index, Shared};
use super::inline::InlineJournal;
use super::journal::Journal;
use super::segments::{SegmentFiles, segment_path};
use super::snapshots::{self, SnapshotRef, SnapshotSource};
use super::spares::Spares;
use super::unflushed::failed;

/// One shard's journal, before it is started. Until then, nothing is changed, except that the
/// directory is created and that the journal can be cut off at a bad frame.
#[derive(Debug)]
pub struct ShardStore<F> {
    files: F,
    settings: Settings,
    shard: u32,
    directory: PathBuf,
    /// See [`Index::unusable`].
    unusable: Vec<u64>,
}

/// The reason why a shard's journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal cannot be trusted or cannot be read.
    #[error(
        "the journal of shard {shard} in {}: {source}. `ringwell journal verify` shows all damage",
        directory.display()
    )]
    Refused {
        /// The shard.
        shard: u32,
        /// The directory of the journal's files.
        directory: PathBuf,
        /// The damage, the damaged place, and the possible remedies.
        source: RecoverError<FileError>,
    },
    /// A file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl<F: Files> ShardStore<F> {
    /// Creates the directory of `shard` if it does not exist.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn open(files: &F, settings: &Settings, shard: u32) -> Result<Self, FileError> {
        let directory = settings.shard_directory(shard);
        files.make_directory(&directory)?;
        let (files, settings) = (files.clone(), settings.clone());
        Ok(Self { files, settings, shard, directory, unusable: Vec::new() })
    }

    /// Returns the snapshots, newest first. The caller tries one after another until one can be
    /// read to its end.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn snapshots(&self) -> Result<Vec<SnapshotRef>, FileError> {
        snapshots::list(&self.files, &self.directory)
    }

    /// Records that a snapshot cannot be read, so that it is not kept in place of an intact one.
    pub fn note_unusable(&mut self, snapshot: &SnapshotRef) {
        self.unusable.push(snapshot.replay_from);
    }

    /// Begins to read a snapshot.
    ///
    /// # Errors
    /// Returns [`SnapshotError`]; the caller then tries an older snapshot.
    pub fn read_snapshot(
        &self,
        snapshot: &SnapshotRef,
    ) -> Result<SnapshotReader<SnapshotSource>, SnapshotError<FileError>> {
        snapshots::read(&self.files, snapshot)
    }

    /// Passes each group after the loaded snapshot to `visit`, or every group of the journal if no
    /// snapshot was loaded. Changes nothing.
    ///
    /// # Errors
    /// Returns [`OpenError`]; the shard must then not start.
    pub fn recover(
        &self,
        snapshot: Option<&Snapshot>,
        visit: impl FnMut(&GroupHeader, &[u8]) -> Result<(), DecodeError>,
    ) -> Result<Recovered, OpenError> {
        let plan = RecoveryPlan {
            shard: self.shard,
            from: snapshot.map_or(1, |snapshot| snapshot.header.replay_from),
            snapshot: snapshot.map(Snapshot::mark),
        };
        let files = SegmentFiles::from_disk(self.files.clone(), self.directory.clone());
        recover(&files, &plan, visit).map_err(|source| {
            let directory = self.directory.clone();
            OpenError::Refused { shard: self.shard, directory, source }
        })
    }

    /// Cuts the journal off at a bad frame, even if good frames follow. Returns whether anything
    /// was cut off.
    pub(crate) fn cut_at_damage(
        &self,
        refused: &RecoverError<FileError>,
    ) -> Result<bool, FileError> {
        let RecoverError::Damaged { segno, offset, n, fault, .. } = *refused else {
            return Ok(false);
        };
        let path = segment_path(&self.directory, segno);
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let mut block = [0; BLOCK_BYTES];
        let file = self.files.open(&path, Access::Read)?;
        self.files.read_at(&file, 0, &mut head)?;
        self.files.read_at(&file, offset, &mut block)?;
        let Ok(head) = SegmentHeader::decode(&head) else { return Ok(false) };
        let (end, cut) = (offset + BLOCK_BYTES as u64, encode_end(head.salt, n));
        // The numbers of the later segments need not be consecutive.
        let segments = numbered(&self.files, &self.directory, "rpj")?.into_iter();
        let later: Vec<_> = segments.filter(|(number, _)| *number > segno).collect();
        if later.is_empty() && block == cut && self.files.len(&file)? == end {
            return Ok(false);
        }
        tracing::error!(
            shard = self.shard,
            segment = %path.display(),
            offset,
            "group {n} is {fault}, although later groups were written: the journal is cut before \
            group {n}"
        );
        // Removes the newest segment first, so that the remaining files are always a valid journal.
        for (_, path) in later.iter().rev() {
            remove(&self.files, path)?;
        }
        // Handles the bad frame like an unfinished write at startup.
        let mut file = self.files.open(&path, Access::Write)?;
        self.files.write_at(&mut file, offset, &cut)?;
        self.files.flush(&file)?;
        self.files.set_len(&file, end)?;
        Ok(true)
    }

    /// Returns the directory of the journal's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Like [`Self::start_inline`], but does not raise the epoch. The journal mirrors a log on
    /// other machines, and is continued with groups from that log.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start_mirror(self, recovered: Recovered) -> Result<InlineJournal<F>, FileError> {
        let tip = recovered.tip;
        Ok(self.start(recovered, tip, true)?.0)
    }

    /// Continues the journal after its recovered part: cuts off an unfinished write and begins a
    /// new segment. Also returns the [`Tip`] for new groups, with a raised epoch.
    ///
    /// If there is no space for the new segment, the error is returned when the first group is
    /// stored, not by this function.
    ///
    /// # Errors
    /// [`FileError`]
    pub fn start_inline(self, recovered: Recovered) -> Result<(InlineJournal<F>, Tip), FileError> {
        let tip = recovered.tip.raise_epoch();
        self.start(recovered, tip, false)
    }

    fn start(
        self,
        recovered: Recovered,
        tip: Tip,
        is_copy: bool,
    ) -> Result<(InlineJournal<F>, Tip), FileError> {
        let id = match recovered.journal {
            Some(id) => id,
            None => self.files.random(&self.directory)?,
        };
        let [drawn @ .., _, _, _, _, _, _, _, _] = self.files.random(&self.directory)?;
        let start = u64::from_le_bytes(drawn);
        let mut segments = recovered.segments;
        self.settle(&mut segments, &recovered.verdict, recovered.tip.next_n)
            .map_err(|error| failed(&self.files, &self.settings, error))?;
        let newest = segments.last().map(|info| info.header);
        let Settings { segment_bytes, spare_segments, .. } = self.settings;
        let files = self.files.clone();
        let spares = Spares::open(files, &self.directory, segment_bytes, spare_segments, is_copy)?;
        let snapshots = self.snapshots()?.iter().map(|snapshot| snapshot.replay_from).collect();
        let index = Index { segments: segments.into(), snapshots, unusable: self.unusable };
        let head = SegmentHeader {
            shard: self.shard,
            journal: id,
            segno: newest.map_or(0, |newest| newest.segno),
            salt: 0,
            tip,
            file_bytes: None,
        };
        let shared = Arc::new(Shared::new(self.files, self.settings, self.directory, index));
        let mut frames = Frames {
            start,
            shared: Arc::clone(&shared),
            spares: Arc::clone(&spares),
            head,
            tip,
            segment: None,
            buffer: AlignedBuffer::default(),
            written: None,
        };
        match frames.next_segment() {
            Err(error) if error.is_full() => {
                tracing::error!(%error, "the disk is full: there is no space to start the journal");
                // There is no space to record this startup either, so its segments get the number
                // of the previous startup.
                frames.start = newest.map_or(start, |newest| newest.start());
            }
            begun => frames.segment = Some(begun?),
        }
        let journal = Journal { id, shared, spares };
        Ok((InlineJournal::new(journal, frames), tip))
    }

    /// Makes the end of the old journal durable, because it may be only in the page cache. Also
    /// cuts off an unfinished write. Damaged frames are kept, because they may be evidence.
    ///
    /// Before an unfinished write is cut off, a block that marks the segment's end is written. So
    /// if a shortened file has no such block, its end was lost.
    fn settle(
        &self,
        segments: &mut [SegmentInfo],
        verdict: &Verdict,
        n: u64,
    ) -> Result<(), FileError> {
        let Some(last) = segments.last_mut() else { return Ok(()) };
        let path = segment_path(&self.directory, last.header.segno);
        let files = &self.files;
        let mut file = files.open(&path, Access::Write)?;
        let rotten_here =
            matches!(verdict, Verdict::Rotten(Cut { segno, .. }) if *segno == last.header.segno);
        let used = last.offsets.as_ref().and_then(|offsets| offsets.last().copied());
        let end = used.map(|used| (used, used + BLOCK_BYTES as u64));
        if let Some((used, end)) = end.filter(|(_, end)| !rotten_here && *end < last.file_bytes) {
            files.write_at(&mut file, used, &encode_end(last.header.salt, n))?;
            files.flush(&file)?;
            files.set_len(&file, end)?;
            last.file_bytes = end;
        }
        files.flush(&file)
    }
}
