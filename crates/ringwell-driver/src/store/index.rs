//! Where each stored group lies, and reading groups back while others are being stored.
//!
//! The index is shared by the thread that stores groups and those that look records up; it is
//! locked for a few instructions a group, never while a file is read.

use std::collections::{VecDeque, vec_deque};
use std::io;
use std::iter::{Map, Rev};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringwell_core::Millis;
use ringwell_journal::{
    BLOCK_BYTES, Clocks, FrameHeader, Group, Record, SEGMENT_HEADER_BYTES, SegmentHeader,
    SegmentInfo, decode_body, decode_header, wall_less_shard, wall_less_shard_at,
};

use super::Settings;
use super::files::{Access, FileError, Files};
use super::memory::Memory;
use super::segments::segment_path;
use super::stats::Counters;

/// What the handles and the thread of one journal share.
#[derive(Debug)]
pub(super) struct Shared<F> {
    pub(super) files: F,
    pub(super) settings: Settings,
    pub(super) directory: PathBuf,
    pub(super) counters: Counters,
    kept: Mutex<Kept>,
}

/// What is kept of the journal.
#[derive(Debug)]
pub(super) enum Kept {
    /// In files.
    Files(Index),
    /// In memory only.
    Memory(Memory),
}

/// The segments of a journal, oldest first.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) segments: VecDeque<SegmentInfo>,
    /// The first frames to replay of the snapshots that are kept, newest first.
    pub(super) snapshots: Vec<u64>,
}

/// Part of the oldest history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRef {
    /// Its number; zero in memory.
    pub segno: u64,
    /// Its first group.
    pub first_n: u64,
    /// The group after its last.
    pub next_n: u64,
    /// How much room it takes.
    pub bytes: u64,
    /// Time of its last record.
    pub last_at: Millis,
}

/// Reads stored groups, from any thread.
#[derive(Clone, Debug)]
pub struct JournalReader<F> {
    pub(super) shared: Arc<Shared<F>>,
}

/// Why a group cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not stored yet.
    #[error("group {0} is not stored yet")]
    NotYet(u64),
    /// It was dropped with the history that is too old.
    #[error("group {0} is no longer kept")]
    Gone(u64),
    /// It was stored and has changed since.
    #[error("group {n} is damaged, in {} at offset {offset}", path.display())]
    Damaged {
        /// The group.
        n: u64,
        /// The segment's file.
        path: PathBuf,
        /// Where it begins.
        offset: u64,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The heads of a journal's segments, newest first.
type Heads<'a> =
    Map<Rev<vec_deque::Iter<'a, SegmentInfo>>, fn(&'a SegmentInfo) -> &'a SegmentHeader>;

/// Where a group lies.
struct Place {
    segno: u64,
    salt: u64,
    first_n: u64,
    /// `None` if the segment's frames are not indexed yet.
    offset: Option<u64>,
}

impl<F> Shared<F> {
    pub(super) fn new(files: F, settings: Settings, directory: PathBuf, kept: Kept) -> Self {
        Self { files, settings, directory, counters: Counters::new(), kept: Mutex::new(kept) }
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        // Each step leaves the index whole, so a panic elsewhere does not spoil it.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The group after the last that is stored.
    pub(super) fn next_n(&self) -> u64 {
        match self {
            Self::Files(index) => index.next_n(),
            Self::Memory(memory) => memory.next_n(),
        }
    }
}

impl Index {
    fn next_n(&self) -> u64 {
        self.segments.back().map_or(1, |info| info.next_n)
    }

    /// A segment was taken into use.
    pub(super) fn push(&mut self, info: SegmentInfo) {
        self.segments.push_back(info);
    }

    /// A frame was stored in the newest segment and ends at `end`.
    pub(super) fn stored(&mut self, last_at: Millis, end: u64) {
        if let Some(info) = self.segments.back_mut() {
            info.next_n += 1;
            info.last_at = last_at;
            info.file_bytes = info.file_bytes.max(end);
            info.offsets.get_or_insert_default().push(end);
        }
    }

    /// The oldest segment, if it may be dropped: it is not in use, and the snapshots that are
    /// kept do not need it. Both of them: if the newer cannot be read, the older is used.
    pub(super) fn oldest(&self) -> Option<SegmentRef> {
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1)?;
        let needed = self.snapshots.iter().min()?;
        (oldest.next_n <= *needed).then_some(SegmentRef {
            segno: oldest.header.segno,
            first_n: oldest.header.tip.next_n,
            next_n: oldest.next_n,
            bytes: oldest.file_bytes,
            last_at: oldest.last_at,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|info| info.file_bytes).sum()
    }

    fn find(&self, n: u64) -> Result<Place, ReadError> {
        if n >= self.next_n() {
            return Err(ReadError::NotYet(n));
        }
        let after = self.segments.partition_point(|info| info.next_n <= n);
        let info = self.segments.get(after).filter(|info| info.header.tip.next_n <= n);
        let info = info.ok_or(ReadError::Gone(n))?;
        let first_n = info.header.tip.next_n;
        let index = usize::try_from(n - first_n).unwrap_or(usize::MAX);
        let offset = info.offsets.as_ref().and_then(|offsets| offsets.get(index).copied());
        Ok(Place { segno: info.header.segno, salt: info.header.salt, first_n, offset })
    }
}

impl<F: Files> JournalReader<F> {
    /// Reads group `n` back and checks it.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read_group(&self, n: u64) -> Result<Group, ReadError> {
        let place = match &*self.shared.kept() {
            Kept::Memory(memory) => return memory.read(n),
            Kept::Files(index) => index.find(n)?,
        };
        let result = self.read_file(n, &place);
        if result.is_ok() {
            return result;
        }
        // The file may have been dropped, and even used again, since the index was asked.
        match &*self.shared.kept() {
            Kept::Files(index) => match index.find(n) {
                Ok(_) => result,
                Err(gone) => Err(gone),
            },
            Kept::Memory(_) => result,
        }
    }

