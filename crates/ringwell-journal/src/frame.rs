//! The format of a group in a file: blocks with stamps, and a header with its own checksum.
//!
//! A frame is a sequence of blocks of [`BLOCK_BYTES`] bytes. Each block begins with a stamp, which
//! is computed from the segment's salt, the group's number and the block's index. The remaining
//! bytes of the blocks together contain the header, the body and zeros. A new salt is drawn each
//! time a file is used, so that an old frame in a recycled file is never mistaken for a new one.
//! The stamps distinguish a frame that was never completely written from a frame that was written
//! and has been damaged since. A power failure leaves frames of the first kind, and none of their
//! answers was sent. Source: docs/spec/journal.md, "Frames".

use std::fmt;

use ringwell_core::Millis;

use crate::bytes::Cursor;
use crate::clocks::{CLOCKS_BYTES, Clocks};
use crate::group::{Group, GroupHeader};

/// Frames begin and end at multiples of this number of bytes. Disks write at least 512 bytes
/// atomically, and file systems and page caches work in units of 4,096 bytes.
pub const BLOCK_BYTES: usize = 4096;

const STAMP_BYTES: usize = 8;
const DATA_BYTES: usize = BLOCK_BYTES - STAMP_BYTES;
/// The size in bytes of a format 2 header, which includes the clocks.
const HEADER_BYTES: usize = PLAIN_HEADER_BYTES + CLOCKS_BYTES;
/// The size in bytes of a format 1 header.
const PLAIN_HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"RPf2";
const PLAIN_MAGIC: [u8; 4] = *b"RPfr";
/// The difference between the stamps of consecutive blocks: 2^64 divided by the golden ratio. It is
/// odd, so that no stamp occurs twice in a frame.
const STAMP_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The header of a frame after it was read and checked: the group's header, and the frame's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The group's header.
    pub group: GroupHeader,
    /// The size of the frame in bytes, a multiple of [`BLOCK_BYTES`].
    pub bytes: usize,
}

/// The reason why there is no usable frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// Part of the frame was never written: a stamp is missing.
    NotWritten,
    /// The frame was written completely, and has changed since.
    Rotten,
}

/// Returns the size of a group's frame in bytes.
#[must_use]
pub const fn frame_bytes(header: &GroupHeader) -> usize {
    (header_bytes(header) + header.body_len as usize).div_ceil(DATA_BYTES) * BLOCK_BYTES
}

const fn header_bytes(header: &GroupHeader) -> usize {
    if header.clocks.is_some() { HEADER_BYTES } else { PLAIN_HEADER_BYTES }
}

/// Returns the position in the frame of body byte `index`.
pub(crate) const fn place_in_frame(header: &GroupHeader, index: usize) -> usize {
    assert!(index < header.body_len as usize, "the body has no such byte");
    let at = header_bytes(header) + index;
    at / DATA_BYTES * BLOCK_BYTES + STAMP_BYTES + at % DATA_BYTES
}

/// Writes the frame of `group` to `out`, which must be [`frame_bytes`] long.
///
/// # Panics
/// Panics if `out` has another length.
pub fn encode_frame(group: &Group, salt: u64, out: &mut [u8]) {
    assert!(
        out.len() == frame_bytes(&group.header),
        "the buffer's length differs from the frame's"
    );
    let body_len = group.body.len();
    assert!(
        body_len == group.header.body_len as usize,
        "the header contains a different body length"
    );
    let mut header = [0; HEADER_BYTES];
    let header = encode_header(&group.header, salt, &mut header);
    let mut body = group.body.as_slice();
    for (index, block) in (0_u64..).zip(out.chunks_exact_mut(BLOCK_BYTES)) {
        let (stamp_bytes, mut data) = block.split_at_mut(STAMP_BYTES);
        stamp_bytes.copy_from_slice(&stamp(salt, group.header.n, index).to_le_bytes());
        if index == 0 {
            let (head, rest) = data.split_at_mut(header.len());
            head.copy_from_slice(header);
            data = rest;
        }
        let (part, rest) = body.split_at(body.len().min(data.len()));
        let (used, padding) = data.split_at_mut(part.len());
        used.copy_from_slice(part);
        padding.fill(0);
        body = rest;
    }
    assert!(body.is_empty(), "the frame has no room for its body");
    let written = FrameHeader { group: group.header, bytes: out.len() };
    assert!(read_header(out, salt) == Some(written), "the header reads back differently");
}

/// Reads and checks the header of the frame that begins with `block`. `expected` is the number of
/// the group that should be there, or `None` if any group is accepted.
///
/// # Errors
/// [`FrameFault`]. Without `expected`, the fault is always [`FrameFault::NotWritten`].
pub fn decode_header(
    block: &[u8],
    salt: u64,
    expected: Option<u64>,
) -> Result<FrameHeader, FrameFault> {
    // If the header's own checksum is right, the header is valid even if the stamp of its block is
    // damaged.
    if let Some(header) = read_header(block, salt) {
        return Ok(header);
    }
    match expected {
        Some(n) if has_stamp(block, salt, n, 0) => Err(FrameFault::Rotten),
        Some(_) | None => Err(FrameFault::NotWritten),
    }
}

