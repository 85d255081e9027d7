//! Requests between nodes about buckets that move, as JSON, and the values in these requests.

use ringwell_core::{Millis, PoolId, Position, PromoNumber, Retired, Slot, VisitorId};
use ringwell_directory::{BucketHold, Owner, Owners};
use ringwell_journal::{AnswerEntry, RecordedAnswer, RowKey};
use serde::{Deserialize, Serialize};

use crate::canary::{Bug, planted};
use crate::store::Gap;

/// The answer to [`Prepare`] if the node can take the buckets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// The maximum size of a request that this node accepts, in bytes.
    pub body_bytes: usize,
}

/// Asks a node whether it can take buckets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// The shard that would receive the buckets.
    pub shard: u16,
    /// The version of the cluster file.
    pub version: u64,
    /// The buckets.
    pub buckets: Vec<u16>,
    /// The digest of the pools in these buckets.
    pub digest: String,
}

/// Part of the moving buckets' state, sent by their previous owner.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopted {
    /// The shard that adopts the state.
    pub shard: u16,
    /// The sender's time. The nodes' clocks differ, so the receiver uses this time to compute how
    /// long each lockout still lasts.
    pub at: u64,
    /// The version of the cluster file.
    pub version: u64,
    /// The buckets that are handed over. Numbers and answers that arrive after the buckets were
    /// taken over are ignored.
    pub buckets: Vec<(u16, Owner)>,
    /// The newest allocation of each number.
    pub numbers: Vec<NumberWord>,
    /// The answers to rows of repeatable batches.
    pub answers: Vec<AnswerWord>,
    /// Held pools, with the end of each hold.
    pub holds: Vec<(u64, u64)>,
}

/// A number in a request: its code, the pool, the allocation time, the end of the lockout, and the
/// visitor.
pub type NumberWord = (u64, u64, u64, u64, Option<[u8; 16]>);

/// A row of a repeatable batch in a request: the batch, the row, the time, and the number (0 for
/// overflow).
pub type AnswerWord = ([u8; 16], u16, u64, u64);

/// Hands buckets over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// The version of the cluster file.
    pub version: u64,
    /// The buckets and their new owners.
    pub buckets: Vec<(u16, Owner)>,
    /// Buckets whose pools are held, including pools that will be added to them later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldWord>,
    /// The periods for which the journals may lack answered allocations from some of these buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A held bucket in a request: its index, the time since it arrived without lockouts, and the
/// remaining time of the hold on all its pools. The second field is 0 if the lockouts arrived with
/// the bucket.
pub type HoldWord = (u16, u64, u64);

/// A copy of the owners, exchanged for another node's copy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnersCopy {
    /// The owner of each bucket.
    pub owners: Owners,
    /// Buckets that the sender may have served although they already belonged to another node,
    /// because the sender's data was from before a move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<u16>,
    /// Only in an answer: the `stale` buckets from the request that belong to the answering node,
    /// which now holds their pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<u16>,
}

/// Converts a number to the form that is sent between nodes.
#[must_use]
pub fn number_word(retired: &Retired) -> NumberWord {
    let Slot { number, allocated_at, locked_until, .. } = retired.slot;
    let visitor = retired.visitor.map(|visitor| visitor.0);
    (number.to_code(), retired.pool.0, allocated_at.0, locked_until.0, visitor)
}

/// The maximum rounding error: times are sent in whole milliseconds, rounded down.
const ROUNDING: Millis = Millis(1);

/// Converts the end of a lockout or hold from another node's time, which is now `there`, to this
/// shard's time, which is now `here`. The remaining time stays the same. Rounding only ever adds
/// time.
#[must_use]
pub fn in_time_of(until: Millis, here: Millis, there: Millis) -> Millis {
    if planted(Bug::ForeignClock) {
        return until;
    }
    if until > there { here + until.since(there) + ROUNDING } else { here - there.since(until) }
}

/// Converts a number, received at `here`, from the form that is sent between nodes. The end of its
/// lockout stays in the other node's time. Its allocation counts as newer than all state known
/// here, whatever the other node's clock shows. Returns `None` if the number is invalid.
#[must_use]
pub fn read_number(word: &NumberWord, here: Millis) -> Option<Retired> {
    let (number, pool, allocated_at, locked_until, visitor) = *word;
    let slot = Slot {
        number: PromoNumber::from_code(number)?,
        allocated_at: Millis(allocated_at),
        locked_until: Millis(locked_until),
        position: Position::NONE,
    };
    let visitor = visitor.map(VisitorId);
    Some(Retired { slot, local_at: here, pool: PoolId(pool), visitor })
}

