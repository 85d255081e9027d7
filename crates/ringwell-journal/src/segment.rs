//! A segment's head, which identifies the journal and the part of it that the segment contains.
//!
//! The head is the first block of the segment's file, and frames follow. Files are reused for later
//! segments. The head of each segment therefore contains a different salt, which distinguishes the
//! segment's frames from older frames in the file. The salt also identifies the startup of the
//! process that began the segment. Source: docs/spec/journal.md, "Segments".

use std::fmt;

use ringwell_core::Millis;

use crate::bytes::Cursor;
use crate::clocks::{CLOCKS_BYTES, Clocks};
use crate::frame::BLOCK_BYTES;
use crate::group::Tip;

/// The size of a segment's head in bytes; the first frame follows.
pub const SEGMENT_HEADER_BYTES: usize = BLOCK_BYTES;

/// The format that this version writes, which is also the newest format that it reads. Format 1 did
/// not record clock offsets.
pub const FORMAT_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"RPsegmnt";
const FIELDS_BYTES: usize = PLAIN_FIELDS_BYTES + CLOCKS_BYTES;
const PLAIN_FIELDS_BYTES: usize = 80;
const END_MAGIC: [u8; 8] = *b"RPsegend";

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The shard to which the journal belongs.
    pub shard: u32,
    /// The journal's identity: a random value that was generated when the journal was created. It
    /// distinguishes the segments of different journals.
    pub journal: [u8; 16],
    /// The number of the segment, counted from one. The file is named after it.
    pub segno: u64,
    /// Distinguishes the segment's frames from older frames in the file. The value was computed by
    /// [`salt`] when the segment was created.
    pub salt: u64,
    /// The end of the journal just before the segment's first frame. `tip.next_n` is the number of
    /// the first frame.
    pub tip: Tip,
    /// The length of the file when it was first used for this segment. The file may be shortened
    /// only after the block that [`encode_end`] returns has been written. `None` if the head was
    /// written by a version that did not record the length.
    pub file_bytes: Option<u64>,
}

/// The reason why the first block is not a valid head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentFault {
    /// The block does not begin with the magic bytes of a head.
    Magic,
    /// The block's checksum is wrong.
    Checksum,
    /// The block was written by a newer version of the program.
    Version(u32),
    /// The block's checksum is right, but no group can have the number or the epoch that the block
    /// contains.
    Tip,
}

