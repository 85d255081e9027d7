//! The messages between a process's shards, as values.
//!
//! This module only defines the messages; other modules send and process them. A message may be
//! refused if the queue is full, but an accepted message is never lost.

use std::sync::Arc;

use bytes::Bytes;
use ringwell_core::VisitorId;
use ringwell_core::{
    InRotation, Millis, NumberRange, PoolId, PoolSpec, PromoNumber, Retired, Slot,
};
use ringwell_directory::{BucketHolds, Directory};
use ringwell_engine::{Moment as Asked, Outcome, Past, Refusal};
use ringwell_journal::AnswerEntry;
use ringwell_wire::Span;
use tokio::sync::oneshot;

use crate::moves::Adopted;
use crate::platform::{Moment, Path, Traced};
use crate::pool_query::PoolQuery;
use crate::stats::ShardStats;

/// One row of a batch that another shard received.
#[derive(Clone, Copy, Debug)]
pub struct PeerRow {
    /// The pool's index within the shard that owns it. Not used on a link to another node, because
    /// that node has its own indices.
    pub pool: u32,
    /// The pool's id.
    pub id: PoolId,
    /// The row's index in the batch.
    pub row: u16,
    /// Two parts of the parameters, as spans of the text in [`PeerRows::text`].
    pub params: [Span; 2],
    /// The visitor, if the row names one.
    pub visitor: Option<VisitorId>,
}

/// The rows of one batch that one shard owns.
#[derive(Debug)]
pub struct PeerRows {
    /// The text that the rows' spans refer to.
    pub text: Bytes,
    /// The rows.
    pub rows: Vec<PeerRow>,
    /// The batch's digest, if the batch is repeatable.
    pub retry: Option<[u8; 16]>,
    /// The time after which no caller is waiting for the answer.
    pub deadline: Moment,
    /// The trace that a request to another node belongs to.
    pub traced: Option<Traced>,
    /// Receives the answer.
    pub reply: oneshot::Sender<PeerAnswer>,
}

/// The outcomes of [`PeerRows`], in row order.
#[derive(Debug)]
pub struct PeerAnswer {
    /// The time at which the owner accepted the rows.
    pub at: Millis,
    /// One outcome a row.
    pub outcomes: Vec<Outcome>,
}

/// An allocation whose answer was never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The number.
    pub number: PromoNumber,
    /// The time of the allocation, according to the owner's clock.
    pub allocated_at: Millis,
    /// Whether the number can be requested again, by its visitor or by a repeated batch.
    pub is_kept: bool,
}

impl Unanswered {
    /// Returns the number in `outcome` as one that no client has seen; `None` if there is no
    /// number. If the row got the number of an older allocation, that allocation was not made at
    /// `allocated_at`, so it is not released.
    #[must_use]
    pub fn new(outcome: &Outcome, allocated_at: Millis) -> Option<Self> {
        let is_kept = matches!(outcome, Outcome::Kept { .. });
        Some(Self { number: outcome.number()?, allocated_at, is_kept })
    }
}

