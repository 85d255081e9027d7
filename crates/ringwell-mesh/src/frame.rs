//! The frames that shards of different processes exchange, and the checks on received frames.
//!
//! Owns the encoding of frame versions 1 to 3. Version 2 adds numbers from all countries. Version 3
//! lets a caller report unanswered numbers that clients can request again. A frame has the lowest
//! version that can express its contents. Independent of HTTP, connections, the cluster secret and
//! pool ownership. Invariants: no input makes a reader panic, or allocate more than a small
//! multiple of the input's length. Each value has exactly one encoding. A truncated frame is
//! refused. Source: docs/spec/link.md.

use core::ops::Range;

use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};

mod bytes;
mod error;
mod version;

pub use error::FrameError;
pub use version::{NUMBERS_OF_THE_WORLD, VERSION};

use bytes::{NUMBER_BYTES, Reader, put_number, put_start, put_varint, version_for};

/// The first version in which an *unanswered* frame may list numbers that clients can request
/// again.
const UNANSWERED_KEPT: u8 = 3;

/// The kind of a frame: its second byte.
mod kind {
    pub(super) const ASK: u8 = 1;
    pub(super) const ANSWER: u8 = 2;
    pub(super) const UNANSWERED: u8 = 3;
    pub(super) const PING: u8 = 4;
}

/// Flag bits. A flag that is set marks an optional field as present.
mod flag {
    /// Flag in an ask: the digest of a repeatable batch follows.
    pub(super) const RETRY: u8 = 1;
    /// Flag in a row: the visitor's id follows, so the visitor may ask for the same number again.
    pub(super) const VISITOR: u8 = 1;
}

/// The first byte of a row's answer.
mod outcome {
    pub(super) const ALLOCATED: u8 = 1;
    pub(super) const KEPT: u8 = 2;
    pub(super) const EXHAUSTED: u8 = 3;
    pub(super) const JOURNAL_FULL: u8 = 4;
    pub(super) const JOURNAL_FAILED: u8 = 5;
    pub(super) const LATE: u8 = 6;
    pub(super) const BUSY: u8 = 7;
    pub(super) const MOVED: u8 = 8;
}

/// A `u64` as varint.
const VARINT_BYTES_MAX: usize = 10;
/// An upper bound on the length of everything before a frame's rows.
const HEAD_BYTES_MAX: usize = 64;
/// The minimum length of a row: one byte each for the flags, the pool, the row's index, and the
/// length of each part of the parameters.
const ROW_BYTES_MIN: usize = 5;
/// The maximum length of a row without its parameters: the fields listed for [`ROW_BYTES_MIN`],
/// each at its maximum length, and the visitor's id. The lengths of both parts of the parameters
/// fit in 32 bits.
const ROW_BYTES_MAX: usize = 1 + VARINT_BYTES_MAX + 3 + 2 * 5 + 16;
/// The minimum length of a row's answer: only its kind.
const ANSWER_ROW_BYTES_MIN: usize = 1;
/// The maximum length of a row's answer: its kind, and a time.
const ANSWER_ROW_BYTES_MAX: usize = 1 + VARINT_BYTES_MAX;

/// Limits on the contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of rows in an ask, and of numbers in an *unanswered* frame.
    pub rows_max: usize,
    /// The maximum length of one row's parameters in bytes: both parts, and the `&` between them if
    /// neither is empty.
    pub params_bytes_max: usize,
}

/// Asks a shard to serve the batch rows whose pools it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The shard that receives the ask.
    pub shard: u16,
    /// The time in milliseconds after which the sender stops waiting for the answer. It is a
    /// duration rather than a point in time, because two machines' clocks may differ.
    pub remaining_ms: u32,
    /// The version of the map that the caller used to choose this shard.
    pub map_version: u64,
    /// The batch's digest, if the batch is repeatable.
    pub retry: Option<[u8; 16]>,
}

