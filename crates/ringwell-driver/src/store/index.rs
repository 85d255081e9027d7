//! The locations of all stored groups. Groups can be read back while others are being stored.
//!
//! The thread that stores groups and the threads that look records up share the index. It is locked
//! for a few instructions per group, and never while a file is read.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_journal::{
    BLOCK_BYTES, FrameHeader, Group, Noted, SEGMENT_HEADER_BYTES, SegmentInfo, decode_body,
    decode_header,
};

use super::Settings;
use super::files::{Access, FileError, Files};
use super::interface::{Damage, Part, Reader};
use super::read_error::ReadError;
use super::segments::segment_path;
use super::stats::Counters;
use super::unflushed::failed;
use crate::canary::{Bug, planted};
use crate::locks::lock;

/// The state that the handles of a journal share with the journal's thread.
#[derive(Debug)]
pub(super) struct Shared<F> {
    pub(super) files: F,
    pub(super) settings: Settings,
    pub(super) directory: PathBuf,
    pub(super) counters: Counters,
    index: Mutex<Index>,
}

/// The segments of a journal, oldest first.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) segments: VecDeque<SegmentInfo>,
    /// For each kept snapshot, newest first: the first frame to replay after it.
    pub(super) snapshots: Vec<u64>,
    /// The snapshots, in the same form, that could not be read at startup. The next snapshot
    /// replaces them.
    pub(super) unusable: Vec<u64>,
}

/// Reads groups back from files.
#[derive(Clone, Debug)]
pub struct JournalReader<F> {
    pub(super) shared: Arc<Shared<F>>,
}

/// The location of a group.
struct GroupLocation {
    segno: u64,
    salt: u64,
    first_n: u64,
    /// The group's offset in the segment; `None` if the segment's frames are not indexed yet.
    offset: Option<u64>,
}

impl<F> Shared<F> {
    /// Fails if a write or flush of the journal or of a snapshot has failed before, so that nothing
    /// more is stored.
    pub(super) fn check_failed(&self) -> Result<(), FileError> {
        if self.counters.have_failed() && !planted(Bug::FailedFlushIgnored) {
            let why = io::Error::other("an earlier write or flush of this journal failed");
            return Err(FileError::new("store in", &self.directory, why));
        }
        Ok(())
    }

    pub(super) fn new(files: F, settings: Settings, directory: PathBuf, index: Index) -> Self {
        Self { files, settings, directory, counters: Counters::new(), index: Mutex::new(index) }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }
}

impl<F: Files> Shared<F> {
    /// Stops the journal after a write or flush has failed, unless it failed because the disk was
    /// full. Returns the error that is to be reported.
    pub(super) fn failed(&self, error: FileError) -> FileError {
        if error.is_full() {
            return error;
        }
        self.counters.failed();
        failed(&self.files, &self.settings, error)
    }

    /// Flushes the segments with groups from `replay_from` on. If replay after the oldest kept
    /// snapshot begins at an earlier group, flushes from that group on. This is necessary with
    /// durability `os`, because these groups may be only in the operating system's cache. Earlier
    /// groups were flushed with that snapshot. If a flush fails, the journal is stopped, because
    /// the next flush would falsely succeed.
    pub(super) fn flush_cached(&self, replay_from: u64) -> Result<(), FileError> {
        if self.settings.durability != Durability::Os {
            return Ok(());
        }
        self.check_failed()?;
        let newer: Vec<u64> = {
            let index = self.index();
            let from = index.snapshots.iter().copied().min().unwrap_or(0).min(replay_from);
            let newer = index.segments.iter().filter(|info| info.next_n >= from);
            newer.map(|info| info.header.segno).collect()
        };
        for segno in newer {
            let file = self.files.open(&segment_path(&self.directory, segno), Access::Write)?;
            self.files.flush_data(&file).map_err(|error| self.failed(error))?;
        }
        Ok(())
    }
}

impl Index {
    /// Returns the number of the group after the last stored one.
    pub(super) fn next_n(&self) -> u64 {
        self.segments.back().map_or(1, |info| info.next_n)
    }

    /// Adds a segment, which becomes the newest one.
    pub(super) fn push(&mut self, info: SegmentInfo) {
        self.segments.push_back(info);
    }

    /// Removes the segment before the newest one if it has no frames and is not `doubted`, and
    /// returns its number.
    pub(super) fn pop_empty(&mut self, doubted: Option<u64>) -> Option<u64> {
        let before = self.segments.len().checked_sub(2)?;
        let SegmentInfo { header, next_n, .. } = self.segments.get(before)?;
        if *next_n != header.tip.next_n || Some(header.segno) == doubted {
            return None;
        }
        self.segments.remove(before).map(|info| info.header.segno)
    }

