//! The bits of a [`Position`]: the group's number, and the offset in its body.
//!
//! Positions do not depend on files, because groups may be in segments, in memory or in a
//! replicated log.

use ringwell_core::Position;

/// The maximum length of a group's body in bytes, chosen so that an offset takes [`OFFSET_BITS`]
/// bits.
pub const BODY_BYTES_MAX: usize = 1 << OFFSET_BITS;

const OFFSET_BITS: u32 = 20;

/// All group numbers are lower than this, so that they fit into the remaining bits.
pub(crate) const N_END: u64 = 1 << (u64::BITS - OFFSET_BITS);

/// Returns the position of the record that begins at `offset` in the body of group `n`.
///
/// # Panics
/// Panics if `offset` is too large for any body, or if `n` takes more than 44 bits. The writer
/// keeps both in range.
#[inline]
#[must_use]
pub const fn position(n: u64, offset: usize) -> Position {
    assert!(offset < BODY_BYTES_MAX, "offset outside the body");
    assert!(n < N_END, "group number too large");
    Position(n << OFFSET_BITS | offset as u64)
}

/// Like [`position`] at offset 0, for a group number that has not been checked yet.
pub(crate) const fn start_of(n: u64) -> Position {
    Position(n << OFFSET_BITS)
}

/// Returns the position at `offset` in the body of the group whose first record is at `start`.
///
/// # Panics
/// Panics in the same cases as [`position`].
#[inline]
pub(crate) const fn behind(start: Position, offset: usize) -> Position {
    assert!(offset < BODY_BYTES_MAX, "offset outside the body");
    Position(start.0 | offset as u64)
}

/// Returns the group's number and the offset in its body.
#[inline]
#[must_use]
pub const fn position_parts(position: Position) -> (u64, usize) {
    // The mask leaves 20 bits, which fit in any `usize`.
    #[expect(clippy::cast_possible_truncation, reason = "masked to 20 bits")]
    let offset = (position.0 & (BODY_BYTES_MAX as u64 - 1)) as usize;
    (position.0 >> OFFSET_BITS, offset)
}

#[cfg(test)]
mod tests;