/// Converts a hold to the form that is sent between nodes; `at` is this node's current time.
#[must_use]
pub fn hold_word(bucket: u16, hold: BucketHold, at: Millis) -> HoldWord {
    let since = if hold.since > Millis::ZERO { at.since(hold.since).0.max(1) } else { 0 };
    (bucket, since, hold.until.since(at).0)
}

/// Converts a received hold to this node's time. Rounding only ever adds time.
#[must_use]
pub fn read_hold(word: HoldWord, here: Millis) -> (u16, BucketHold) {
    let (bucket, since, left) = word;
    let since = if since > 0 { here - Millis(since) + ROUNDING } else { Millis::ZERO };
    let until = if left > 0 { here + Millis(left) + ROUNDING } else { Millis::ZERO };
    (bucket, BucketHold { since, until })
}

/// Converts a remembered answer to the form that is sent between nodes.
#[must_use]
pub fn answer_word(entry: &AnswerEntry) -> AnswerWord {
    let number = match entry.answer {
        RecordedAnswer::Number(number) => number.to_code(),
        RecordedAnswer::Overflow => 0,
    };
    (entry.row.batch, entry.row.row, entry.at.0, number)
}

/// Converts an answer from another node's time, which is now `there`, to this shard's time. The
/// answer's age stays the same. Returns `None` if the number is invalid.
#[must_use]
pub fn read_answer(word: &AnswerWord, here: Millis, there: Millis) -> Option<AnswerEntry> {
    let (batch, row, at, number) = *word;
    let answer = match number {
        0 => RecordedAnswer::Overflow,
        number => RecordedAnswer::Number(PromoNumber::from_code(number)?),
    };
    let at = here - there.since(Millis(at));
    // The pool is not part of the request.
    Some(AnswerEntry { row: RowKey { batch, row }, at, answer, pool: PoolId(0) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use super::*;

    #[test]
    fn lockouts_keep_their_true_ends_whatever_the_clocks() {
        let convert = |until, here, there| in_time_of(Millis(until), Millis(here), Millis(there)).0;
        // The other node's clock agrees with this one, is an hour behind, or is an hour ahead.
        for there in [5_000_000, 1_400_000, 8_600_000] {
            assert_eq!(convert(there + 10_000, 5_000_000, there), 5_010_001);
            assert_eq!(convert(there - 10_000, 5_000_000, there), 4_990_000, "it is over");
            assert_eq!(convert(there, 5_000_000, there), 5_000_000, "it is just over");
        }
    }

    #[test]
    fn holds_of_buckets_keep_their_true_times_whatever_the_clocks() {
        let (there, here) = (5_000_000, 900_000);
        let converted = |since, until| {
            let hold = BucketHold { since: Millis(since), until: Millis(until) };
            let (bucket, hold) = read_hold(hold_word(7, hold, Millis(there)), Millis(here));
            assert_eq!(bucket, 7);
            (hold.since.0, hold.until.0)
        };
        // Neither the beginning nor the end of the hold is set.
        assert_eq!(converted(0, 0), (0, 0));
        assert_eq!(converted(0, there), (0, 0), "it is just over");
        assert_eq!(converted(0, there - 1), (0, 0), "it is over");
        assert_eq!(converted(0, there + 1), (0, here + 2));
        assert_eq!(converted(0, there + 10_000), (0, here + 10_001));
        assert_eq!(converted(there - 10_000, 0), (here - 9_999, 0));
        // A hold that has just begun must differ from a hold without a beginning.
        assert_eq!(converted(there, 0), (here, 0));
        assert_eq!(converted(1, 1), (1, 0), "longer ago than this clock can tell");
        assert_eq!(converted(there - 3_000, there + 2_000), (here - 2_999, here + 2_001));
    }

    #[test]
    fn answers_keep_their_age_whatever_the_clocks() {
        let (there, here) = (5_000_000, 900_000);
        let number = PromoNumber::from_e164(18_885_550_000).unwrap();
        for answer in [RecordedAnswer::Number(number), RecordedAnswer::Overflow] {
            let row = RowKey { batch: [3; 16], row: 9 };
            let entry = AnswerEntry { row, at: Millis(there - 700), answer, pool: PoolId(5) };
            let read = read_answer(&answer_word(&entry), Millis(here), Millis(there)).unwrap();
            assert_eq!(read, AnswerEntry { at: Millis(here - 700), pool: PoolId(0), ..entry });
        }
        assert!(read_answer(&([3; 16], 9, 0, 1), Millis(here), Millis(there)).is_none());
    }
}
