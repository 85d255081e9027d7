//! Stores groups as frames. Frames are written and flushed one at a time.
//!
//! Invariant: groups are stored in order and without gaps. After any failure other than a full
//! disk, nothing more may be stored, because the contents of the disk are unknown. After a failed
//! flush, the operating system marks the pages as clean, so a second flush would falsely succeed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_journal::{
    Group, GroupHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentInfo, Tip, encode_frame,
    frame_bytes, salt,
};

use super::aligned::AlignedBuffer;
use super::files::{Access, FileError, Files, rename};
use super::index::Shared;
use super::segments::segment_path;
use super::spares::Spares;
use super::{Settings, WriteMode};
use crate::canary::{Bug, planted};

/// Stores the groups of one shard.
#[derive(Debug)]
pub struct Frames<F: Files> {
    pub(super) shared: Arc<Shared<F>>,
    pub(super) spares: Arc<Spares<F>>,
    /// Contains the shard, the journal, and the number of the newest segment. The other fields are
    /// set for each segment.
    pub(super) head: SegmentHeader,
    /// A random number chosen for this startup; see [`SegmentHeader::start`].
    pub(super) start: u64,
    /// The end of the stored journal.
    pub(super) tip: Tip,
    pub(super) segment: Option<Segment<F::File>>,
    pub(super) buffer: AlignedBuffer,
    /// The frame that was written but not yet flushed.
    pub(super) written: Option<Written>,
}

/// A frame that was written but not yet flushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    header: GroupHeader,
    bytes: usize,
    begun: Duration,
}

/// The segment to which frames are written.
#[derive(Debug)]
pub(super) struct Segment<T> {
    file: T,
    path: PathBuf,
    salt: u64,
    used: u64,
    bytes: u64,
    /// The time of the segment's first record.
    begun_at: Option<Millis>,
}

impl<F: Files> Frames<F> {
    /// Stores a group, which is as durable as configured when this function returns.
    ///
    /// # Errors
    /// [`FileError`]. If [`FileError::is_full`] is true, storing the same group may be tried again.
    /// Otherwise, nothing may be stored any more.
    pub fn store(&mut self, group: &Group) -> Result<(), FileError> {
        self.write(group)?;
        self.flush()
    }

    /// Writes the frame of a group, which [`Self::flush`] makes durable.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::store`].
    pub fn write(&mut self, group: &Group) -> Result<(), FileError> {
        self.shared.check_failed()?;
        self.write_frame(group).map_err(|error| self.shared.failed(error))
    }

    fn write_frame(&mut self, group: &Group) -> Result<(), FileError> {
        let begun = self.shared.files.moment();
        let bytes = frame_bytes(&group.header);
        let mut segment = match self.segment.take() {
            Some(segment) if segment.has_room(bytes) && !self.is_old(&segment, group) => segment,
            Some(_) | None => self.next_segment()?,
        };
        segment.begun_at.get_or_insert(group.header.at);
        let out = self.buffer.slice(bytes);
        encode_frame(group, segment.salt, out);
        let written = self.shared.files.write_at(&mut segment.file, segment.used, out);
        let written = written.map_err(|error| error.of(&segment.path));
        self.segment = Some(segment);
        written?;
        self.written = Some(Written { header: group.header, bytes, begun });
        Ok(())
    }

    /// Makes the written frame as durable as configured.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::store`].
    pub fn flush(&mut self) -> Result<(), FileError> {
        let Some((written, segment)) = self.written.take().zip(self.segment.as_mut()) else {
            return Ok(());
        };
        let Shared { files, settings, counters, .. } = &*self.shared;
        if settings.durability == Durability::Disk {
            let mut flushed = files.flush_data(&segment.file);
            if flushed.is_err() && planted(Bug::FlushAgain) {
                flushed = files.flush_data(&segment.file);
            }
            flushed.map_err(|error| self.shared.failed(error.of(&segment.path)))?;
        }
        let Written { header, bytes, begun } = written;
        segment.used += bytes as u64;
        self.tip = Tip::after(&header);
        self.shared.index().stored(header.last_at, segment.used);
        let took = files.moment().saturating_sub(begun);
        let body_bytes = usize::try_from(header.body_len).unwrap_or(usize::MAX);
        counters.stored(body_bytes, bytes, took);
        Ok(())
    }

    /// Whether a segment has been in use for so long that a new one must begin. This limits the age
    /// of a segment, because history is dropped in whole segments.
    fn is_old(&self, segment: &Segment<F::File>, group: &Group) -> bool {
        let span = self.shared.settings.segment_span();
        let written = segment.begun_at.map(|begun_at| group.header.at.since(begun_at));
        span.zip(written).is_some_and(|(span, written)| written > span)
    }

    /// Begins a new segment: writes its head to a spare file and, once the head is durable, gives
    /// the file its final name.
    pub(super) fn next_segment(&mut self) -> Result<Segment<F::File>, FileError> {
        let Shared { files, directory, settings, .. } = &*self.shared;
        let segno = self.head.segno + 1;
        let salt = if planted(Bug::OneSalt) { 7 } else { salt(self.start, segno) };
        let header = SegmentHeader { segno, salt, tip: self.tip, ..self.head };
        let spare = self.spares.take()?;
        let path = segment_path(directory, header.segno);
        let (header, segment) = match create(files, &spare, &path, header, settings) {
            Ok(created) => created,
            Err(error) => {
                // The file can be used again, unless it already has its final name.
                if files.exists(&spare) {
                    self.spares.put_back(spare);
                }
                return Err(error);
            }
        };
        self.shared.index().push(SegmentInfo {
            header,
            file_bytes: segment.bytes,
            next_n: header.tip.next_n,
            last_at: header.tip.last_at,
            offsets: Some(vec![segment.used]),
        });
        self.head = header;
        Ok(segment)
    }
}

/// Makes a spare file the segment at `path`.
fn create<F: Files>(
    files: &F,
    spare: &Path,
    path: &Path,
    header: SegmentHeader,
    settings: &Settings,
) -> Result<(SegmentHeader, Segment<F::File>), FileError> {
    let mut file = files.open(spare, Access::Write)?;
    let bytes = files.len(&file)?;
    let header = SegmentHeader { file_bytes: Some(bytes), ..header };
    files.write_at(&mut file, 0, &header.encode())?;
    files.flush(&file)?;
    rename(files, spare, path)?;
    if settings.durability == Durability::Disk && settings.write_mode == WriteMode::Direct {
        // Falls back to the page cache if the file system does not support direct writes.
        file = files.open(path, Access::Direct).unwrap_or(file);
    }
    let (used, path) = (SEGMENT_HEADER_BYTES as u64, path.to_owned());
    Ok((header, Segment { file, path, salt: header.salt, used, bytes, begun_at: None }))
}

impl<T> Segment<T> {
    /// Whether a frame fits. A frame longer than a segment gets a segment of its own, which grows.
    fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes as u64 <= self.bytes || self.used == SEGMENT_HEADER_BYTES as u64
    }
}
