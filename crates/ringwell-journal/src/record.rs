//! One record (an event that concerns a promo number, a pool or a row) and its encoding.
//!
//! A record consists of a kind byte and a flags byte, followed by varints and fixed-width fields
//! without alignment. A record's time is encoded relative to that of the group's first record, and
//! `previous` as a distance in groups and an offset. An `Allocate` therefore takes only about
//! twenty bytes before its parameters. Invariant: [`Records`] reads every record back exactly as
//! [`Record::encode`] wrote it. Source: docs/spec/journal.md, "Records".

mod decode;
mod encode;

pub use decode::{DecodeError, DecodeFault, Records};

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use crate::bytes::Scratch;
use crate::clocks::Clocks;

/// The maximum size of a record's parameters, in bytes: both slices of `params` and the `&` between
/// them.
pub const PARAMS_BYTES_MAX: usize = 16 * 1024;

/// The maximum size of a record without its parameters, in bytes.
pub const RECORD_OVERHEAD_MAX: usize = Scratch::BYTES;

/// Identifies one row of a repeatable batch, which is a batch with an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// A digest of the client's idempotency key.
    pub batch: [u8; 16],
    /// The row's index in the batch.
    pub row: u16,
}

/// An event in a shard, at the shard time `at`.
///
/// `slot` is a hint: the index of the number's slot in the shard when the record was written.
/// `previous` is the position of the previous record of the same number, so that a number's history
/// forms a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A number was handed out.
    Allocate {
        /// The time.
        at: Millis,
        /// The pool from which the number was handed out.
        pool: PoolId,
        /// The index of the number's slot in the shard.
        slot: u32,
        /// The number.
        number: PromoNumber,
        /// The length of the lockout, which begins at `at`.
        lockout: Millis,
        /// The position of the number's previous record, or [`Position::NONE`].
        previous: Position,
        /// Whether another shard may have handed the number out after the previous record.
        was_doubted: bool,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// The row that gets the same answer if it is repeated.
        idempotency: Option<RowKey>,
        /// The raw parameters: both slices, with an `&` between them if neither is empty. Records
        /// that are read back have all parameters in the first slice. Together with the `&`, the
        /// slices are at most [`PARAMS_BYTES_MAX`] bytes long.
        params: [&'a [u8]; 2],
    },
    /// A visitor returned and kept the number.
    Extend {
        /// The time.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// The index of the number's slot in the shard.
        slot: u32,
        /// The new end of the lockout.
        until: Millis,
        /// The position of the number's previous record.
        previous: Position,
        /// The position of an earlier record of the same allocation, so that a look-up can skip the
        /// keep-alives in between. [`Position::NONE`] if that record is `previous`.
        allocation: Position,
    },
    /// A lockout ended early.
    Release {
        /// The time.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// The index of the number's slot in the shard.
        slot: u32,
        /// The new end of the lockout.
        until: Millis,
        /// The position of the number's previous record.
        previous: Position,
        /// The allocation that is the number's newest again, because no visitor saw the later
        /// allocation. `previous` then skips the record of the undone allocation.
        restored: Option<Restored>,
        /// The row for which the undone allocation was made. If the row is repeated, it gets a new
        /// answer.
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
        /// The number that the row's visitor already held, or `None` for the pool's overflow
        /// number.
        number: Option<PromoNumber>,
    },
    /// A copy of a number's newest allocation, written because the segment that contains the
    /// original is about to be dropped.
    Carry {
        /// The time when the copy was written.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// The index of the number's slot in the shard.
        slot: u32,
        /// The pool from which the number was handed out.
        pool: PoolId,
        /// The time when the number was handed out.
        allocated_at: Millis,
        /// The end of the lockout.
        locked_until: Millis,
        /// The clocks of the original record's group, or `None` if that group had format 1.
        clocks: Option<Clocks>,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// The raw parameters, as in `Allocate`.
        params: [&'a [u8]; 2],
    },
    /// A number's newest allocation, reported by another shard that previously owned the number.
    /// The original record of the allocation, with the parameters, stays in that shard's journal.
    Adopt {
        /// The time when this shard adopted the allocation.
        at: Millis,
        /// The number.
        number: PromoNumber,
        /// The pool from which the number was handed out.
        pool: PoolId,
        /// The time when the number was handed out, by the other shard's clock.
        allocated_at: Millis,
        /// The end of the lockout.
        locked_until: Millis,
        /// The time of the allocation by this node's clock. Comparisons with other allocations use
        /// this time.
        local_at: Millis,
        /// The visitor who may ask for the same number again.
        visitor: Option<VisitorId>,
        /// The position of the number's previous record in this journal, or [`Position::NONE`].
        previous: Position,
    },
    /// Nothing is handed out before `until`, because part of the history is uncertain.
    Hold {
        /// The time.
        at: Millis,
        /// The pool, or `None` for all pools of the shard.
        pool: Option<PoolId>,
        /// The time from which numbers are handed out again.
        until: Millis,
    },
    /// Time passed without other events.
    Tick {
        /// The time.
        at: Millis,
    },
}

/// An earlier allocation that becomes a number's newest one again, because no visitor has seen the
/// later allocation. All fields are zero if there was no earlier allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The time of the allocation.
    pub allocated_at: Millis,
    /// The time of the allocation by this node's clock. Comparisons with other allocations use this
    /// time.
    pub local_at: Millis,
    /// The end of the allocation's lockout.
    pub locked_until: Millis,
}

/// The first byte of each record: its kind.
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

/// The second byte of each record: flags for the optional fields that are present.
mod flag {
    pub(super) const PREVIOUS: u8 = 1;
    pub(super) const VISITOR: u8 = 1 << 1;
    pub(super) const IDEMPOTENCY: u8 = 1 << 2;
    pub(super) const PARAMS: u8 = 1 << 3;
    pub(super) const NUMBER: u8 = 1 << 4;
    /// Flag of a `Hold`.
    pub(super) const POOL: u8 = 1 << 5;
    /// Flag in records that contain a number: the number's code takes seven bytes instead of five.
    pub(super) const LONG_NUMBER: u8 = 1 << 5;
    /// Flag of a `Release`.
    pub(super) const RESTORED: u8 = 1 << 6;
    /// Flag of an `Allocate`.
    pub(super) const DOUBTED: u8 = 1 << 6;
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

    /// Returns an upper bound on the encoded size of the record in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        RECORD_OVERHEAD_MAX + params_len(self.params())
    }

    /// Returns the clocks that apply to the record's times: its own if it is a `Carry`, otherwise
    /// `group`, the clocks of the record's group.
    #[must_use]
    pub fn clocks(&self, group: Option<Clocks>) -> Option<Clocks> {
        if let Self::Carry { clocks, .. } = *self { clocks } else { group }
    }

    /// The record's parameters, if its kind has any.
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
