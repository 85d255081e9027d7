//! A shard's state at some moment, so that a restart reads little of the journal.
//!
//! A header, then typed chunks of entries with a checksum each, then an end with BLAKE3 over
//! everything. Entries have a fixed width: ten million are read in about a second.
//! A snapshot may be taken in pieces while the shard goes on: an entry counts only if the journal
//! has no newer record for its number, so the container needs no consistency of its own. It may
//! be published only when every record that it can know of is stored: see [`Snapshot::through`].
//! Knows nothing of files. Source: docs/spec/journal.md, "Snapshots".

mod reader;
mod writer;

pub use reader::{Chunk, Entries, SnapshotError, SnapshotReader};
pub use writer::SnapshotWriter;

use ringwell_core::{Millis, PoolId, Position, PromoNumber, VisitorId};

use crate::bytes::Cursor;
use crate::clocks::Clocks;
use crate::record::RowKey;
use crate::recover::SnapshotMark;

/// The format that this version writes and the newest that it reads.
/// Format 1 had no clocks.
pub const SNAPSHOT_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"RPsnapsh";
/// Bytes of a header, and of one of format 1.
const HEADER_BYTES: usize = PLAIN_HEADER_BYTES + 16;
const PLAIN_HEADER_BYTES: usize = 96;
const CHUNK_HEADER_BYTES: usize = 16;
/// A chunk is closed when it is this long; readers accept twice as much.
const CHUNK_BYTES: usize = 256 * 1024;
const CHUNK_BYTES_MAX: usize = 2 * CHUNK_BYTES;

/// What a snapshot says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The shard.
    pub shard: u32,
    /// The journal that it goes with.
    pub journal: [u8; 16],
    /// The first frame that has to be replayed on it.
    pub replay_from: u64,
    /// Hash of the frame before that.
    pub prev_hash: u64,
    /// Epoch in which it was taken.
    pub epoch: u64,
    /// Shard time at which it was begun.
    pub created_at: Millis,
    /// The clock's high-water mark then: shard time never falls below it.
    pub last_at: Millis,
    /// About how many number entries follow: for reserving memory, not to be relied on.
    pub numbers: u64,
    /// The clocks then; `None` in one of format 1.
    pub clocks: Option<Clocks>,
}

/// What is known of a snapshot after its end was read and its hash holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What it said at its beginning.
    pub header: SnapshotHeader,
    /// The last frame of which it may know something. The journal must reach it.
    pub through: u64,
    /// How many entries there were, of all kinds.
    pub entries: u64,
}

/// A promo number's newest allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberEntry {
    /// The number.
    pub number: PromoNumber,
    /// The pool that it was handed out from.
    pub pool: PoolId,
    /// When it was handed out.
    pub allocated_at: Millis,
    /// When its lockout ends.
    pub locked_until: Millis,
    /// The newest record that touched it.
    pub position: Position,
    /// Who may ask for the same number again.
    pub visitor: Option<VisitorId>,
}

/// What a row of a batch was answered with, so that it gets the same answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerEntry {
    /// The row.
    pub row: RowKey,
    /// When it was answered.
    pub at: Millis,
    /// With what.
    pub answer: Answer,
    /// The pool that was asked; zero, which no pool has: nobody knows. Snapshots of versions before
    /// 2026-11-22 do not say.
    pub pool: PoolId,
}

/// What a row got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A promo number of its own.
    Number(PromoNumber),
    /// The pool's overflow number.
    Overflow,
}

/// When an allocation was, of which another node told with its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldEntry {
    /// The number.
    pub number: PromoNumber,
    /// When it was handed out, by the other clock.
    pub allocated_at: Millis,
    /// By this node's.
    pub local_at: Millis,
}

/// Nothing goes out before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldEntry {
    /// The pool, or all of the shard's.
    pub pool: Option<PoolId>,
    /// When numbers go out again.
    pub until: Millis,
}

