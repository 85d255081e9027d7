//! Overwrites parameters in place, with bytes that leave the group's checksum unchanged. The
//! group's hash and all later groups therefore stay valid.
//!
//! This is possible because the checksum is meant to detect accidental damage, not deliberate
//! changes. Does no I/O. Source: docs/spec/journal.md, "Erasure".

use std::ops::Range;

use crate::frame::{FrameHeader, place_in_frame};
use crate::record::{DecodeError, Record, Records};

/// The minimum length of parameters that can be erased. If the parameters had only four bytes, no
/// other four bytes would give the same checksum.
pub const ERASABLE_BYTES_MIN: usize = PATCH_BYTES + 1;

/// The prefix of erased parameters, unless they are too short to contain it. It is the name of a
/// parameter that look-ups omit.
const HEAD: &[u8] = b"ringwell_visitor=";
/// The byte after the prefix, or the first byte of parameters that are too short for the prefix. No
/// request contains this byte, so look-ups recognize erased parameters regardless of their last
/// four bytes.
const ERASED: u8 = 0xFF;
const PATCH_BYTES: usize = 4;
/// The polynomial of CRC-32C, lowest bit first.
const POLYNOMIAL: u32 = 0x82F6_3B78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index: u32 = 0;
    while index < 256 {
        let mut value = index;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index as usize] = value;
        index += 1;
    }
    table
}

/// Returns the ranges of the parameters in a group's body, for the allocations that `wanted`
/// selects.
///
/// # Errors
/// [`DecodeError`] if the body cannot be read.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
pub fn parameters_in(
    header: &FrameHeader,
    body: &[u8],
    mut wanted: impl FnMut(&Record<'_>, &[u8]) -> bool,
) -> Result<Vec<Range<usize>>, DecodeError> {
    let mut found = Vec::new();
    for record in Records::new(header.group.n, header.group.at, body) {
        let (_, record) = record?;
        let (Record::Allocate { params: [params, _], .. }
        | Record::Carry { params: [params, _], .. }) = record
        else {
            continue;
        };
        if !params.is_empty() && wanted(&record, params) {
            let start = params.as_ptr().addr() - body.as_ptr().addr();
            let range = start..start + params.len();
            assert!(
                body.get(range.clone()) == Some(params),
                "the parameters are not in this part of the body"
            );
            found.push(range);
        }
    }
    Ok(found)
}

/// Overwrites `range` of `body` without changing its checksum. Returns `false` and changes nothing
/// if the range is shorter than [`ERASABLE_BYTES_MIN`] bytes.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
pub fn erase(body: &mut [u8], range: Range<usize>) -> bool {
    if range.len() < ERASABLE_BYTES_MIN {
        return false;
    }
    let sum = crc32c::crc32c(body);
    let after = backward(!sum, &body[range.end..]);
    let at = range.end - PATCH_BYTES;
    let fill = &mut body[range.start..at];
    fill.fill(ERASED);
    if fill.len() > HEAD.len() {
        fill[..HEAD.len()].copy_from_slice(HEAD);
    }
    let before = !crc32c::crc32c(&body[..at]);
    body[at..range.end].copy_from_slice(&bridge(before, after));
    assert!(crc32c::crc32c(body) == sum, "the checksum has changed");
    true
}

/// Returns the pieces of a frame that contain bytes `range` of its body. Each piece is an offset in
/// the frame and the range of the body at that offset.
///
/// # Panics
/// Panics only if an invariant of the journal is broken.
#[must_use]
pub fn pieces(header: &FrameHeader, range: Range<usize>) -> Vec<(usize, Range<usize>)> {
    let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
    let count = range.len();
    for index in range {
        let place = place_in_frame(&header.group, index);
        match pieces.last_mut() {
            Some((start, bytes)) if *start + bytes.len() == place => bytes.end = index + 1,
            _ => pieces.push((place, index..index + 1)),
        }
    }
    let covered: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(covered == count, "the pieces do not cover all bytes");
    pieces
}

/// Returns the checksum state that becomes `state` after `bytes` are processed.
fn backward(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(state, |state, byte| {
        let index = index_of(state);
        ((state ^ TABLE[index]) << 8) | (u32::try_from(index).unwrap_or(0) ^ u32::from(*byte))
    })
}

/// Returns the bytes that change the checksum's state from `from` to `to`.
fn bridge(from: u32, to: u32) -> [u8; PATCH_BYTES] {
    let mut indices = [0; PATCH_BYTES];
    let mut state = to;
    for place in indices.iter_mut().rev() {
        *place = index_of(state);
        state = (state ^ TABLE[*place]) << 8;
    }
    let mut state = from;
    let bytes = indices.map(|index| {
        let byte = state.to_le_bytes()[0] ^ u8::try_from(index).unwrap_or(0);
        state = (state >> 8) ^ TABLE[index];
        byte
    });
    assert!(state == to, "the bytes lead to a different checksum state");
    bytes
}

/// Returns the index of the table entry that was combined (XOR) with the checksum when the last
/// byte was processed. Every entry has a different highest byte.
fn index_of(state: u32) -> usize {
    let highest = state.to_be_bytes()[0];
    TABLE.iter().position(|entry| entry.to_be_bytes()[0] == highest).unwrap_or(0)
}

#[cfg(test)]
mod tests;
