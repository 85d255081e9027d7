//! One record (an event of a promo number, a pool or a row) and its encoding.
//!
//! A record is a kind byte and a flags byte, then varints and fixed fields without alignment. Times
//! are encoded relative to the group's first record, `previous` as a distance in groups, so an
//! `Allocate` takes about twenty bytes before its parameters. Invariant: [`Records`] reads every
//! record back exactly as [`Record::encode`] wrote it. Source: docs/spec/journal.md, "Records".

mod decode;
mod encode;

pub use decode::{DecodeError, DecodeFault, Records};

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use crate::bytes::Scratch;
use crate::clocks::Clocks;

/// The longest parameters of one record: both slices and the `&` between them.
pub const PARAMS_BYTES_MAX: usize = 16 * 1024;

/// The maximum number of bytes of a record without its parameters.
pub const RECORD_OVERHEAD_MAX: usize = Scratch::BYTES;

/// One row of a repeatable batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Digest of the client's idempotency key.
    pub batch: [u8; 16],
    /// The index of the row in the batch.
    pub row: u16,
}

/// An event of a shard, at `at` in shard time.
///
/// `slot` is a hint: the index of the number in the shard when the record was written. `previous`
/// is the previous record of the same number, so that a number's history is a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A number was handed out.
    Allocate {
        /// The time.
        at: Millis,
        /// The pool that it came from.
        pool: PoolId,
        /// Index of the number in the shard.
        slot: u32,
        /// The number.
        number: PromoNumber,
        /// Length of the lockout that begins at `at`.
        lockout: Millis,
        /// The previous record of this number, or [`Position::NONE`].
        previous: Position,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// The row that gets the same answer if it is repeated.
        idempotency: Option<RowKey>,
        /// Raw parameters: both slices with an `&` between them if neither is empty. When read
        /// back, they are a single first slice. At most [`PARAMS_BYTES_MAX`] bytes together.
        params: [&'a [u8]; 2],
    },
    /// A visitor returned and keeps the number.
    Extend {
        /// The time.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// Index of the number in the shard.
        slot: u32,
        /// The new end of the lockout.
        until: Millis,
        /// The previous record of this number.
        previous: Position,
        /// An earlier record of the same allocation, so that a look-up need not read all the
        /// keep-alives in between; [`Position::NONE`] if that is `previous`.
        allocation: Position,
    },
    /// A lockout ended early.
    Release {
        /// The time.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// Index of the number in the shard.
        slot: u32,
        /// The new end of the lockout.
        until: Millis,
        /// The previous record of this number.
        previous: Position,
        /// The allocation that is the number's newest again, because no visitor saw the one after
        /// it. `previous` then leads past the undone allocation.
        restored: Option<Restored>,
        /// The row that the allocation was made for: if the row is repeated, it gets a new answer.
        forgotten: Option<RowKey>,
    },
    /// A row of a repeatable batch was answered without a new allocation.
    Answer {
        /// The time.
        at: Millis,
        /// The requested pool.
        pool: PoolId,
        /// The row.
        row: RowKey,
        /// The number that its visitor already held; `None` for the pool's overflow number.
        number: Option<PromoNumber>,
    },
    /// A copy of an allocation that is still its number's newest, made because its segment is about
    /// to be dropped.
    Carry {
        /// The time when the copy was made.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// Index of the number in the shard.
        slot: u32,
        /// The pool that it was handed out from.
        pool: PoolId,
        /// The time when it was handed out.
        allocated_at: Millis,
        /// The time when its lockout ends.
        locked_until: Millis,
        /// The clocks of the original allocation's group; `None` if that was of format 1.
        clocks: Option<Clocks>,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// Raw parameters, as in `Allocate`.
        params: [&'a [u8]; 2],
    },
    /// A number's newest allocation, reported by another shard that had the number before. The
    /// allocation's own record, with the parameters, stays in that shard's journal.
    Adopt {
        /// The time when this shard took it over.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// The pool that it was handed out from.
        pool: PoolId,
        /// The time when it was handed out.
        allocated_at: Millis,
        /// The time when its lockout ends.
        locked_until: Millis,
        /// The time of the allocation by this node's clock, which comparisons use.
        local_at: Millis,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// The previous record of this number in this journal, or [`Position::NONE`].
        previous: Position,
    },
    /// Nothing is handed out before `until`, because part of the history is in doubt.
    Hold {
        /// The time.
        at: Millis,
        /// The pool, or all pools of the shard.
        pool: Option<PoolId>,
        /// The time when numbers are handed out again.
        until: Millis,
    },
    /// Time passed without other events: keeps the clock's high-water mark current.
    Tick {
        /// The time.
        at: Millis,
    },
}

/// An earlier allocation that becomes a number's newest again, because no visitor has seen the
/// later one. All fields are zero if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The time when it was made.
    pub allocated_at: Millis,
    /// The same time by this node's clock, which comparisons use.
    pub local_at: Millis,
    /// The time when its lockout ended.
    pub locked_until: Millis,
}

