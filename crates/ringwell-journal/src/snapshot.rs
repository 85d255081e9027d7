//! A copy of a shard's state, so that startup needs to read only the end of the journal.
//!
//! A snapshot consists of a header, chunks that each contain entries of one kind, and an end chunk.
//! Each chunk has a checksum, and the end chunk contains a BLAKE3 hash of the whole snapshot.
//! Entries have a fixed width. Reading ten million of them takes about a second. A snapshot may be
//! taken in pieces while the shard continues to hand out numbers. An entry is used only if the
//! journal has no newer record of its number. The entries therefore need not be consistent with
//! each other. A snapshot must not be published until every record that it may include has been
//! stored. See [`Snapshot::through`]. This module does no file I/O. Source: docs/spec/journal.md,
//! "Snapshots".

mod reader;
mod writer;

pub use reader::{Chunk, Entries, SnapshotError, SnapshotReader};
pub use writer::SnapshotWriter;

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use crate::bytes::Cursor;
use crate::clocks::Clocks;
use crate::place::position_parts;
use crate::record::RowKey;
use crate::recover::SnapshotMark;

/// The format that this version writes, which is also the newest format that it reads. Format 1 did
/// not record clock offsets.
pub const SNAPSHOT_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"RPsnapsh";
/// The size of a header in bytes. The next constant is the size in format 1.
const HEADER_BYTES: usize = PLAIN_HEADER_BYTES + 16;
const PLAIN_HEADER_BYTES: usize = 96;
const CHUNK_HEADER_BYTES: usize = 16;
/// The length in bytes at which a chunk is closed. Readers accept chunks of up to twice this
/// length.
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNK_BYTES_MAX: usize = 2 * CHUNK_BYTES;

/// The data in a snapshot's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The shard.
    pub shard: u32,
    /// The journal to which the snapshot belongs.
    pub journal: [u8; 16],
    /// The first frame to replay after the snapshot has been loaded.
    pub replay_from: u64,
    /// The hash of the frame before `replay_from`.
    pub prev_hash: u64,
    /// The epoch in which the snapshot was taken.
    pub epoch: u64,
    /// The shard time at which the snapshot began.
    pub created_at: Millis,
    /// The latest time in the journal when the snapshot began. Shard time never
    /// goes below it.
    pub last_at: Millis,
    /// The approximate count of number entries that follow. Use it only to reserve memory.
    pub numbers: u64,
    /// The clock offsets when the snapshot began, or `None` in format 1.
    pub clocks: Option<Clocks>,
}

/// The data about a complete snapshot. It is available once the snapshot has been read to its end
/// and its hash has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The data in the header.
    pub header: SnapshotHeader,
    /// The last frame whose records the snapshot may include. The journal must reach this frame.
    pub through: u64,
    /// The count of entries of all kinds.
    pub entries: u64,
}

/// A promo number's newest allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberEntry {
    /// The number.
    pub number: PromoNumber,
    /// The pool from which the number was handed out.
    pub pool: PoolId,
    /// The time when the number was handed out.
    pub allocated_at: Millis,
    /// The end of the lockout.
    pub locked_until: Millis,
    /// The position of the newest record about the number.
    pub position: Position,
    /// The visitor who may ask for the same number again.
    pub visitor: Option<VisitorId>,
}

/// The answer to a row of a batch, kept so that the row gets the same answer if it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerEntry {
    /// The row.
    pub row: RowKey,
    /// The time when the row was answered.
    pub at: Millis,
    /// The answer.
    pub answer: RecordedAnswer,
    /// The requested pool, or zero if it is unknown; no pool has the id zero. Snapshots that were
    /// written by versions before 2026-11-22 do not contain the pool.
    pub pool: PoolId,
}

/// The answer to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedAnswer {
    /// A promo number for this row only.
    Number(PromoNumber),
    /// The pool's overflow number.
    Overflow,
}

/// The time of an allocation that another node made, according to both nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignTimeEntry {
    /// The number.
    pub number: PromoNumber,
    /// The time by the other node's clock.
    pub allocated_at: Millis,
    /// The time by this node's clock.
    pub local_at: Millis,
}

