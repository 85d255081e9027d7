//! Walks through one segment frame by frame, and scans the bytes after a bad frame.

use super::{RecoverError, SegmentFile, Segments};
use crate::frame::{BLOCK_BYTES, FrameFault, FrameHeader, decode_body, decode_header, has_stamp};
use crate::segment::{SEGMENT_HEADER_BYTES, encode_end};

/// The number of bytes to read at once. This is enough for several of the largest frames, and for
/// the disk's full throughput.
const READ_AHEAD_BYTES: usize = 4 * 1024 * 1024;

/// The result of reading the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame with correct checksums. Its body is in [`Walk::body`].
    Frame {
        /// The offset of the frame in the file.
        offset: u64,
        /// Its header.
        header: FrameHeader,
    },
    /// There is no frame, or a bad frame. The walk does not advance.
    Fault {
        /// The offset at which the frame should begin.
        offset: u64,
        /// The fault. If nothing was written at `offset`, the segment ends there.
        fault: FrameFault,
    },
}

/// The evidence found in the blocks of a bad frame and in those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// Whether at least one block of the bad frame itself was written.
    pub(super) begun: bool,
    /// The offset and the number of a frame that was written after the bad frame.
    pub(super) newer: Option<(u64, u64)>,
}

/// Reads the frames of one segment in order.
#[derive(Debug)]
pub struct Walk<'s, S> {
    window: Window<'s, S>,
    salt: u64,
    offset: u64,
    body: Vec<u8>,
}

impl<'s, S: Segments> Walk<'s, S> {
    /// Starts at the first frame of the segment.
    pub fn new(store: &'s S, file: SegmentFile, salt: u64) -> Self {
        let offset = SEGMENT_HEADER_BYTES as u64;
        let window = Window { store, file, start: 0, bytes: Vec::new() };
        Self { window, salt, offset, body: Vec::new() }
    }

    /// Reads the frame at the current position, where the frame of group `expected` should be.
    ///
    /// # Errors
    /// Only [`RecoverError::Read`]; damage is returned as a [`Step`].
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    pub fn step(&mut self, expected: u64) -> Result<Step, RecoverError<S::Error>> {
        let offset = self.offset;
        let fault = |fault| Ok(Step::Fault { offset, fault });
        let block = self.window.read(offset, BLOCK_BYTES)?;
        let header = match decode_header(block, self.salt, Some(expected)) {
            Ok(header) => header,
            Err(found) => return fault(found),
        };
        let frame = self.window.read(offset, header.bytes)?;
        if let Err(found) = decode_body(frame, self.salt, &header, &mut self.body) {
            return fault(found);
        }
        self.offset += header.bytes as u64;
        let is_aligned = self.offset.is_multiple_of(BLOCK_BYTES as u64);
        assert!(self.offset > offset && is_aligned, "a frame's length is impossible");
        Ok(Step::Frame { offset, header })
    }

    /// The body of the last frame that was read.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The offset of the next frame, or of the first bad frame.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the end of the file is missing. It is missing if the file is shorter than its
    /// initial length, `made` bytes, and no earlier startup cut the file at the current offset,
    /// before frame `n`.
    pub(super) fn is_short(
        &mut self,
        made: Option<u64>,
        n: u64,
    ) -> Result<bool, RecoverError<S::Error>> {
        let (offset, salt, bytes) = (self.offset, self.salt, self.window.file.bytes);
        let block = self.window.read(offset, BLOCK_BYTES)?;
        let Some(made) = made else {
            // Earlier versions cut files at the end of a frame, without a mark. The first frame of
            // a segment may extend beyond the initial length of the file.
            let header = decode_header(block, salt, Some(n));
            let end = header.map_or(offset, |header| offset + header.bytes as u64);
            let is_first = offset == SEGMENT_HEADER_BYTES as u64;
            return Ok(bytes % BLOCK_BYTES as u64 != 0 || (end > bytes && !is_first));
        };
        let was_cut = bytes == offset + BLOCK_BYTES as u64 && block == encode_end(salt, n);
        Ok(bytes < made && !was_cut)
    }

    /// Examines every block from the current position onward, where the frame of group `n` cannot
    /// be read.
    pub(super) fn scan(&mut self, n: u64) -> Result<Behind, RecoverError<S::Error>> {
        let mut behind = Behind { begun: false, newer: None };
        let mut offset = self.offset;
        for index in 0_u64.. {
            let block = self.window.read(offset, BLOCK_BYTES)?;
            if block.len() < BLOCK_BYTES {
                break;
            }
            behind.begun |= has_stamp(block, self.salt, n, index);
            match decode_header(block, self.salt, None).map(|header| header.group.n) {
                // The bad frame's own header may be intact, but it does not count as a newer frame.
                Ok(there) if index == 0 && there <= n => behind.begun = true,
                Ok(there) if there >= n => {
                    behind.newer = Some((offset, there));
                    break;
                }
                Ok(_) | Err(_) => {}
            }
            offset += BLOCK_BYTES as u64;
        }
        let is_behind = |(at, there)| at >= self.offset && there >= n;
        assert!(behind.newer.is_none_or(is_behind), "the newer frame is not after the bad one");
        Ok(behind)
    }
}

/// The part of a segment that is in memory.
#[derive(Debug)]
struct Window<'s, S> {
    store: &'s S,
    file: SegmentFile,
    start: u64,
    bytes: Vec<u8>,
}

impl<S: Segments> Window<'_, S> {
    /// Returns `len` bytes from `offset` onward, or fewer at the end of the segment.
    fn read(&mut self, offset: u64, len: usize) -> Result<&[u8], RecoverError<S::Error>> {
        let held = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let begin = match held {
            Some(begin) if begin + len <= self.bytes.len() => begin,
            _ => {
                self.fill(offset, len.max(READ_AHEAD_BYTES))?;
                0
            }
        };
        assert!(self.start + begin as u64 == offset, "the window does not contain the offset");
        let end = self.bytes.len().min(begin + len);
        Ok(&self.bytes[begin..end])
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<(), RecoverError<S::Error>> {
        let SegmentFile { segno, bytes } = self.file;
        let left = usize::try_from(bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.start = offset;
        self.bytes.resize(len.min(left), 0);
        let got = self.store.read_at(segno, offset, &mut self.bytes);
        let got = got.map_err(|source| RecoverError::Read { segno, offset, source })?;
        assert!(got <= self.bytes.len(), "more bytes were read than requested");
        self.bytes.truncate(got);
        Ok(())
    }
}
