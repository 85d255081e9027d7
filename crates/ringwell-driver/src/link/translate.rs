//! Translates between the messages that threads exchange and the frames that nodes exchange.

use std::time::Duration;

use bytes::Bytes;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_engine::{KeepAlives, Missing, Moment, Outcome, Past, PastAllocation, Refusal};
use ringwell_mesh::frame::{self, FrameError, RowAnswer};
use serde::{Deserialize, Serialize};

use crate::message::{PeerAnswer, PeerRows};
use crate::node::Node;

/// Returns the frame that requests rows. `limit` is the longest time to wait for the answer.
pub(super) fn ask(node: &Node, shard: u16, rows: &PeerRows, limit: Duration) -> Bytes {
    let ask = frame::Ask {
        shard,
        remaining_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        map_version: map_version(node),
        retry: rows.retry,
    };
    let row = |row: &crate::message::PeerRow| frame::AskRow {
        pool: row.id,
        row: row.row,
        params: row.params.map(|span| span.of(&rows.text)),
        visitor: row.visitor,
    };
    let mut out = Vec::with_capacity(64 + rows.text.len());
    frame::write_ask(&mut out, &ask, rows.rows.iter().map(row));
    out.into()
}

/// Reads another node's answer to `wanted` rows.
///
/// # Errors
/// Returns [`FrameError`] if `bytes` is not such an answer.
pub(super) fn answer(bytes: &[u8], wanted: usize) -> Result<PeerAnswer, FrameError> {
    let answer = frame::read_answer(bytes, wanted)?;
    let outcome = |row: &RowAnswer| match *row {
        RowAnswer::Allocated { number } => Outcome::Allocated { number },
        RowAnswer::Kept { number } => Outcome::Kept { number },
        RowAnswer::Exhausted { until } => Outcome::Exhausted { until },
        RowAnswer::JournalFull => Outcome::Refused(Refusal::JournalFull),
        RowAnswer::JournalFailed => Outcome::Refused(Refusal::JournalFailed),
        RowAnswer::Late => Outcome::Refused(Refusal::Late),
        RowAnswer::Busy => Outcome::Refused(Refusal::Busy),
        RowAnswer::Moved => Outcome::Refused(Refusal::Moved),
    };
    Ok(PeerAnswer { at: answer.at, outcomes: answer.rows.iter().map(outcome).collect() })
}

/// Converts an outcome to the form that is sent between nodes.
pub(super) fn row_answer(outcome: &Outcome) -> RowAnswer {
    match *outcome {
        Outcome::Allocated { number } => RowAnswer::Allocated { number },
        Outcome::Kept { number } => RowAnswer::Kept { number },
        Outcome::Exhausted { until } => RowAnswer::Exhausted { until },
        Outcome::Refused(Refusal::JournalFull) => RowAnswer::JournalFull,
        Outcome::Refused(Refusal::JournalFailed) => RowAnswer::JournalFailed,
        Outcome::Refused(Refusal::Late) => RowAnswer::Late,
        Outcome::Refused(
            Refusal::Busy | Refusal::JournalWaits | Refusal::Paced | Refusal::Unreachable,
        ) => RowAnswer::Busy,
        Outcome::Refused(Refusal::Moved) => RowAnswer::Moved,
    }
}

/// Returns the version of this node's map.
pub(super) fn map_version(node: &Node) -> u64 {
    node.membership.as_ref().map_or(0, |membership| membership.cluster().version())
}

/// A look-up in the form that is sent between nodes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttributionJson {
    pub(super) shard: u16,
    number: u64,
    at: u64,
    /// Whether `at` is in the shard time of the queried node rather than wall-clock time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_shard_time: bool,
    /// Nodes whose release does not support this field refuse requests that contain it. The caller
    /// then shows no keep-alives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keep_alives: bool,
}

impl AttributionJson {
    pub(super) fn new(shard: u16, (number, at): (PromoNumber, Moment), keep_alives: bool) -> Self {
        let (Millis(at), is_shard_time) = match at {
            Moment::Wall(at) => (at, false),
            Moment::Shard(at) => (at, true),
        };
        Self { shard, number: number.to_code(), at, is_shard_time, keep_alives }
    }

