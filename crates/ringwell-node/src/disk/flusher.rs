//! The thread that stores groups: one frame is written and flushed at a time.
//!
//! Invariant: groups are stored in order without gaps. On a full disk, or without a file
//! descriptor, the group waits and is tried again; after any other failure nothing is stored any
//! more, because nobody knows what the disk has: the pages of a failed flush count as clean, so that
//! a second flush would lie.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ringwell_core::Millis;
use ringwell_journal::{
    Durability, Group, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo, Tip, encode_frame,
    frame_bytes,
};
use rustix::io::Errno;

use super::buffer::AlignedBuffer;
use super::file::{Context, FileError, open_direct, open_write, refuses_direct, rename};
use super::index::{Kept, Shared};
use super::segments::segment_path;
use super::spares::Spares;
use super::{Settings, WriteMode};

/// How long a group waits on a full disk before it is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// What became of a group.
#[derive(Debug)]
pub enum Flushed {
    /// It and all before it are as durable as configured: answers may leave.
    Stored {
        /// The group.
        n: u64,
        /// Its body, to gather another group in.
        spare: Vec<u8>,
        /// How long writing and flushing took.
        took: Duration,
    },
    /// The disk is full, or no more files can be opened. The group waits and is tried again; said
    /// once until it is stored.
    Full {
        /// The group.
        n: u64,
    },
    /// Nothing is stored any more until the process starts again; said once.
    Failed {
        /// The group.
        n: u64,
        /// What went wrong with which file.
        error: String,
    },
}

/// Called by the journal's thread with each result, in order.
pub type OnFlushed = Box<dyn FnMut(Flushed) + Send>;

pub(super) struct Flusher {
    pub(super) shared: Arc<Shared>,
    pub(super) spares: Arc<Spares>,
    /// Shard, journal and number of the newest segment; the rest is filled in for each.
    pub(super) head: SegmentHeader,
    /// Where the stored journal ends.
    pub(super) tip: Tip,
    pub(super) segment: Option<Segment>,
    pub(super) buffer: AlignedBuffer,
    pub(super) on_flushed: OnFlushed,
    /// No more waiting on a full disk.
    pub(super) closing: Arc<AtomicBool>,
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher").field("tip", &self.tip).finish_non_exhaustive()
    }
}

/// The segment that frames are written to.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    path: PathBuf,
    direct: bool,
    salt: u64,
    used: u64,
    bytes: u64,
    /// Time of its first record.
    begun_at: Option<Millis>,
}

impl Flusher {
    /// Stores groups until there are no more; returns the first that could not be stored.
    pub(super) fn run(mut self, groups: &Receiver<Group>) -> Option<u64> {
        let mut lost = None;
        for group in groups {
            let n = group.header.n;
            if lost.is_none() && !self.store(group) {
                lost = Some(n);
            }
        }
        lost
    }

    /// Returns whether the group is stored.
    fn store(&mut self, group: Group) -> bool {
        let n = group.header.n;
        let mut waiting = false;
        loop {
            match self.write_counted(&group) {
                Ok(took) => {
                    (self.on_flushed)(Flushed::Stored { n, spare: group.body, took });
                    return true;
                }
                Err(error) if error.is_full() && !self.closing.load(Ordering::Acquire) => {
                    if !waiting {
                        tracing::error!(
                            %error,
                            "the disk is full, or no more files can be opened: the journal waits"
                        );
                        self.shared.counters.full();
                        (self.on_flushed)(Flushed::Full { n });
                        waiting = true;
                    }
                    std::thread::park_timeout(RETRY);
                }
                Err(error) => {
                    tracing::error!(%error, "the journal failed: nothing more is stored");
                    self.shared.counters.failed();
                    (self.on_flushed)(Flushed::Failed { n, error: error.to_string() });
                    return false;
                }
            }
        }
    }

    /// Writes and flushes the frame of a group once; returns how long that took.
    pub(super) fn write_counted(&mut self, group: &Group) -> Result<Duration, FileError> {
        let begun = Instant::now();
        let written = self.write(group)?;
        let took = begun.elapsed();
        self.shared.counters.stored(group.body.len(), written, took);
        Ok(took)
    }