/// First byte of each record.
mod kind {
    pub(super) const ALLOCATE: u8 = 1;
    pub(super) const EXTEND: u8 = 2;
    pub(super) const RELEASE: u8 = 3;
    pub(super) const ANSWER: u8 = 4;
    pub(super) const CARRY: u8 = 5;
    pub(super) const HOLD: u8 = 6;
    pub(super) const TICK: u8 = 7;
    pub(super) const ADOPT: u8 = 8;
}

/// Second byte of each record: the optional fields that are present.
mod flag {
    pub(super) const PREVIOUS: u8 = 1;
    pub(super) const VISITOR: u8 = 1 << 1;
    pub(super) const IDEMPOTENCY: u8 = 1 << 2;
    pub(super) const PARAMS: u8 = 1 << 3;
    pub(super) const NUMBER: u8 = 1 << 4;
    /// Flag of a `Hold`.
    pub(super) const POOL: u8 = 1 << 5;
    /// Flag of the other records with a number: its code has seven bytes instead of five.
    pub(super) const LONG_NUMBER: u8 = 1 << 5;
    /// Flag of a `Release`.
    pub(super) const RESTORED: u8 = 1 << 6;
    /// Flag of a `Carry`.
    pub(super) const CLOCKS: u8 = 1 << 6;
    pub(super) const ALLOCATION: u8 = 1 << 7;
}

impl Record<'_> {
    /// The time of the event, in shard time.
    #[inline]
    #[must_use]
    pub fn at(&self) -> Millis {
        match *self {
            Self::Allocate { at, .. }
            | Self::Extend { at, .. }
            | Self::Release { at, .. }
            | Self::Answer { at, .. }
            | Self::Carry { at, .. }
            | Self::Adopt { at, .. }
            | Self::Hold { at, .. }
            | Self::Tick { at } => at,
        }
    }

    /// An upper bound of the bytes that the record takes in a body.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_MAX + params_len(self.params())
    }

    /// The clocks to which the record's times refer, if its group has the clocks `group`.
    #[must_use]
    pub fn clocks(&self, group: Option<Clocks>) -> Option<Clocks> {
        if let Self::Carry { clocks, .. } = *self { clocks } else { group }
    }

    /// Its parameters, if its kind has any.
    #[inline]
    fn params(&self) -> [&[u8]; 2] {
        match *self {
            Self::Allocate { params, .. } | Self::Carry { params, .. } => params,
            Self::Extend { .. }
            | Self::Release { .. }
            | Self::Answer { .. }
            | Self::Adopt { .. }
            | Self::Hold { .. }
            | Self::Tick { .. } => [&[]; 2],
        }
    }
}

#[inline]
fn params_len([first, second]: [&[u8]; 2]) -> usize {
    first.len() + second.len() + usize::from(!first.is_empty() && !second.is_empty())
}

#[cfg(test)]
mod tests;