    /// Returns `None` if the number is invalid.
    pub(super) fn wanted(&self) -> Option<(PromoNumber, Moment)> {
        let at = Millis(self.at);
        let at = if self.is_shard_time { Moment::Shard(at) } else { Moment::Wall(at) };
        Some((PromoNumber::from_code(self.number)?, at))
    }
}

/// Converts a requested time from this node's wall clock to that of a node whose clock is ahead by
/// `ahead_ms`.
pub(super) fn dated_there(at: Moment, ahead_ms: i64) -> Moment {
    match at {
        Moment::Wall(Millis(at)) => Moment::Wall(Millis(at.saturating_add_signed(ahead_ms))),
        // The allocation is identified by the shard time of the shard that made it.
        Moment::Shard(_) => at,
    }
}

/// Converts an answer's wall-clock times from the clock of a node that is ahead by `ahead_ms` to
/// this node's clock. The times in shard time identify allocations, and stay as they are.
pub(super) fn dated_here(past: Past, ahead_ms: i64) -> Past {
    let here = |Millis(at): Millis| Millis(at.saturating_add_signed(ahead_ms.saturating_neg()));
    let held = past.held.map(|held| PastAllocation {
        allocated_wall: here(held.allocated_wall),
        locked_until: here(held.locked_until),
        next_allocated_at: held.next_allocated_at.map(here),
        keep_alives: held
            .keep_alives
            .map(|it| KeepAlives { at: it.at.into_iter().map(here).collect(), ..it }),
        ..held
    });
    let times = [past.lost_until, past.later_by, past.next, past.overflow_until];
    let [lost_until, later_by, next, overflow_until] = times.map(|at| at.map(here));
    Past { held, lost_until, later_by, next, overflow_until, ..past }
}

/// A request to release a number, in the form that is sent between nodes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseJson {
    pub(super) shard: u16,
    number: u64,
    allocated_at: Option<u64>,
    /// Nodes whose software version does not support this field refuse requests that contain it.
    /// The lockout then runs to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen_at: Option<u64>,
}

/// The fields `allocated_at` and `seen_at` of
/// [`Message::Release`](crate::message::Message::Release).
type When = (Option<Millis>, Option<Millis>);

impl ReleaseJson {
    pub(super) fn new(shard: u16, number: PromoNumber, (allocated_at, seen_at): When) -> Self {
        let (allocated_at, seen_at) = (allocated_at.map(|at| at.0), seen_at.map(|at| at.0));
        Self { shard, number: number.to_code(), allocated_at, seen_at }
    }

    /// Returns `None` if the number is invalid.
    pub(super) fn wanted(&self) -> Option<(PromoNumber, When)> {
        let when = (self.allocated_at.map(Millis), self.seen_at.map(Millis));
        Some((PromoNumber::from_code(self.number)?, when))
    }
}

/// The known history of a number in the form that is sent between nodes: `null` if there is nothing
/// to report. Members that older releases do not recognize are omitted if they contain no
/// information, so that nodes with these releases can read most answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum PastJson {
    Held(HeldJson),
    None(NoHolderJson),
}

/// The answer if there is no holder, with everything else that is known. Nodes with older releases
/// ignore all members but `missing`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NoHolderJson {
    /// An answer with this member names a holder. If a newer release has added a member to it, it
    /// must not be read as an answer without a holder.
    #[serde(default, skip_serializing, deserialize_with = "refuse")]
    #[expect(dead_code, reason = "only its absence matters")]
    allocated_at: (),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<MissingJson>,
    /// The time of the oldest known allocation after the requested time, if another shard made it
    /// or if its wall-clock time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    later: Option<u64>,
    /// A wall-clock time by which the allocation at `later` had already been made. Present only if
    /// the wall-clock time of that allocation is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    later_by: Option<u64>,
    /// Like `later`, but used if the reason for `missing` is a lost period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    later_anyway: Option<u64>,
    /// The end of a period whose records were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_until: Option<u64>,
    /// The time of this shard's oldest allocation after the requested time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// Whether another shard may have handed the number out after the newest allocation that this
    /// shard has recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_doubted: bool,
    /// Whether another shard may have handed the number out before this shard handed it out next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    was_doubted: bool,
    /// The end of the last period in which the number was an overflow number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overflow_until: Option<u64>,
}

