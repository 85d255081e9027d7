//! The queues to all shards.
//!
//! Each queue is bounded. If a shard's queue is full, rows for that shard overflow. Messages in the
//! queue for a shard of another node are forwarded over a link.

use tokio::sync::mpsc;

use crate::message::Message;

/// The maximum number of messages that may wait for a shard.
pub const QUEUE_MESSAGES_MAX: usize = 4096;

/// The queues, indexed by shard: those of this process's shards, and those of this thread's links
/// to the shards of other nodes. The entry of a shard without a queue is `None`.
#[derive(Clone, Debug, Default)]
pub struct Peers(Vec<Option<mpsc::Sender<Message>>>);

impl Peers {
    /// Adds the queue of `shard`.
    pub fn add(&mut self, shard: u16, queue: mpsc::Sender<Message>) {
        let place = usize::from(shard);
        self.0.resize(self.0.len().max(place + 1), None);
        self.0[place] = Some(queue);
    }

    /// Sends `message` to `shard` if the shard's queue has room.
    #[must_use]
    pub fn send(&self, shard: u16, message: Message) -> bool {
        let queue = self.0.get(usize::from(shard)).and_then(Option::as_ref);
        queue.is_some_and(|queue| queue.try_send(message).is_ok())
    }

    /// Sends `message` to `shard` as soon as the shard's queue has room. Returns `false` if there
    /// is no such shard.
    pub async fn send_when_there_is_room(&self, shard: u16, message: Message) -> bool {
        match self.0.get(usize::from(shard)).and_then(Option::as_ref) {
            Some(queue) => queue.send(message).await.is_ok(),
            None => false,
        }
    }

    /// Returns all shards that have a queue.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&self.0).filter(|(_, queue)| queue.is_some()).map(|(shard, _)| shard)
    }

    /// Whether there are several shards.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}