/// One row of an [`Ask`], to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskRow<'a> {
    /// The pool to take a number from.
    pub pool: PoolId,
    /// The row's index in the batch. Indexes increase from row to row.
    pub row: u16,
    /// The parameters as the client sent them: the part before the ring pool key, and the part
    /// after it.
    pub params: [&'a [u8]; 2],
    /// The visitor who may ask for the same number again.
    pub visitor: Option<VisitorId>,
}

/// One row of an [`Ask`], as read from a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRow {
    /// See [`AskRow::pool`].
    pub pool: PoolId,
    /// See [`AskRow::row`].
    pub row: u16,
    /// The positions in the frame of both parts of the parameters.
    pub params: [Range<usize>; 2],
    /// See [`AskRow::visitor`].
    pub visitor: Option<VisitorId>,
}

/// The outcome of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowAnswer {
    /// A number that was handed out now and cannot be requested again.
    Allocated {
        /// The number.
        number: PromoNumber,
    },
    /// A number that can be requested again, whether it was handed out now or earlier.
    Kept {
        /// The number.
        number: PromoNumber,
    },
    /// Every number of the pool is locked out.
    Exhausted {
        /// The time when the next number becomes free, according to the owner's clock.
        until: Millis,
    },
    /// The owner's journal has no free space at the moment.
    JournalFull,
    /// The owner's journal failed, and only a restart repairs it.
    JournalFailed,
    /// The row's deadline passed before the owner served it.
    Late,
    /// The owner's queue is full.
    Busy,
    /// This shard does not own the pool: either its node or the caller's node has an old map.
    Moved,
}

/// Answers an [`Ask`] with one outcome per row, in the ask's order. The answer to a ping has no
/// rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The time when the owner processed the rows, according to its clock.
    pub at: Millis,
    /// The version of the map that the owner uses.
    pub map_version: u64,
    /// The rows.
    pub rows: Vec<RowAnswer>,
}

/// Numbers from one answer. They never reached a client, so the owner may undo their allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The shard that handed out the numbers.
    pub shard: u16,
    /// [`Answer::at`] of the answer that contained the numbers.
    pub allocated_at: Millis,
    /// Whether the numbers were sent as [`RowAnswer::Kept`]. A node that reads frames only up to
    /// version 2 refuses a frame with such numbers.
    pub kept: bool,
    /// The numbers.
    pub numbers: Vec<PromoNumber>,
}

/// Appends an ask to `out`. `rows` must report its exact length, which must not exceed the owner's
/// limit. Otherwise, the owner refuses the frame.
pub fn write_ask<'a>(
    out: &mut Vec<u8>,
    ask: &Ask,
    rows: impl ExactSizeIterator<Item = AskRow<'a>>,
) {
    put_start(out, 1, kind::ASK);
    out.push(if ask.retry.is_some() { flag::RETRY } else { 0 });
    put_varint(out, u64::from(ask.shard));
    put_varint(out, u64::from(ask.remaining_ms));
    put_varint(out, ask.map_version);
    if let Some(retry) = &ask.retry {
        out.extend_from_slice(retry);
    }
    put_varint(out, rows.len() as u64);
    for row in rows {
        put_row(out, &row);
    }
}

/// Reads an ask.
///
/// # Errors
/// Returns a [`FrameError`] for the first rule that `bytes` break. The version is checked before
/// anything else (see [`FrameError::Version`]).
pub fn read_ask(bytes: &[u8], limits: &Limits) -> Result<(Ask, Vec<ReadRow>), FrameError> {
    let mut frame = Reader::open(bytes, kind::ASK)?;
    let flags = frame.flags("flags", flag::RETRY)?;
    let ask = Ask {
        shard: frame.int("shard")?,
        remaining_ms: frame.int("remaining time")?,
        map_version: frame.int("map version")?,
        retry: frame.optional(flags & flag::RETRY, "retry key")?,
    };
    let count = frame.rows(limits.rows_max, ROW_BYTES_MIN)?;
    let mut rows: Vec<ReadRow> = Vec::with_capacity(count);
    for _ in 0..count {
        let row = read_row(&mut frame, limits)?;
        if rows.last().is_some_and(|before| before.row >= row.row) {
            return Err(frame.out_of_range("row number"));
        }
        rows.push(row);
    }
    frame.close()?;
    Ok((ask, rows))
}