/// Fails, because the member must be absent.
fn refuse<'de, D: serde::Deserializer<'de>>(_: D) -> Result<(), D::Error> {
    Err(serde::de::Error::custom("the answer has members of a newer release: upgrade this node"))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldJson {
    pool: Option<u64>,
    allocated_at: u64,
    /// Omitted if it equals `allocated_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocated_wall: Option<u64>,
    locked_until: u64,
    params: Vec<u8>,
    next_allocated_at: Option<u64>,
    /// Present only if keep-alives were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_alives: Option<KeepAlivesJson>,
    /// The reason why this may be the wrong allocation, or why its record is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<MissingJson>,
    /// The time of the next allocation, according to the shard that made it. Present only if
    /// another shard made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    later: Option<u64>,
    /// The time of this shard's own next allocation. Present only together with `later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The end of a period whose records were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_until: Option<u64>,
    /// Whether another shard may have handed the number out after the newest allocation that this
    /// shard has recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_doubted: bool,
    /// Whether another shard may have handed the number out before this shard handed it out next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    was_doubted: bool,
    /// The end of the last period in which the number was an overflow number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overflow_until: Option<u64>,
}

/// The keep-alives of an allocation in the form that is sent between nodes, as wall-clock times.
#[derive(Debug, Serialize, Deserialize)]
struct KeepAlivesJson {
    at: Vec<u64>,
    is_part: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MissingJson {
    NotKept,
    TooLong,
    Damaged,
}

/// Converts a history to the form that is sent between nodes.
pub(super) fn past_to_json(past: Past) -> Option<PastJson> {
    if past == Past::default() {
        return None;
    }
    let Past { held, missing, lost_until, later, next, overflow_until, .. } = past;
    let (is_doubted, was_doubted) = (past.is_doubted, past.was_doubted);
    let missing = missing.map(MissingJson::from);
    let by = past.later_by;
    // Nodes with older releases would take `later` for the newest allocation.
    let (later, anyway) = if past.is_later_sure { (None, later) } else { (later, None) };
    let times = [lost_until, later, anyway, by, next, overflow_until].map(|at| at.map(|at| at.0));
    let [lost_until, later, later_anyway, later_by, next, overflow_until] = times;
    let Some(held) = held.map(HeldJson::from) else {
        return Some(PastJson::None(NoHolderJson {
            allocated_at: (),
            missing,
            later,
            later_by,
            later_anyway,
            lost_until,
            next,
            is_doubted,
            was_doubted,
            overflow_until,
        }));
    };
    // Without `later`, `next` would equal `next_allocated_at`.
    let next = next.filter(|_| later.is_some());
    Some(PastJson::Held(HeldJson {
        missing,
        later,
        next,
        lost_until,
        is_doubted,
        was_doubted,
        overflow_until,
        ..held
    }))
}

/// Converts a history from the form that is sent between nodes.
pub(super) fn past_from_json(past: Option<PastJson>) -> Past {
    match past {
        None => Past::default(),
        Some(PastJson::Held(held)) => {
            let missing = held.missing.map(Missing::from);
            let (is_doubted, was_doubted) = (held.is_doubted, held.was_doubted);
            let times = [held.later, held.next, held.lost_until, held.overflow_until];
            let [later, next, lost_until, overflow_until] = times.map(|at| at.map(Millis));
            let times = Past { later, next, lost_until, overflow_until, ..Past::default() };
            Past { held: Some(held.into()), missing, is_doubted, was_doubted, ..times }
        }
        Some(PastJson::None(none)) => Past {
            held: None,
            missing: none.missing.map(Missing::from),
            is_doubted: none.is_doubted,
            was_doubted: none.was_doubted,
            lost_until: none.lost_until.map(Millis),
            later: none.later.or(none.later_anyway).map(Millis),
            later_by: none.later_by.map(Millis),
            is_later_sure: none.later_anyway.is_some(),
            next: none.next.map(Millis),
            overflow_until: none.overflow_until.map(Millis),
        },
    }
}

impl From<Missing> for MissingJson {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::NotKept => Self::NotKept,
            Missing::TooLong => Self::TooLong,
            Missing::Damaged => Self::Damaged,
        }
    }
}

