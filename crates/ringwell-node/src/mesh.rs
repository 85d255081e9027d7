//! Messages between shards, and what the management API asks of one.
//!
//! A queue to each shard, bounded: where it is full the rows become overflow, nothing grows. What
//! is in the queue of a shard of another node goes on over a link ([`crate::link`]).

use std::time::Instant;

use bytes::Bytes;
use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_engine::{Moment, Outcome, Past};
use ringwell_wire::Span;
use tokio::sync::{mpsc, oneshot};

use crate::change::{Done, Step};
use crate::handover::Adopted;
use crate::look::Look;
use crate::stats::ShardStats;

/// Messages that may wait for a shard.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 4096;

/// One row of a batch that another shard took in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRow {
    /// The pool, as its index within the shard that is asked; of no meaning on the way to another
    /// node, whose indices are its own.
    pub(crate) pool: u32,
    /// The pool's id.
    pub(crate) id: PoolId,
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
    pub(crate) number: PromoNumber,
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
    Attribution { number: PromoNumber, at: Moment, reply: oneshot::Sender<Result<Past, String>> },
    /// A step from one state of the directory to the next.
    Change(Step, oneshot::Sender<Done>),
    /// What the owner of buckets before knew of their numbers.
    Adopt { adopted: Adopted, reply: oneshot::Sender<Result<(), String>> },
    /// Something for the node of a shard, by its link.
    Post { path: &'static str, body: Bytes, reply: oneshot::Sender<Result<Bytes, String>> },
    /// How pools are.
    Look(Look),
    /// How it goes.
    Stats(oneshot::Sender<ShardStats>),
    /// What time it is: a sign of life through the queue that rows go through.
    Ping(oneshot::Sender<Millis>),
}

/// The ways to all shards, by shard: to those of this process their queues, to others the queues
/// of this thread's links. Shards that are neither are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(Vec<Option<mpsc::Sender<Message>>>);

impl Peers {
    /// Adds the way to `shard`.
    pub(crate) fn add(&mut self, shard: u16, way: mpsc::Sender<Message>) {
        let place = usize::from(shard);
        self.0.resize(self.0.len().max(place + 1), None);
        self.0[place] = Some(way);
    }

    /// Hands `message` to `shard` if its queue has room.
    pub(crate) fn send(&self, shard: u16, message: Message) -> bool {
        let way = self.0.get(usize::from(shard)).and_then(Option::as_ref);
        way.is_some_and(|way| way.try_send(message).is_ok())
    }

    /// Hands `message` to `shard`, as soon as its queue has room; `false` if there is no such shard.
    pub(crate) async fn send_when_there_is_room(&self, shard: u16, message: Message) -> bool {
        match self.0.get(usize::from(shard)).and_then(Option::as_ref) {
            Some(way) => way.send(message).await.is_ok(),
            None => false,
        }
    }

    /// All shards that there is a way to.
    pub(crate) fn shards(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&self.0).filter(|(_, way)| way.is_some()).map(|(shard, _)| shard)
    }

    /// Whether there is more than one shard.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}