/// Appends an answer to `out`.
pub fn write_answer(out: &mut Vec<u8>, answer: &Answer) {
    let version = version_for(answer.rows.iter().filter_map(RowAnswer::number));
    put_start(out, version, kind::ANSWER);
    put_varint(out, answer.at.0);
    put_varint(out, answer.map_version);
    put_varint(out, answer.rows.len() as u64);
    for row in &answer.rows {
        put_row_answer(out, version, *row);
    }
}

/// Reads the answer to an ask with `rows_wanted` rows. For the answer to a ping, `rows_wanted` is
/// 0.
///
/// # Errors
/// Returns a [`FrameError`] for the first rule that `bytes` break, for example if the number of
/// rows is not `rows_wanted`.
pub fn read_answer(bytes: &[u8], rows_wanted: usize) -> Result<Answer, FrameError> {
    let mut frame = Reader::open(bytes, kind::ANSWER)?;
    let at = Millis(frame.int("time")?);
    let map_version = frame.int("map version")?;
    let count = frame.rows_exactly(rows_wanted, ANSWER_ROW_BYTES_MIN)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        rows.push(read_row_answer(&mut frame)?);
    }
    frame.close()?;
    Ok(Answer { at, map_version, rows })
}

/// Appends to `out` an *unanswered* frame: the allocations that reached no client.
pub fn write_unanswered(out: &mut Vec<u8>, unanswered: &Unanswered) {
    let version = version_for(unanswered.numbers.iter().copied());
    let version = if unanswered.kept { UNANSWERED_KEPT } else { version };
    put_start(out, version, kind::UNANSWERED);
    put_varint(out, u64::from(unanswered.shard));
    put_varint(out, unanswered.allocated_at.0);
    put_varint(out, unanswered.numbers.len() as u64);
    for number in &unanswered.numbers {
        put_number(out, version, *number);
    }
}

/// Reads an *unanswered* frame: the allocations that reached no client.
///
/// # Errors
/// Returns a [`FrameError`] for the first rule that `bytes` break.
pub fn read_unanswered(bytes: &[u8], limits: &Limits) -> Result<Unanswered, FrameError> {
    let mut frame = Reader::open(bytes, kind::UNANSWERED)?;
    let kept = frame.takes(UNANSWERED_KEPT);
    let shard = frame.int("shard")?;
    let allocated_at = Millis(frame.int("time of allocation")?);
    let count = frame.rows(limits.rows_max, NUMBER_BYTES)?;
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        numbers.push(frame.number()?);
    }
    frame.close()?;
    Ok(Unanswered { shard, allocated_at, kept, numbers })
}

/// Appends a ping for `shard` to `out`. A ping takes the same path as rows do, and is answered with
/// an [`Answer`] without rows.
pub fn write_ping(out: &mut Vec<u8>, shard: u16) {
    put_start(out, 1, kind::PING);
    put_varint(out, u64::from(shard));
}

/// Reads a ping and returns the shard to which it was sent.
///
/// # Errors
/// Returns a [`FrameError`] for the first rule that `bytes` break.
pub fn read_ping(bytes: &[u8]) -> Result<u16, FrameError> {
    let mut frame = Reader::open(bytes, kind::PING)?;
    let shard = frame.int("shard")?;
    frame.close()?;
    Ok(shard)
}

impl Limits {
    /// The maximum length of a frame that an owner accepts, which is also the limit for a request's
    /// body.
    #[must_use]
    pub const fn frame_bytes_max(&self) -> usize {
        let row = self.params_bytes_max.saturating_add(ROW_BYTES_MAX);
        self.rows_max.saturating_mul(row).saturating_add(HEAD_BYTES_MAX)
    }
}