impl From<MissingJson> for Missing {
    fn from(missing: MissingJson) -> Self {
        match missing {
            MissingJson::NotKept => Self::NotKept,
            MissingJson::TooLong => Self::TooLong,
            MissingJson::Damaged => Self::Damaged,
        }
    }
}

impl From<PastAllocation> for HeldJson {
    fn from(held: PastAllocation) -> Self {
        let is_other = held.allocated_wall != held.allocated_at;
        Self {
            pool: held.pool.map(|pool| pool.0),
            allocated_at: held.allocated_at.0,
            allocated_wall: is_other.then_some(held.allocated_wall.0),
            locked_until: held.locked_until.0,
            params: held.params,
            next_allocated_at: held.next_allocated_at.map(|at| at.0),
            keep_alives: held.keep_alives.map(|it| KeepAlivesJson {
                at: it.at.iter().map(|at| at.0).collect(),
                is_part: it.is_part,
            }),
            missing: None,
            later: None,
            next: None,
            lost_until: None,
            is_doubted: false,
            was_doubted: false,
            overflow_until: None,
        }
    }
}

impl From<HeldJson> for PastAllocation {
    fn from(held: HeldJson) -> Self {
        Self {
            pool: held.pool.map(PoolId),
            allocated_at: Millis(held.allocated_at),
            allocated_wall: Millis(held.allocated_wall.unwrap_or(held.allocated_at)),
            locked_until: Millis(held.locked_until),
            params: held.params,
            next_allocated_at: held.next_allocated_at.map(Millis),
            keep_alives: held.keep_alives.map(|it| KeepAlives {
                at: it.at.into_iter().map(Millis).collect(),
                is_part: it.is_part,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

    use super::*;

    #[test]
    fn reasons_for_missing_records_and_later_allocations_reach_the_other_node() {
        let held = PastAllocation {
            pool: None,
            allocated_at: Millis(10),
            allocated_wall: Millis(12),
            locked_until: Millis(20),
            params: Vec::new(),
            next_allocated_at: None,
            keep_alives: None,
        };
        let later = Some(Millis(15));
        let kinds = [None, Some(Missing::TooLong), Some(Missing::NotKept)];
        let all = kinds.into_iter().flat_map(|it| [(it, None), (it, later)]);
        for ((missing, later), is_doubted) in all.flat_map(|it| [(it, false), (it, true)]) {
            for held in [None, Some(held.clone())] {
                let lost_until = later.filter(|_| held.is_none() == missing.is_some());
                let next = Some(Millis(30)).filter(|_| held.is_none() || later.is_some());
                let overflow_until = Some(Millis(40)).filter(|_| is_doubted);
                let later_by = Some(Millis(17)).filter(|_| held.is_none() && later.is_some());
                let is_later_sure = lost_until.is_some() && held.is_none() && is_doubted;
                let dated = Past { later, later_by, is_later_sure, ..Past::default() };
                let past =
                    Past { held, missing, is_doubted, lost_until, next, overflow_until, ..dated };
                let text = serde_json::to_string(&past_to_json(past.clone())).unwrap();
                assert_eq!(text.contains("missing"), missing.is_some(), "{text}");
                assert_eq!(text.contains("later"), later.is_some(), "{text}");
                assert_eq!(past_from_json(serde_json::from_str(&text).unwrap()), past);
            }
        }
    }

    #[test]
    fn a_holder_with_members_of_a_newer_release_is_not_read_as_no_holder() {
        let held = r#""allocated_at":10,"locked_until":20,"params":[],"pool":1,"#;
        let text = format!("{{{held}\"next_allocated_at\":null,\"was_lent\":true}}");
        assert!(serde_json::from_str::<Option<PastJson>>(&text).is_err(), "{text}");
        let none = r#"{"missing":"not_kept","was_lent":true}"#;
        let none = past_from_json(serde_json::from_str(none).unwrap());
        assert_eq!(none, Past { missing: Some(Missing::NotKept), ..Past::default() });
    }
}