/// Returns the salt of segment `segno`, which was created by the startup that drew the random value
/// `start`. A frame's stamps combine the salt with the group's number. The salts of one startup
/// therefore differ in bits that group numbers do not use.
#[must_use]
pub const fn salt(start: u64, segno: u64) -> u64 {
    // The final mixing step of splitmix64, by Sebastiano Vigna.
    let mixed = (segno ^ (segno >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    start ^ mixed ^ (mixed >> 31)
}

impl SegmentHeader {
    /// The random value of the startup that began the segment. Older releases drew a random salt
    /// for each segment, so each of their segments seems to come from a different startup.
    #[must_use]
    pub const fn start(&self) -> u64 {
        salt(self.salt, self.segno)
    }

    /// Returns the block that begins the segment.
    ///
    /// # Panics
    /// Panics only if an invariant of the journal is broken.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut fields = Vec::with_capacity(FIELDS_BYTES + 4);
        fields.extend_from_slice(&MAGIC);
        fields.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        fields.extend_from_slice(&self.shard.to_le_bytes());
        fields.extend_from_slice(&self.journal);
        fields.extend_from_slice(&self.segno.to_le_bytes());
        fields.extend_from_slice(&self.salt.to_le_bytes());
        fields.extend_from_slice(&self.tip.next_n.to_le_bytes());
        fields.extend_from_slice(&self.tip.prev_hash.to_le_bytes());
        fields.extend_from_slice(&self.tip.epoch.to_le_bytes());
        fields.extend_from_slice(&self.tip.last_at.0.to_le_bytes());
        let clocks = self.tip.clocks.map_or([0; CLOCKS_BYTES], |clocks| clocks.encode());
        fields.extend_from_slice(&clocks);
        fields.extend_from_slice(&crc32c::crc32c(&fields).to_le_bytes());
        if let Some(bytes) = self.file_bytes {
            fields.extend_from_slice(&bytes.to_le_bytes());
            fields.extend_from_slice(&crc32c::crc32c(&fields).to_le_bytes());
        }
        let mut block = [0; SEGMENT_HEADER_BYTES];
        block[..fields.len()].copy_from_slice(&fields);
        assert!(Self::decode(&block) == Ok(*self), "the head reads back differently");
        block
    }

    /// Reads and checks the first block of a segment.
    ///
    /// # Errors
    /// [`SegmentFault`] names the first rule that the block breaks.
    pub fn decode(block: &[u8]) -> Result<Self, SegmentFault> {
        Self::fields(block).ok_or(SegmentFault::Magic)?
    }

    /// Returns `None` if the block is too short or does not begin with the magic bytes.
    fn fields(block: &[u8]) -> Option<Result<Self, SegmentFault>> {
        let mut cursor = Cursor::new(block.get(..PLAIN_FIELDS_BYTES + 4)?);
        if cursor.array()? != MAGIC {
            return None;
        }
        let version = cursor.u32()?;
        let fields_bytes = if version == 1 { PLAIN_FIELDS_BYTES } else { FIELDS_BYTES };
        let fields = block.get(..fields_bytes)?;
        let mut cursor = Cursor::new(block);
        cursor.slice(MAGIC.len() + 4)?;
        let header = Self {
            shard: cursor.u32()?,
            journal: cursor.array()?,
            segno: cursor.u64()?,
            salt: cursor.u64()?,
            tip: Tip {
                next_n: cursor.u64()?,
                prev_hash: cursor.u64()?,
                epoch: cursor.u64()?,
                last_at: Millis(cursor.u64()?),
                clocks: if version == 1 { None } else { Clocks::decode(cursor.array()?) },
            },
            file_bytes: None,
        };
        if cursor.u32()? != crc32c::crc32c(fields) {
            return Some(Err(SegmentFault::Checksum));
        }
        if !(1..=FORMAT_VERSION).contains(&version) {
            return Some(Err(SegmentFault::Version(version)));
        }
        if !header.tip.is_sane() {
            return Some(Err(SegmentFault::Tip));
        }
        Some(
            Self::read_length(block, fields_bytes + 4)
                .map(|file_bytes| Self { file_bytes, ..header }),
        )
    }

    /// Reads the length of the file, which follows the other fields and has its own checksum. Heads
    /// that earlier versions wrote contain zeros there.
    fn read_length(block: &[u8], at: usize) -> Result<Option<u64>, SegmentFault> {
        let Some(length) = block.get(at..).and_then(|rest| rest.first_chunk::<12>()) else {
            return Ok(None);
        };
        let [bytes @ .., c0, c1, c2, c3] = *length;
        if length.iter().all(|byte| *byte == 0) {
            Ok(None)
        } else if u32::from_le_bytes([c0, c1, c2, c3]) == crc32c::crc32c(&block[..at + 8]) {
            Ok(Some(u64::from_le_bytes(bytes)))
        } else {
            Err(SegmentFault::Checksum)
        }
    }
}

/// Returns the block that marks a segment's end when its file is cut before frame `n`. The block
/// replaces the first block of frame `n`, which was never completely written. The caller then
/// truncates the file after this block.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
#[must_use]
pub fn encode_end(salt: u64, n: u64) -> [u8; BLOCK_BYTES] {
    assert!(n > 0, "group numbers start at one");
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&END_MAGIC);
    block[8..16].copy_from_slice(&salt.to_le_bytes());
    block[16..24].copy_from_slice(&n.to_le_bytes());
    let crc = crc32c::crc32c(&block[..24]);
    block[24..28].copy_from_slice(&crc.to_le_bytes());
    block
}

impl fmt::Display for SegmentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("its first block is not the head of a segment"),
            Self::Checksum => f.write_str("the checksum of its first block is wrong"),
            Self::Version(version) => write!(
                f,
                "its format has version {version}; this program reads versions 1 to {FORMAT_VERSION}"
            ),
            Self::Tip => {
                f.write_str("its first block contains an impossible frame number or epoch")
            }
        }
    }
}

impl std::error::Error for SegmentFault {}

#[cfg(test)]
mod tests;