    /// Writes and flushes the frame of a group; returns its length.
    fn write(&mut self, group: &Group) -> Result<usize, FileError> {
        let bytes = frame_bytes(&group.header);
        let mut segment = match self.segment.take() {
            Some(segment) if segment.has_room(bytes) && !self.is_old(&segment, group) => segment,
            Some(_) | None => self.next_segment()?,
        };
        segment.begun_at.get_or_insert(group.header.at);
        let out = self.buffer.slice(bytes);
        encode_frame(group, segment.salt, out);
        let written = segment.write(out, self.shared.settings.durability);
        let end = segment.used + bytes as u64;
        if written.is_ok() {
            segment.used = end;
        }
        self.segment = Some(segment);
        written?;
        self.tip = Tip::after(&group.header);
        if let Kept::Files(index) = &mut *self.shared.kept() {
            index.stored(group.header.last_at, end);
        }
        Ok(bytes)
    }

    /// Whether a segment has been written to for so long that another is begun: history goes by whole
    /// segments.
    fn is_old(&self, segment: &Segment, group: &Group) -> bool {
        let span = self.shared.settings.segment_span();
        let written = segment.begun_at.map(|begun_at| group.header.at.since(begun_at));
        span.zip(written).is_some_and(|(span, written)| written > span)
    }

    /// Takes a new file into use: it gets its head and, once that is durable, its name.
    pub(super) fn next_segment(&mut self) -> Result<Segment, FileError> {
        let Shared { directory, settings, .. } = &*self.shared;
        let salt = random().context("draw a salt for", directory)?;
        let header = SegmentHeader {
            segno: self.head.segno + 1,
            salt: u64::from_le_bytes(salt),
            tip: self.tip,
            ..self.head
        };
        let spare = self.spares.take()?;
        let path = segment_path(directory, header.segno);
        let (header, segment) = match Segment::create(&spare, &path, header, settings) {
            Ok(created) => created,
            Err(error) => {
                // Unless it has its name already, it can be taken again.
                if spare.exists() {
                    self.spares.put_back(spare);
                }
                return Err(error);
            }
        };
        if let Kept::Files(index) = &mut *self.shared.kept() {
            index.push(SegmentInfo {
                header,
                file_bytes: segment.bytes,
                next_n: header.tip.next_n,
                last_at: header.tip.last_at,
                offsets: Some(vec![segment.used]),
            });
        }
        self.head = header;
        Ok(segment)
    }
}

impl Segment {
    fn create(
        spare: &Path,
        path: &Path,
        header: SegmentHeader,
        settings: &Settings,
    ) -> Result<(SegmentHeader, Self), FileError> {
        let file = open_write(spare)?;
        let bytes = file.metadata().context("look at", spare)?.len();
        let header = SegmentHeader { file_bytes: Some(bytes), ..header };
        file.write_all_at(&header.encode(), 0).context("write", spare)?;
        file.sync_all().context("flush", spare)?;
        rename(spare, path)?;
        let direct =
            settings.durability == Durability::Disk && settings.write_mode == WriteMode::Direct;
        let mut segment = Self {
            file,
            path: path.to_owned(),
            direct: false,
            salt: header.salt,
            used: SEGMENT_HEADER_BYTES as u64,
            bytes,
            begun_at: None,
        };
        if direct {
            segment.go_direct();
        }
        Ok((header, segment))
    }

    /// A frame longer than a segment gets one of its own, which grows.
    fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes as u64 <= self.bytes || self.used == SEGMENT_HEADER_BYTES as u64
    }

    fn write(&mut self, frame: &[u8], durability: Durability) -> Result<(), FileError> {
        let mut written = self.file.write_all_at(frame, self.used);
        if self.direct && written.as_ref().is_err_and(refuses_direct) {
            self.file = open_write(&self.path)?;
            self.direct = false;
            written = self.file.write_all_at(frame, self.used);
        }
        written.context("write", &self.path)?;
        if durability == Durability::Disk && !self.direct {
            self.file.sync_data().context("flush", &self.path)?;
        }
        Ok(())
    }

    /// Writes past the page cache from now on, if the file system can.
    fn go_direct(&mut self) {
        if let Ok(file) = open_direct(&self.path) {
            self.file = file;
            self.direct = true;
        }
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}
