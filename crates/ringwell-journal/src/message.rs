//! A group as one message of a log that machines share.
//!
//! The message names its shard and journal, and the process that wrote it, and carries the group's
//! header and body under their checksums. The group's number is the message's place in the log.
//! Source: docs/spec/log.md.

use std::fmt;

use ringwell_core::Millis;

use crate::bytes::Cursor;
use crate::clocks::{CLOCKS_BYTES, Clocks};
use crate::group::{Group, GroupHeader};
use crate::place::BODY_BYTES_MAX;

const MAGIC: [u8; 4] = *b"RPm1";
const HEADER_BYTES: usize = 120;

/// Bytes that the longest message takes.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;

/// The sender of a message, and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    /// The shard.
    pub shard: u32,
    /// The journal's identity, drawn when its first group was made.
    pub journal: [u8; 16],
    /// The process, drawn when it opened the shard.
    pub incarnation: [u8; 16],
}

/// The reason why a message cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// It is not a Ringwell message, or comes from a newer version.
    Foreign,
    /// It has changed since it was written.
    Damaged,
}

/// Writes the message of a group.
///
/// # Panics
/// Never: the header has one length.
#[must_use]
pub fn encode_message(author: &Author, group: &Group) -> Vec<u8> {
    let header = &group.header;
    let mut out = Vec::with_capacity(HEADER_BYTES + group.body.len());
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
    // Clocks of no boot stand for none.
    let clocks = header.clocks.map_or([0; CLOCKS_BYTES], |clocks| clocks.encode());
    out.extend_from_slice(&clocks);
    // The packing of the body: none.
    out.extend_from_slice(&0_u32.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    assert!(out.len() == HEADER_BYTES, "a message's header has another length");
    out.extend_from_slice(&group.body);
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
    let (author, group) = read_header(head).ok_or(MessageFault::Damaged)?;
    if body.len() != group.body_len as usize || crc32c::crc32c(body) != group.body_crc {
        return Err(MessageFault::Damaged);
    }
    Ok((author, Group { header: group, body: body.to_vec() }))
}

fn read_header(head: &[u8]) -> Option<(Author, GroupHeader)> {
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
    let is_plain = cursor.u32()? == 0;
    let is_intact = cursor.u32()? == crc32c::crc32c(&head[..HEADER_BYTES - 4]);
    (is_intact && is_plain && header.is_sane()).then_some((author, header))
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "it was not written by this version of Ringwell",
            Self::Damaged => "it has changed since it was written",
        })
    }
}

impl std::error::Error for MessageFault {}

#[cfg(test)]
mod tests;
