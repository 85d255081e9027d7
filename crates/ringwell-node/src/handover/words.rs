//! What nodes tell each other about buckets that move, as JSON; and what the giver writes down.

use ringwell_core::{Millis, PoolId, Position, PromoNumber, Retired, Slot, VisitorId};
use ringwell_directory::{Owner, Owners};
use ringwell_journal::{Answer, AnswerEntry, RowKey};
use serde::{Deserialize, Serialize};

/// Buckets that have been given up, and whose next owner has not confirmed that it has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leaving {
    /// The next owner.
    pub(crate) to: u16,
    pub(crate) buckets: Vec<u16>,
    /// Pools that were held, and until when.
    pub(crate) holds: Vec<(u64, u64)>,
}

/// Asks whether a node can take buckets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prepare {
    pub(crate) shard: u16,
    pub(crate) version: u64,
    pub(crate) buckets: Vec<u16>,
    /// Of the pools in them.
    pub(crate) digest: String,
}

/// What the owner before knows, a part of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adopted {
    pub(crate) shard: u16,
    pub(crate) numbers: Vec<NumberWord>,
    pub(crate) answers: Vec<AnswerWord>,
    /// Pools that hand nothing out, and until when.
    pub(crate) holds: Vec<(u64, u64)>,
}

/// A number: the digits, the pool, when it was handed out, until when it is locked, to whom.
pub(crate) type NumberWord = (u64, u64, u64, u64, Option<[u8; 16]>);

/// A row of a repeatable batch: batch, row, when, and the number, 0 for overflow.
pub(crate) type AnswerWord = ([u8; 16], u16, u64, u64);

/// Hands buckets over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Take {
    pub(crate) version: u64,
    pub(crate) buckets: Vec<(u16, Owner)>,
}

/// A copy of the owners, in exchange for another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(crate) owners: Owners,
}

pub(crate) fn number_word(retired: &Retired) -> NumberWord {
    let Slot { number, allocated_at, locked_until, .. } = retired.slot;
    let visitor = retired.visitor.map(|visitor| visitor.0);
    (number.to_u64(), retired.pool.0, allocated_at.0, locked_until.0, visitor)
}

/// `None` if the number is none.
pub(crate) fn read_number(word: &NumberWord) -> Option<Retired> {
    let (number, pool, allocated_at, locked_until, visitor) = *word;
    let slot = Slot {
        number: PromoNumber::from_u64(number)?,
        allocated_at: Millis(allocated_at),
        locked_until: Millis(locked_until),
        position: Position::NONE,
    };
    Some(Retired { slot, pool: PoolId(pool), visitor: visitor.map(VisitorId) })
}

pub(crate) fn answer_word(entry: &AnswerEntry) -> AnswerWord {
    let number = match entry.answer {
        Answer::Number(number) => number.to_u64(),
        Answer::Overflow => 0,
    };
    (entry.row.batch, entry.row.row, entry.at.0, number)
}

/// `None` if the number is none.
pub(crate) fn read_answer(word: &AnswerWord) -> Option<AnswerEntry> {
    let (batch, row, at, number) = *word;
    let answer = match number {
        0 => Answer::Overflow,
        number => Answer::Number(PromoNumber::from_u64(number)?),
    };
    Some(AnswerEntry { row: RowKey { batch, row }, at: Millis(at), answer })
}
