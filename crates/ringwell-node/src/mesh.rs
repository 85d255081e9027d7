//! Messages between the shards of a process, and what the management API asks of one.
//!
//! A queue to each shard, bounded: where it is full the rows become overflow, nothing grows.

use std::time::Instant;

use bytes::Bytes;
use ringwell_core::{Millis, PromoNumber, VisitorId};
use ringwell_engine::{Held, Outcome};
use ringwell_wire::Span;
use tokio::sync::{mpsc, oneshot};

use crate::stats::ShardStats;

/// Messages that may wait for a shard.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 4096;

/// One row of a batch that another shard took in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRow {
    /// The pool, counted within the shard that is asked.
    pub(crate) pool: u32,
    /// Which row of the batch it is.
    pub(crate) row: u16,
    pub(crate) params: [Span; 2],
    pub(crate) visitor: Option<VisitorId>,
}

/// The rows of one batch that one shard owns.
#[derive(Debug)]
pub(crate) struct PeerRows {
    /// What the spans of the rows point into.
    pub(crate) text: Bytes,
    pub(crate) rows: Vec<PeerRow>,
    /// Digest of a batch that may be sent again.
    pub(crate) retry: Option<[u8; 16]>,
    /// Nobody waits for the answer after this.
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<PeerAnswer>,
}

/// What became of them, in their order.
#[derive(Debug)]
pub(crate) struct PeerAnswer {
    /// When the owner took them up.
    pub(crate) at: Millis,
    pub(crate) outcomes: Vec<Outcome>,
}

/// An allocation whose answer never left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    pub(crate) slot: u32,
    pub(crate) allocated_at: Millis,
}

/// What a shard can be asked by others.
#[derive(Debug)]
pub(crate) enum Message {
    /// Allocate.
    Rows(PeerRows),
    /// End lockouts of numbers that no client saw.
    Unanswered(Vec<Unanswered>),
    /// End a lockout because somebody asked for it.
    Release {
        number: PromoNumber,
        allocated_at: Option<Millis>,
        reply: oneshot::Sender<Result<bool, ringwell_engine::Refusal>>,
    },
    /// Who held a number.
    Attribution {
        number: PromoNumber,
        at: Millis,
        reply: oneshot::Sender<Result<Option<Held>, String>>,
    },
    /// How it goes.
    Stats(oneshot::Sender<ShardStats>),
}

/// The ways to all shards of the process, by shard.
#[derive(Clone, Debug)]
pub(crate) struct Peers(pub(crate) Vec<mpsc::Sender<Message>>);

impl Peers {
    /// Hands `message` to `shard` if its queue has room.
    pub(crate) fn send(&self, shard: usize, message: Message) -> bool {
        self.0[shard].try_send(message).is_ok()
    }
}