/// A hold: no number is handed out before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldEntry {
    /// The pool, or `None` for all pools of the shard.
    pub pool: Option<PoolId>,
    /// The time from which numbers are handed out again.
    pub until: Millis,
}

impl Snapshot {
    /// The data that recovery must compare with the journal.
    #[must_use]
    pub fn mark(&self) -> SnapshotMark {
        let SnapshotHeader { journal, prev_hash, .. } = self.header;
        SnapshotMark { journal, prev_hash, through: self.through }
    }
}

/// The numbers that mark the kinds of chunks. The end of a snapshot is a chunk as well.
mod kind {
    pub(super) const NUMBERS: u32 = 1;
    pub(super) const ANSWERS: u32 = 2;
    pub(super) const HOLDS: u32 = 3;
    pub(super) const FOREIGN_TIMES: u32 = 4;
    pub(super) const ANSWERS_OF_POOLS: u32 = 5;
    pub(super) const LONG_NUMBERS: u32 = 6;
    pub(super) const LONG_ANSWERS: u32 = 7;
    pub(super) const LONG_FOREIGN_TIMES: u32 = 8;
    pub(super) const END: u32 = 255;
}

/// The code size in bytes for numbers with country code 1. The next constant is the size of all
/// other codes.
const NUMBER_BYTES: usize = 5;
const LONG_NUMBER_BYTES: usize = 7;

/// An entry in a chunk. It has a fixed width, and every value has only one encoding.
pub trait Entry: Sized {
    /// The number that marks chunks of this kind.
    const KIND: u32;
    /// The number that marks chunks whose entries contain long number codes. These entries are two
    /// bytes wider than [`Self::BYTES`], so that they can contain a number with any country code.
    const LONG_KIND: u32;
    /// The width of an entry in bytes.
    const BYTES: usize;

    /// The number in the entry, if it has one.
    fn number(&self) -> Option<PromoNumber>;

    /// The newest group to which a position in the entry refers, or zero if the entry contains no
    /// position.
    fn newest_group(&self) -> u64 {
        0
    }

    /// Appends exactly [`Self::BYTES`] bytes, or two more if `number_bytes` is the size of a long
    /// code.
    fn encode(&self, number_bytes: usize, out: &mut Vec<u8>);

    /// Reads an entry back. The length of `bytes` shows whether the number's code is long. Returns
    /// `None` if `bytes` contain no valid entry.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Appends the code of a number, or zero for `None`. No number has the code zero.
fn encode_number(number: Option<PromoNumber>, number_bytes: usize, out: &mut Vec<u8>) {
    let code = number.map_or(0, PromoNumber::to_code);
    out.extend_from_slice(&code.to_le_bytes()[..number_bytes]);
}

/// Reads a number's code from an entry that is `bytes` bytes wide. The code is long if the entry is
/// wider than `usual`, the width of an entry with a short code.
fn decode_code(cursor: &mut Cursor<'_>, (bytes, usual): (usize, usize)) -> Option<u64> {
    if bytes > usual { cursor.uint::<LONG_NUMBER_BYTES>() } else { cursor.uint::<NUMBER_BYTES>() }
}

impl Entry for NumberEntry {
    const KIND: u32 = kind::NUMBERS;
    const LONG_KIND: u32 = kind::LONG_NUMBERS;
    const BYTES: usize = NUMBER_BYTES + 1 + 4 * 8 + 16;

    fn number(&self) -> Option<PromoNumber> {
        Some(self.number)
    }

    fn newest_group(&self) -> u64 {
        position_parts(self.position).0
    }

    fn encode(&self, number_bytes: usize, out: &mut Vec<u8>) {
        encode_number(Some(self.number), number_bytes, out);
        out.push(u8::from(self.visitor.is_some()));
        for value in [self.pool.0, self.allocated_at.0, self.locked_until.0, self.position.0] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.visitor.map_or([0; 16], |VisitorId(id)| id));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let code = decode_code(&mut cursor, (bytes.len(), Self::BYTES))?;
        let number = PromoNumber::from_code(code)?;
        let has_visitor = flag(cursor.byte()?)?;
        Some(Self {
            number,
            pool: PoolId(cursor.u64()?),
            allocated_at: Millis(cursor.u64()?),
            locked_until: Millis(cursor.u64()?),
            position: Position(cursor.u64()?),
            visitor: Some(VisitorId(cursor.array()?)).filter(|_| has_visitor),
        })
    }
}