    /// Records that a frame was stored in the newest segment and ends at `end`.
    pub(super) fn stored(&mut self, last_at: Millis, end: u64) {
        if let Some(info) = self.segments.back_mut() {
            info.next_n += 1;
            info.last_at = last_at;
            info.file_bytes = info.file_bytes.max(end);
            info.offsets.get_or_insert_default().push(end);
        }
    }

    /// Returns the oldest segment if it may be dropped. It must not be in use, and no kept snapshot
    /// may need it. All kept snapshots count, because an older one is used if the newest cannot be
    /// read.
    pub(super) fn oldest(&self) -> Option<Part> {
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1)?;
        let needed = self.snapshots.iter().min()?;
        (oldest.next_n <= *needed).then_some(Part {
            first_n: oldest.header.tip.next_n,
            next_n: oldest.next_n,
            bytes: oldest.file_bytes,
            last_at: oldest.last_at,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|info| info.file_bytes).sum()
    }

    /// Returns the first group of the segment after the one with group `n`.
    fn next_segment(&self, n: u64) -> u64 {
        let after = self.segments.partition_point(|info| info.next_n <= n);
        self.segments.get(after).map_or(n, |info| info.next_n).max(n + 1)
    }

    /// Returns the clock readings in the heads of the segments, newest first.
    pub(super) fn noted(&self) -> impl Iterator<Item = Noted> + Clone {
        self.segments.iter().rev().filter_map(|info| info.header.tip.noted())
    }

    fn find(&self, n: u64) -> Result<GroupLocation, ReadError> {
        if n >= self.next_n() {
            return Err(ReadError::NotYet(n));
        }
        let after = self.segments.partition_point(|info| info.next_n <= n);
        let info = self.segments.get(after).filter(|info| info.header.tip.next_n <= n);
        let info = info.ok_or(ReadError::Gone(n))?;
        let first_n = info.header.tip.next_n;
        let was_dropped = self.segments.front().is_some_and(|info| info.header.tip.next_n > 1);
        let is_off = planted(Bug::GroupOffByOne) && was_dropped && n > first_n;
        let index = usize::try_from(n - first_n - u64::from(is_off)).unwrap_or(usize::MAX);
        let offset = info.offsets.as_ref().and_then(|offsets| offsets.get(index).copied());
        Ok(GroupLocation { segno: info.header.segno, salt: info.header.salt, first_n, offset })
    }
}

impl<F: Files> Reader for JournalReader<F> {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        let place = self.shared.index().find(n)?;
        let result = self.read_file(n, &place);
        if result.is_ok() {
            return result;
        }
        // The file may have been dropped, and even reused, after the index was read.
        let still_there = self.shared.index().find(n);
        still_there.and(result)
    }

    fn noted(&self) -> Vec<Noted> {
        self.shared.index().noted().collect()
    }

    fn unread(&self) -> Range<u64> {
        let index = self.shared.index();
        let first = index.segments.front().map_or(0, |info| info.header.tip.next_n);
        let read = index.segments.iter().find(|info| info.offsets.is_some());
        first..read.map_or(first, |info| info.header.tip.next_n)
    }

    fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
        let mut before = None;
        for n in groups {
            let damage = |error| Damage { error, next_n: self.shared.index().next_segment(n) };
            match self.read(n) {
                Ok(group) if before.is_none_or(|hash| hash == group.header.prev_hash) => {
                    before = Some(group.header.hash());
                }
                Ok(_) => return Err(damage(self.damaged(n))),
                Err(ReadError::Gone(_)) => before = None,
                Err(error) => return Err(damage(error)),
            }
        }
        Ok(())
    }
}

impl<F: Files> JournalReader<F> {
    /// Returns the error that reports group `n` as damaged.
    fn damaged(&self, n: u64) -> ReadError {
        let segno = self.shared.index().find(n).map_or(0, |place| place.segno);
        ReadError::Damaged { n, path: segment_path(&self.shared.directory, segno), offset: 0 }
    }

    fn read_file(&self, n: u64, place: &GroupLocation) -> Result<Group, ReadError> {
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

    /// Determines the frame offsets of a segment that recovery did not need to read.
    fn index_segment(
        &self,
        n: u64,
        place: &GroupLocation,
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
        let mut index = self.shared.index();
        let known = index.segments.iter_mut().find(|info| info.header.segno == place.segno);
        if let Some(info) = known.filter(|info| info.offsets.is_none()) {
            info.offsets = Some(offsets);
        }
        drop(index);
        found.ok_or_else(|| {
            let path = segment_path(&self.shared.directory, place.segno);
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            ReadError::File(FileError::new("find a frame in", &path, error))
        })
    }
}