impl Snapshot {
    /// What recovery has to check.
    #[must_use]
    pub fn mark(&self) -> SnapshotMark {
        let SnapshotHeader { journal, prev_hash, .. } = self.header;
        SnapshotMark { journal, prev_hash, through: self.through }
    }
}

/// What chunks hold. The end is a chunk as well.
mod kind {
    pub(super) const NUMBERS: u32 = 1;
    pub(super) const ANSWERS: u32 = 2;
    pub(super) const HOLDS: u32 = 3;
    pub(super) const TOLD: u32 = 4;
    pub(super) const ANSWERS_OF_POOLS: u32 = 5;
    pub(super) const END: u32 = 255;
}

/// An entry of a chunk: always as many bytes, and only one way to write a value.
pub trait Entry: Sized {
    /// Number of the kind of chunk.
    const KIND: u32;
    /// Width of an entry.
    const BYTES: usize;

    /// Appends exactly [`Self::BYTES`].
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads [`Self::BYTES`] back; `None` if they hold no valid entry.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// No number has the value zero, so it stands for none.
fn encode_number(number: Option<PromoNumber>, out: &mut Vec<u8>) {
    let value = number.map_or(0, PromoNumber::to_u64);
    out.extend_from_slice(&value.to_le_bytes()[..5]);
}

impl Entry for NumberEntry {
    const KIND: u32 = kind::NUMBERS;
    const BYTES: usize = 5 + 1 + 4 * 8 + 16;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_number(Some(self.number), out);
        out.push(u8::from(self.visitor.is_some()));
        for value in [self.pool.0, self.allocated_at.0, self.locked_until.0, self.position.0] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.visitor.map_or([0; 16], |VisitorId(id)| id));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let number = PromoNumber::from_u64(cursor.uint::<5>()?)?;
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

/// An answer of which the pool is not known.
pub(crate) struct PoollessAnswer(AnswerEntry);

impl Entry for PoollessAnswer {
    const KIND: u32 = kind::ANSWERS;
    const BYTES: usize = AnswerEntry::BYTES - 8;

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        out.truncate(out.len() - 8);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        AnswerEntry::decode(bytes).map(Self)
    }
}

impl Entry for AnswerEntry {
    const KIND: u32 = kind::ANSWERS_OF_POOLS;
    const BYTES: usize = 16 + 2 + 8 + 5 + 8;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.row.batch);
        out.extend_from_slice(&self.row.row.to_le_bytes());
        out.extend_from_slice(&self.at.0.to_le_bytes());
        let number = match self.answer {
            Answer::Number(number) => Some(number),
            Answer::Overflow => None,
        };
        encode_number(number, out);
        out.extend_from_slice(&self.pool.0.to_le_bytes());
    }

    /// Also reads [`PoollessAnswer`].
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let row = RowKey { batch: cursor.array()?, row: cursor.u16()? };
        let at = Millis(cursor.u64()?);
        let answer = match cursor.uint::<5>()? {
            0 => Answer::Overflow,
            value => Answer::Number(PromoNumber::from_u64(value)?),
        };
        let pool = if cursor.remaining() == 0 { 0 } else { cursor.u64()? };
        Some(Self { row, at, answer, pool: PoolId(pool) })
    }
}

impl Entry for ToldEntry {
    const KIND: u32 = kind::TOLD;
    const BYTES: usize = 5 + 2 * 8;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_number(Some(self.number), out);
        out.extend_from_slice(&self.allocated_at.0.to_le_bytes());
        out.extend_from_slice(&self.local_at.0.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        Some(Self {
            number: PromoNumber::from_u64(cursor.uint::<5>()?)?,
            allocated_at: Millis(cursor.u64()?),
            local_at: Millis(cursor.u64()?),
        })
    }
}

impl Entry for HoldEntry {
    const KIND: u32 = kind::HOLDS;
    const BYTES: usize = 1 + 8 + 8;

    fn encode(&self, out: &mut Vec<u8>) {
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