/// An answer whose pool is unknown.
pub(crate) struct PoollessAnswer(AnswerEntry);

impl Entry for PoollessAnswer {
    const KIND: u32 = kind::ANSWERS;
    /// There is no separate kind for long codes: the writer uses [`AnswerEntry`] for them.
    const LONG_KIND: u32 = kind::ANSWERS;
    const BYTES: usize = AnswerEntry::BYTES - 8;

    fn number(&self) -> Option<PromoNumber> {
        None
    }

    fn encode(&self, _number_bytes: usize, out: &mut Vec<u8>) {
        self.0.encode(NUMBER_BYTES, out);
        out.truncate(out.len() - 8);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        AnswerEntry::decode(bytes).map(Self)
    }
}

impl Entry for AnswerEntry {
    const KIND: u32 = kind::ANSWERS_OF_POOLS;
    const LONG_KIND: u32 = kind::LONG_ANSWERS;
    const BYTES: usize = 16 + 2 + 8 + NUMBER_BYTES + 8;

    fn number(&self) -> Option<PromoNumber> {
        match self.answer {
            RecordedAnswer::Number(number) => Some(number),
            RecordedAnswer::Overflow => None,
        }
    }

    fn encode(&self, number_bytes: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.row.batch);
        out.extend_from_slice(&self.row.row.to_le_bytes());
        out.extend_from_slice(&self.at.0.to_le_bytes());
        encode_number(self.number(), number_bytes, out);
        out.extend_from_slice(&self.pool.0.to_le_bytes());
    }

    /// Also reads [`PoollessAnswer`].
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let row = RowKey { batch: cursor.array()?, row: cursor.u16()? };
        let at = Millis(cursor.u64()?);
        let answer = match decode_code(&mut cursor, (bytes.len(), Self::BYTES))? {
            0 => RecordedAnswer::Overflow,
            code => RecordedAnswer::Number(PromoNumber::from_code(code)?),
        };
        let pool = if cursor.remaining() == 0 { 0 } else { cursor.u64()? };
        Some(Self { row, at, answer, pool: PoolId(pool) })
    }
}

impl Entry for ForeignTimeEntry {
    const KIND: u32 = kind::FOREIGN_TIMES;
    const LONG_KIND: u32 = kind::LONG_FOREIGN_TIMES;
    const BYTES: usize = NUMBER_BYTES + 2 * 8;

    fn number(&self) -> Option<PromoNumber> {
        Some(self.number)
    }

    fn encode(&self, number_bytes: usize, out: &mut Vec<u8>) {
        encode_number(Some(self.number), number_bytes, out);
        out.extend_from_slice(&self.allocated_at.0.to_le_bytes());
        out.extend_from_slice(&self.local_at.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let code = decode_code(&mut cursor, (bytes.len(), Self::BYTES))?;
        Some(Self {
            number: PromoNumber::from_code(code)?,
            allocated_at: Millis(cursor.u64()?),
            local_at: Millis(cursor.u64()?),
        })
    }
}

impl Entry for HoldEntry {
    const KIND: u32 = kind::HOLDS;
    /// A hold contains no number.
    const LONG_KIND: u32 = kind::HOLDS;
    const BYTES: usize = 1 + 8 + 8;

    fn number(&self) -> Option<PromoNumber> {
        None
    }

    fn encode(&self, _number_bytes: usize, out: &mut Vec<u8>) {
        out.push(u8::from(self.pool.is_some()));
        out.extend_from_slice(&self.pool.map_or(0, |PoolId(id)| id).to_le_bytes());
        out.extend_from_slice(&self.until.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let has_pool = flag(cursor.byte()?)?;
        let pool = Some(PoolId(cursor.u64()?)).filter(|_| has_pool);
        Some(Self { pool, until: Millis(cursor.u64()?) })
    }
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
