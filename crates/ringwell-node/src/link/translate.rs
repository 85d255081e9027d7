//! Between what the threads tell each other and what travels between nodes.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_engine::{Held, Outcome, Refusal};
use ringwell_mesh::frame::{self, FrameError, RowAnswer};
use serde::{Deserialize, Serialize};

use crate::mesh::{PeerAnswer, PeerRows};
use crate::node::Node;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The frame that asks for rows. `limit`: nobody waits longer.
pub(super) fn ask(node: &Node, shard: u16, rows: &PeerRows, limit: Duration) -> Bytes {
    let ask = frame::Ask {
        shard,
        remaining_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        map_version: map_version(node),
        retry: rows.retry,
    };
    let row = |row: &crate::mesh::PeerRow| frame::AskRow {
        pool: row.id,
        row: row.row,
        params: row.params.map(|span| span.of(&rows.text)),
        visitor: row.visitor,
    };
    let mut out = Vec::with_capacity(64 + rows.text.len());
    frame::write_ask(&mut out, &ask, rows.rows.iter().map(row));
    out.into()
}

/// What another node answered to `wanted` rows.
///
/// # Errors
/// [`FrameError`] if it is no such answer.
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

/// An outcome as it travels.
pub(super) fn row_answer(outcome: &Outcome) -> RowAnswer {
    match *outcome {
        Outcome::Allocated { number } => RowAnswer::Allocated { number },
        Outcome::Kept { number } => RowAnswer::Kept { number },
        Outcome::Exhausted { until } => RowAnswer::Exhausted { until },
        Outcome::Refused(Refusal::JournalFull) => RowAnswer::JournalFull,
        Outcome::Refused(Refusal::JournalFailed) => RowAnswer::JournalFailed,
        Outcome::Refused(Refusal::Late) => RowAnswer::Late,
        Outcome::Refused(Refusal::Busy | Refusal::Paced | Refusal::Unreachable) => RowAnswer::Busy,
        Outcome::Refused(Refusal::Moved) => RowAnswer::Moved,
    }
}

/// Which state of the map this node has.
pub(super) fn map_version(node: &Node) -> u64 {
    node.membership.as_ref().map_or(0, |membership| membership.cluster().version())
}

/// A look-up as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttributionJson {
    pub(super) shard: u16,
    number: u64,
    at: u64,
}

impl AttributionJson {
    pub(super) fn new(shard: u16, number: PromoNumber, at: Millis) -> Self {
        Self { shard, number: number.to_u64(), at: at.0 }
    }

    /// `None` if the number is none.
    pub(super) fn wanted(&self) -> Option<(PromoNumber, Millis)> {
        Some((PromoNumber::from_u64(self.number)?, Millis(self.at)))
    }
}

/// The end of a lockout as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseJson {
    pub(super) shard: u16,
    number: u64,
    allocated_at: Option<u64>,
}

impl ReleaseJson {
    pub(super) fn new(shard: u16, number: PromoNumber, allocated_at: Option<Millis>) -> Self {
        Self { shard, number: number.to_u64(), allocated_at: allocated_at.map(|at| at.0) }
    }

    /// `None` if the number is none.
    pub(super) fn wanted(&self) -> Option<(PromoNumber, Option<Millis>)> {
        Some((PromoNumber::from_u64(self.number)?, self.allocated_at.map(Millis)))
    }
}

/// Who held a number, as it travels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldJson {
    pool: Option<u64>,
    allocated_at: u64,
    locked_until: u64,
    params: Vec<u8>,
    next_allocated_at: Option<u64>,
}

impl From<Held> for HeldJson {
    fn from(held: Held) -> Self {
        Self {
            pool: held.pool.map(|pool| pool.0),
            allocated_at: held.allocated_at.0,
            locked_until: held.locked_until.0,
            params: held.params,
            next_allocated_at: held.next_allocated_at.map(|at| at.0),
        }
    }
}

impl From<HeldJson> for Held {
    fn from(held: HeldJson) -> Self {
        Self {
            pool: held.pool.map(PoolId),
            allocated_at: Millis(held.allocated_at),
            locked_until: Millis(held.locked_until),
            params: held.params,
            next_allocated_at: held.next_allocated_at.map(Millis),
        }
    }
}