impl Default for Limits {
    /// The defaults: 500 rows (the maximum in a batch) with parameters of 16 KiB each (the maximum
    /// in a journal record).
    fn default() -> Self {
        Self { rows_max: 500, params_bytes_max: 16 * 1024 }
    }
}

impl RowAnswer {
    /// The number in the answer, if there is one.
    #[must_use]
    pub const fn number(&self) -> Option<PromoNumber> {
        match self {
            Self::Allocated { number } | Self::Kept { number } => Some(*number),
            _ => None,
        }
    }
}

impl Answer {
    /// The maximum length of an answer to `rows` rows, which is also the limit for an answer's
    /// body.
    #[must_use]
    pub const fn bytes_max(rows: usize) -> usize {
        rows.saturating_mul(ANSWER_ROW_BYTES_MAX).saturating_add(HEAD_BYTES_MAX)
    }
}

fn put_row(out: &mut Vec<u8>, row: &AskRow) {
    out.push(if row.visitor.is_some() { flag::VISITOR } else { 0 });
    put_varint(out, row.pool.0);
    put_varint(out, u64::from(row.row));
    if let Some(VisitorId(id)) = &row.visitor {
        out.extend_from_slice(id);
    }
    for part in row.params {
        put_varint(out, part.len() as u64);
    }
    for part in row.params {
        out.extend_from_slice(part);
    }
}

fn read_row(frame: &mut Reader, limits: &Limits) -> Result<ReadRow, FrameError> {
    let flags = frame.flags("flags of a row", flag::VISITOR)?;
    let pool = PoolId(frame.int("pool")?);
    let row = frame.int("row number")?;
    let visitor = frame.optional(flags & flag::VISITOR, "visitor")?.map(VisitorId);
    let first: u64 = frame.int("length of parameters")?;
    let second: u64 = frame.int("length of parameters")?;
    let join = u64::from(first > 0 && second > 0);
    let bytes = first.saturating_add(second).saturating_add(join);
    let bytes_max = limits.params_bytes_max;
    if bytes > bytes_max as u64 {
        return Err(FrameError::ParamsTooLong { row, bytes, bytes_max });
    }
    let params = [frame.range(first, "parameters")?, frame.range(second, "parameters")?];
    Ok(ReadRow { pool, row, params, visitor })
}

fn put_row_answer(out: &mut Vec<u8>, version: u8, row: RowAnswer) {
    match row {
        RowAnswer::Allocated { number } => {
            out.push(outcome::ALLOCATED);
            put_number(out, version, number);
        }
        RowAnswer::Kept { number } => {
            out.push(outcome::KEPT);
            put_number(out, version, number);
        }
        RowAnswer::Exhausted { until } => {
            out.push(outcome::EXHAUSTED);
            put_varint(out, until.0);
        }
        RowAnswer::JournalFull => out.push(outcome::JOURNAL_FULL),
        RowAnswer::JournalFailed => out.push(outcome::JOURNAL_FAILED),
        RowAnswer::Late => out.push(outcome::LATE),
        RowAnswer::Busy => out.push(outcome::BUSY),
        RowAnswer::Moved => out.push(outcome::MOVED),
    }
}

fn read_row_answer(frame: &mut Reader) -> Result<RowAnswer, FrameError> {
    Ok(match frame.byte("answer of a row")? {
        outcome::ALLOCATED => RowAnswer::Allocated { number: frame.number()? },
        outcome::KEPT => RowAnswer::Kept { number: frame.number()? },
        outcome::EXHAUSTED => RowAnswer::Exhausted { until: Millis(frame.int("time")?) },
        outcome::JOURNAL_FULL => RowAnswer::JournalFull,
        outcome::JOURNAL_FAILED => RowAnswer::JournalFailed,
        outcome::LATE => RowAnswer::Late,
        outcome::BUSY => RowAnswer::Busy,
        outcome::MOVED => RowAnswer::Moved,
        _ => return Err(frame.out_of_range("answer of a row")),
    })
}

#[cfg(test)]
mod tests;