    /// The groups that recovery has not read.
    #[must_use]
    pub fn unread(&self) -> std::ops::Range<u64> {
        match &*self.shared.kept() {
            Kept::Files(index) => {
                let first = index.segments.front().map_or(0, |info| info.header.tip.next_n);
                let read = index.segments.iter().find(|info| info.offsets.is_some());
                first..read.map_or(first, |info| info.header.tip.next_n)
            }
            Kept::Memory(_) => 0..0,
        }
    }

    /// Where the segment after that of group `n` begins.
    #[must_use]
    pub fn next_segment(&self, n: u64) -> u64 {
        match &*self.shared.kept() {
            Kept::Files(index) => {
                let after = index.segments.partition_point(|info| info.next_n <= n);
                index.segments.get(after).map_or(n, |info| info.next_n).max(n + 1)
            }
            Kept::Memory(_) => n + 1,
        }
    }

    /// Says that group `n` is damaged.
    #[must_use]
    pub fn damaged(&self, n: u64) -> ReadError {
        let segno = match &*self.shared.kept() {
            Kept::Files(index) => index.find(n).map_or(0, |place| place.segno),
            Kept::Memory(_) => 0,
        };
        ReadError::Damaged { n, path: segment_path(&self.shared.directory, segno), offset: 0 }
    }

    /// By how much the wall clock was ahead of shard time when it happened what `record` tells of, as
    /// far as is known by now. Its group noted the clocks `group`; `now` are the clocks as they stand.
    #[must_use]
    pub fn wall_less_shard(&self, record: &Record<'_>, group: Option<Clocks>, now: Clocks) -> i64 {
        let then = record.clocks(group);
        match *record {
            Record::Adopt { local_at, .. } => self.wall_less_shard_at(local_at, then, now),
            _ => self.with_heads(|heads| wall_less_shard(then, Some(now), heads)),
        }
    }

    /// The same for the shard time `at`, of which a group tells that noted `then`.
    #[must_use]
    pub fn wall_less_shard_at(&self, at: Millis, then: Option<Clocks>, now: Clocks) -> i64 {
        self.with_heads(|heads| wall_less_shard_at(at, then, Some(now), heads))
    }

    fn with_heads<T>(&self, f: impl FnOnce(Heads<'_>) -> T) -> T {
        let kept = self.shared.kept();
        let segments = match &*kept {
            Kept::Files(index) => Some(&index.segments),
            Kept::Memory(_) => None,
        };
        let none = VecDeque::new();
        let head: fn(&SegmentInfo) -> &SegmentHeader = |info| &info.header;
        f(segments.unwrap_or(&none).iter().rev().map(head))
    }

    fn read_file(&self, n: u64, place: &Place) -> Result<Group, ReadError> {
        let path = segment_path(&self.shared.directory, place.segno);
        let files = &self.shared.files;
        let file = files.open(&path, Access::Read)?;
        let read =
            |offset, out: &mut [u8]| files.read_at(&file, offset, out).map_err(ReadError::File);
        let offset = match place.offset {
            Some(offset) => offset,
            None => self.index_segment(n, place, read)?,
        };
        let damaged = || ReadError::Damaged { n, path: path.clone(), offset };
        let mut frame = vec![0; BLOCK_BYTES];
        let got = read(offset, &mut frame)?;
        let header = decode_header(&frame[..got], place.salt, Some(n)).map_err(|_| damaged())?;
        frame.resize(header.bytes, 0);
        let rest = offset + BLOCK_BYTES as u64;
        if header.bytes > BLOCK_BYTES {
            let got = read(rest, &mut frame[BLOCK_BYTES..])?;
            frame.truncate(BLOCK_BYTES + got);
        }
        let mut body = Vec::new();
        decode_body(&frame, place.salt, &header, &mut body).map_err(|_| damaged())?;
        if header.group.n == n { Ok(Group { header: header.group, body }) } else { Err(damaged()) }
    }

    /// Finds out where the frames of a segment begin that recovery did not have to read.
    fn index_segment(
        &self,
        n: u64,
        place: &Place,
        read: impl Fn(u64, &mut [u8]) -> Result<usize, ReadError>,
    ) -> Result<u64, ReadError> {
        let mut offsets = vec![SEGMENT_HEADER_BYTES as u64];
        let mut block = [0; BLOCK_BYTES];
        for offset in 0.. {
            let offset = offsets[offset];
            let got = read(offset, &mut block)?;
            let Ok(FrameHeader { bytes, .. }) = decode_header(&block[..got], place.salt, None)
            else {
                break;
            };
            offsets.push(offset + bytes as u64);
        }
        let index = usize::try_from(n - place.first_n).unwrap_or(usize::MAX);
        // The last offset is where the frames end.
        let found = offsets[..offsets.len() - 1].get(index).copied();
        if let Kept::Files(index) = &mut *self.shared.kept() {
            let known = index.segments.iter_mut().find(|info| info.header.segno == place.segno);
            if let Some(info) = known.filter(|info| info.offsets.is_none()) {
                info.offsets = Some(offsets);
            }
        }
        found.ok_or_else(|| {
            let path = segment_path(&self.shared.directory, place.segno);
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            ReadError::File(FileError::new("find a frame in", &path, error))
        })
    }
}