/// A request to a shard from other shards.
#[derive(Debug)]
pub enum Message {
    /// Allocates for rows.
    Rows(PeerRows),
    /// Releases numbers that no client has seen.
    Unanswered(Vec<Unanswered>),
    /// Ends a lockout on request.
    Release {
        /// The number.
        number: PromoNumber,
        /// If set, the lockout ends only if the number was handed out at this time.
        allocated_at: Option<Millis>,
        /// If set, the lockout ends only if the visitor has not extended it after this time.
        seen_at: Option<Millis>,
        /// Receives whether the number was locked.
        reply: oneshot::Sender<Result<bool, Refusal>>,
    },
    /// Asks for a number's holder.
    Attribution {
        /// The number.
        number: PromoNumber,
        /// The time.
        at: Asked,
        /// Whether to collect the keep-alives of the allocation.
        keep_alives: bool,
        /// The result.
        reply: oneshot::Sender<Result<Past, String>>,
    },
    /// Executes a step of the change from one directory state to the next.
    Change(Step, oneshot::Sender<StepResult>),
    /// Asks the shard to adopt the previous owner's state of the numbers in some buckets.
    Adopt {
        /// The previous owner's state.
        adopted: Adopted,
        /// Receives the result once the state is durable.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Asks another shard's node for the owners of all buckets.
    LearnOwners {
        /// One of the other node's shards.
        of: u16,
        /// Receives a value when the answer has been applied, or when there is no answer.
        reply: oneshot::Sender<()>,
    },
    /// Sends a request over the link to a shard's node.
    Post {
        /// The shard.
        to: u16,
        /// The request's path.
        path: Path,
        /// The request's body.
        body: Bytes,
        /// The answer.
        reply: oneshot::Sender<Result<Bytes, String>>,
    },
    /// Asks for the state of pools.
    Pools(PoolQuery),
    /// Asks for counts.
    Stats(oneshot::Sender<ShardStats>),
    /// Asks for the shard time: a ping through the queue that is also used for rows.
    Ping(oneshot::Sender<Millis>),
}

/// A step in which a shard moves from one directory state to the next.
#[derive(Debug)]
pub enum Step {
    /// Removes pools, and removes numbers from other pools.
    Leave {
        /// Pools that leave.
        removed: Vec<(u32, PoolId)>,
        /// Pools that lose numbers, with the numbers that they keep.
        smaller: Vec<(u32, PoolSpec)>,
    },
    /// Asks for the shard's state of these numbers.
    Report {
        /// The numbers.
        numbers: Vec<NumberRange>,
        /// Whether to include numbers whose lockout is over.
        includes_free: bool,
    },
    /// Asks for the numbers that are locked, whether they are in rotation or not.
    ReportLocked {
        /// The numbers.
        numbers: Vec<NumberRange>,
    },
    /// Asks for the complete state of repeatable batches, these numbers, and the numbers that were
    /// in these buckets' pools.
    ReportAll {
        /// The numbers.
        numbers: Vec<NumberRange>,
        /// The buckets.
        buckets: Vec<u16>,
    },
    /// Asks which pools are held.
    ReportHolds {
        /// Whether to include holds that have ended.
        includes_past: bool,
    },
    /// Asks which group of the journal was stored last.
    TellStored,
    /// Holds the pools of these buckets.
    HoldBuckets(BucketHolds),
    /// Takes over the holds, and adopts the state of the arriving numbers from the other shards.
    /// Then adds pools, and adds numbers to existing pools.
    Enter {
        /// The newest allocation of each arriving number.
        known: Vec<Retired>,
        /// The remembered answers to rows of repeatable batches.
        answers: Vec<AnswerEntry>,
        /// Held pools, with the end of each hold.
        holds: Vec<(PoolId, Millis)>,
        /// The pools.
        put: Vec<(u32, PoolSpec)>,
    },
    /// From now on, looks rows up in this directory state.
    Use(Arc<Directory>),
}

/// The end of each current or past hold of a pool; the pool is `None` if the hold applies to all
/// pools.
pub type Holds = Vec<(Option<PoolId>, Millis)>;

/// A shard's answer to a [`Step`].
#[derive(Debug)]
pub enum StepResult {
    /// The step was executed.
    Taken,
    /// The step was executed, but the journal does not contain all holds.
    Unrecorded,
    /// The state of the numbers.
    Known(Vec<Retired>),
    /// The newest allocation of each locked number.
    Locked(Vec<Slot>),
    /// The state of numbers and repeatable batches, and all holds, including those that have ended.
    All(Known, Holds),
    /// The end of each hold, whether of one pool or of all present and future pools.
    Holds(Holds),
    /// All groups up to this one are durable.
    Stored(u64),
    /// This pool cannot have this number.
    Clash(PoolId, InRotation),
}

/// The state of numbers at one point in time.
#[derive(Debug)]
pub struct Known {
    /// The newest allocation of each number, in ascending order of number.
    pub numbers: Vec<Retired>,
    /// The remembered answers to rows of repeatable batches.
    pub answers: Vec<AnswerEntry>,
    /// The time.
    pub at: Millis,
}
