//! The messages between the shards of a process, as values.
//!
//! Payloads are at the bottom of the module order: they are independent of their senders and
//! servers. A full queue may refuse a message, but a message is never lost.

use std::sync::Arc;

use bytes::Bytes;
use ringwell_core::VisitorId;
use ringwell_core::{InRotation, Millis, NumberRange, PoolId, PoolSpec, PromoNumber, Retired};
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
    /// The pool, as its index within the receiving shard; meaningless on a link to another node,
    /// which has its own indices.
    pub pool: u32,
    /// The pool's id.
    pub id: PoolId,
    /// The index of the row in the batch.
    pub row: u16,
    /// Two parts of the parameters, as spans of the batch's text.
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
    /// The digest of a repeatable batch.
    pub retry: Option<[u8; 16]>,
    /// The time after which no caller waits for the answer.
    pub deadline: Moment,
    /// The trace that a request to another node belongs to.
    pub traced: Option<Traced>,
    /// The receiver of the answer.
    pub reply: oneshot::Sender<PeerAnswer>,
}

/// The outcomes of [`PeerRows`], in their order.
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
    /// The time of the allocation by the owner's clock.
    pub allocated_at: Millis,
    /// Whether it can be requested again, by its visitor or by a repeated batch.
    pub is_kept: bool,
}

impl Unanswered {
    /// The number of `outcome`, if it has one, as not seen by any client. If a row repeated an
    /// older allocation, that was not made at `allocated_at`, so nothing is undone.
    #[must_use]
    pub fn new(outcome: &Outcome, allocated_at: Millis) -> Option<Self> {
        let (number, is_kept) = match *outcome {
            Outcome::Allocated { number } => (number, false),
            Outcome::Kept { number } => (number, true),
            Outcome::Exhausted { .. } | Outcome::Refused(_) => return None,
        };
        Some(Self { number, allocated_at, is_kept })
    }
}

/// A request from other shards.
#[derive(Debug)]
pub enum Message {
    /// Allocates for rows.
    Rows(PeerRows),
    /// Releases numbers that no client saw.
    Unanswered(Vec<Unanswered>),
    /// Ends a lockout on request.
    Release {
        /// The number.
        number: PromoNumber,
        /// Only if it was handed out at this time.
        allocated_at: Option<Millis>,
        /// Only if its visitor has not extended the lockout after this time.
        seen_at: Option<Millis>,
        /// Whether it was locked.
        reply: oneshot::Sender<Result<bool, Refusal>>,
    },
    /// Asks for the holder of a number.
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
    /// Takes a step from one state of the directory to the next.
    Change(Step, oneshot::Sender<StepResult>),
    /// Asks to adopt the previous owner's state of the numbers of buckets.
    Adopt {
        /// The previous owner's state.
        adopted: Adopted,
        /// Completes when the state is durable.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Asks the node of another shard for the owners of buckets.
    LearnOwners {
        /// A shard of that node.
        of: u16,
        /// Sent when the answer, if any, has been applied.
        reply: oneshot::Sender<()>,
    },
    /// Sends a request to the node of a shard over its link.
    Post {
        /// The path of the request.
        path: Path,
        /// The body of the request.
        body: Bytes,
        /// The answer.
        reply: oneshot::Sender<Result<Bytes, String>>,
    },
    /// Asks for the state of pools.
    Pools(PoolQuery),
    /// Asks for counts.
    Stats(oneshot::Sender<ShardStats>),
    /// Asks for the time: a ping through the queue that rows use.
    Ping(oneshot::Sender<Millis>),
}

/// A step that a shard takes from one state of the directory to the next.
#[derive(Debug)]
pub enum Step {
    /// Pools leave, by their indices; other pools lose numbers.
    Leave {
        /// Pools that leave.
        removed: Vec<(u32, PoolId)>,
        /// Pools with the numbers that they keep.
        smaller: Vec<(u32, PoolSpec)>,
    },
    /// Asks for the state of these numbers.
    Tell {
        /// The numbers.
        numbers: Vec<NumberRange>,
        /// Whether to include numbers without a current lockout.
        is_free_too: bool,
    },
    /// Asks for the complete state of these numbers and of those that pools of these buckets had,
    /// and for repeatable batches.
    TellAll {
        /// The numbers.
        numbers: Vec<NumberRange>,
        /// The buckets.
        buckets: Vec<u16>,
    },
    /// Asks which pools are held.
    TellHolds {
        /// Whether to include holds that are over.
        is_past_too: bool,
    },
    /// Asks for the journal's progress.
    TellStored,
    /// Holds the pools of these buckets.
    HoldBuckets(BucketHolds),
    /// Takes over the state of other shards, and the holds of arriving numbers; then adds pools,
    /// and numbers to other pools.
    Enter {
        /// The newest allocation of each arriving number.
        known: Vec<Retired>,
        /// The answers that rows of repeatable batches would get.
        answers: Vec<AnswerEntry>,
        /// Held pools, and the end of each hold.
        holds: Vec<(PoolId, Millis)>,
        /// The pools.
        put: Vec<(u32, PoolSpec)>,
    },
    /// Looks rows up in this state from now on.
    Use(Arc<Directory>),
}

/// The end of each pool's hold, present or past; `None` for all pools.
pub type Holds = Vec<(Option<PoolId>, Millis)>;

/// A shard's answer to a [`Step`].
#[derive(Debug)]
pub enum StepResult {
    /// The step was taken.
    Taken,
    /// The state of the numbers.
    Known(Vec<Retired>),
    /// The state of numbers and repeatable batches, and all holds, including expired ones.
    All(Known, Holds),
    /// Held pools, or all present and future ones, and the end of the hold.
    Holds(Holds),
    /// Groups up to this one are durable.
    Stored(u64),
    /// A pool cannot have a number.
    Clash(PoolId, InRotation),
}

/// The state of numbers at one point in time.
#[derive(Debug)]
pub struct Known {
    /// The newest allocation of each number, in rising order.
    pub numbers: Vec<Retired>,
    /// The answers that rows of repeatable batches would get.
    pub answers: Vec<AnswerEntry>,
    /// The time.
    pub at: Millis,
}