/// Replaces the contents of `body` with the body of a complete frame, and verifies its checksum.
///
/// # Errors
/// [`FrameFault`]. `body` then contains the unchecked bytes.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
pub fn decode_body(
    frame: &[u8],
    salt: u64,
    header: &FrameHeader,
    body: &mut Vec<u8>,
) -> Result<(), FrameFault> {
    body.clear();
    let len = header.group.body_len as usize;
    for (index, block) in frame.chunks_exact(BLOCK_BYTES).enumerate() {
        let skip = STAMP_BYTES + if index == 0 { header_bytes(&header.group) } else { 0 };
        let part = (len - body.len()).min(BLOCK_BYTES - skip);
        body.extend_from_slice(&block[skip..skip + part]);
    }
    assert!(body.len() <= len, "more bytes were read than the header specifies");
    // The checksum covers the whole body. If it is right, every block was written, even if a stamp
    // is wrong.
    if body.len() == len && crc32c::crc32c(body) == header.group.body_crc {
        return Ok(());
    }
    // The first block is not checked again: its header could be read, so the block was written.
    let written = (0_u64..)
        .zip(frame.chunks_exact(BLOCK_BYTES))
        .skip(1)
        .all(|(index, block)| has_stamp(block, salt, header.group.n, index));
    Err(if written && frame.len() >= header.bytes {
        FrameFault::Rotten
    } else {
        FrameFault::NotWritten
    })
}

fn stamp(salt: u64, n: u64, index: u64) -> u64 {
    (salt ^ n).wrapping_add(index.wrapping_mul(STAMP_STEP))
}

/// Whether `block` was written as block `index` of group `n`'s frame, even if it has been damaged
/// since.
#[must_use]
pub fn has_stamp(block: &[u8], salt: u64, n: u64, index: u64) -> bool {
    block.starts_with(&stamp(salt, n, index).to_le_bytes())
}

/// Writes the header to the beginning of `out`, and returns the part of `out` that it fills.
fn encode_header<'a>(group: &GroupHeader, salt: u64, out: &'a mut [u8; HEADER_BYTES]) -> &'a [u8] {
    let out = &mut out[..header_bytes(group)];
    out[..4].copy_from_slice(if group.clocks.is_some() { &MAGIC } else { &PLAIN_MAGIC });
    out[4..12].copy_from_slice(&salt.to_le_bytes());
    out[12..20].copy_from_slice(&group.n.to_le_bytes());
    out[20..28].copy_from_slice(&group.epoch.to_le_bytes());
    out[28..36].copy_from_slice(&group.at.0.to_le_bytes());
    out[36..44].copy_from_slice(&group.last_at.0.to_le_bytes());
    out[44..48].copy_from_slice(&group.body_len.to_le_bytes());
    out[48..52].copy_from_slice(&group.body_crc.to_le_bytes());
    out[52..60].copy_from_slice(&group.prev_hash.to_le_bytes());
    if let Some(clocks) = &group.clocks {
        out[60..60 + CLOCKS_BYTES].copy_from_slice(&clocks.encode());
    }
    let end = out.len() - 4;
    let crc = crc32c::crc32c(&out[..end]);
    out[end..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn read_header(block: &[u8], salt: u64) -> Option<FrameHeader> {
    let bytes = block.get(STAMP_BYTES..)?;
    let has_clocks = match bytes.get(..4)? {
        magic if magic == MAGIC => true,
        magic if magic == PLAIN_MAGIC => false,
        _ => return None,
    };
    let header = bytes.get(..if has_clocks { HEADER_BYTES } else { PLAIN_HEADER_BYTES })?;
    let mut cursor = Cursor::new(&header[4..]);
    if cursor.u64()? != salt {
        return None;
    }
    let group = GroupHeader {
        n: cursor.u64()?,
        epoch: cursor.u64()?,
        at: Millis(cursor.u64()?),
        last_at: Millis(cursor.u64()?),
        body_len: cursor.u32()?,
        body_crc: cursor.u32()?,
        prev_hash: cursor.u64()?,
        clocks: if has_clocks { Clocks::decode(cursor.array()?) } else { None },
    };
    let is_intact = cursor.u32()? == crc32c::crc32c(&header[..header.len() - 4]);
    let is_sane = group.is_sane() && group.clocks.is_some() == has_clocks;
    (is_intact && is_sane).then(|| FrameHeader { group, bytes: frame_bytes(&group) })
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWritten => "not wholly written",
            Self::Rotten => "corrupted",
        })
    }
}

impl std::error::Error for FrameFault {}

#[cfg(test)]
mod tests;
