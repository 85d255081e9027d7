//! The format of a group as one message, in a log that several machines share.
//!
//! The message names its shard, its journal and the process that wrote it. It contains the group's
//! header and body with their checksums. The group's number normally equals the message's place in
//! the log, counted from 1. Source: docs/spec/log.md.

mod packing;

use std::fmt;

use ringwell_core::Millis;

use crate::bytes::Cursor;
use crate::clocks::{CLOCKS_BYTES, Clocks};
use crate::group::{Group, GroupHeader};
use crate::place::BODY_BYTES_MAX;

pub use packing::Packer;
use packing::{PLAIN, ZSTD, unpack};

const MAGIC: [u8; 4] = *b"RPm1";
/// The number of bytes of [`MAGIC`] that all versions share.
const MARK_BYTES: usize = 3;
const HEADER_BYTES: usize = 120;

/// The length of the longest message.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;

/// A message's sender, and the shard whose journal the message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    /// The shard.
    pub shard: u32,
    /// The journal's identity: a random value that was generated when the journal's first group was
    /// created.
    pub journal: [u8; 16],
    /// The process's identity: a random value that was generated when the process opened the shard.
    pub incarnation: [u8; 16],
}

/// The reason why a message cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// The message is not from Ringwell, or is from a newer version.
    Foreign,
    /// The message has changed since it was written.
    Damaged,
}

/// Encodes a group as a message whose body is not compressed.
#[must_use]
pub fn encode_message(author: &Author, group: &Group) -> Vec<u8> {
    encode(author, &group.header, PLAIN, &group.body)
}

/// Encodes a group as a message. The body is compressed if the compressed form is shorter.
#[must_use]
pub fn encode_packed_message(packer: &mut Packer, author: &Author, group: &Group) -> Vec<u8> {
    match packer.pack(&group.body) {
        Some(shorter) => encode(author, &group.header, ZSTD, &shorter),
        None => encode_message(author, group),
    }
}

fn encode(author: &Author, header: &GroupHeader, packing: u32, body: &[u8]) -> Vec<u8> {
    let is_whole = packing != PLAIN || body.len() == header.body_len as usize;
    assert!(
        is_whole && body.len() <= BODY_BYTES_MAX,
        "the body's length differs from the header's, or exceeds the limit"
    );
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&author.shard.to_le_bytes());
    out.extend_from_slice(&author.journal);
    out.extend_from_slice(&author.incarnation);
    for wide in [header.n, header.epoch, header.at.0, header.last_at.0] {
        out.extend_from_slice(&wide.to_le_bytes());
    }
    out.extend_from_slice(&header.body_len.to_le_bytes());
    out.extend_from_slice(&header.body_crc.to_le_bytes());
    out.extend_from_slice(&header.prev_hash.to_le_bytes());
    // A boot of zero means that the group has no clocks.
    let clocks = header.clocks.map_or([0; CLOCKS_BYTES], |clocks| clocks.encode());
    out.extend_from_slice(&clocks);
    out.extend_from_slice(&packing.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    assert!(out.len() == HEADER_BYTES, "a message's header has the wrong length");
    let written = (*author, *header, packing);
    assert!(read_header(&out) == Some(written), "a message's header reads back differently");
    out.extend_from_slice(body);
    out
}

/// Reads a message and checks it.
///
/// # Errors
/// [`MessageFault`]
pub fn decode_message(bytes: &[u8]) -> Result<(Author, Group), MessageFault> {
    let (head, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(MessageFault::Foreign)?;
    if head[..4] != MAGIC {
        return Err(MessageFault::Foreign);
    }
    let (author, header, packing) = read_header(head).ok_or(MessageFault::Damaged)?;
    let body_len = usize::try_from(header.body_len).map_err(|_| MessageFault::Damaged)?;
    let body = match packing {
        PLAIN => body.to_vec(),
        ZSTD if cfg!(feature = "zstd") => unpack(body, body_len).ok_or(MessageFault::Damaged)?,
        _ => return Err(MessageFault::Foreign),
    };
    if body.len() != body_len || crc32c::crc32c(&body) != header.body_crc {
        return Err(MessageFault::Damaged);
    }
    Ok((author, Group { header, body }))
}

/// Whether the message cannot have been written by a process that served `shard`. Returns `true` if
/// the message does not begin with the bytes that all versions share, or if its header is intact
/// and names another shard.
#[must_use]
pub fn is_foreign_message(bytes: &[u8], shard: u32) -> bool {
    let is_of_other = |(author, _): (Author, _)| author.shard != shard;
    !bytes.starts_with(&MAGIC[..MARK_BYTES]) || intact_header(bytes).is_some_and(is_of_other)
}

/// Returns the group number in a message, if the message's header is intact.
#[must_use]
pub fn message_number(bytes: &[u8]) -> Option<u64> {
    intact_header(bytes).map(|(_, header)| header.n)
}

fn intact_header(bytes: &[u8]) -> Option<(Author, GroupHeader)> {
    let (head, _) = bytes.split_at_checked(HEADER_BYTES)?;
    let (author, header, _) = read_header(head).filter(|_| head[..4] == MAGIC)?;
    Some((author, header))
}

fn read_header(head: &[u8]) -> Option<(Author, GroupHeader, u32)> {
    let mut cursor = Cursor::new(&head[4..]);
    let author =
        Author { shard: cursor.u32()?, journal: cursor.array()?, incarnation: cursor.array()? };
    let header = GroupHeader {
        n: cursor.u64()?,
        epoch: cursor.u64()?,
        at: Millis(cursor.u64()?),
        last_at: Millis(cursor.u64()?),
        body_len: cursor.u32()?,
        body_crc: cursor.u32()?,
        prev_hash: cursor.u64()?,
        clocks: Clocks::decode(cursor.array()?),
    };
    let packing = cursor.u32()?;
    let is_intact = cursor.u32()? == crc32c::crc32c(&head[..HEADER_BYTES - 4]);
    (is_intact && header.is_sane()).then_some((author, header, packing))
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "this version of Ringwell cannot read it",
            Self::Damaged => "it has changed since it was written",
        })
    }
}

impl std::error::Error for MessageFault {}

#[cfg(test)]
mod tests;
