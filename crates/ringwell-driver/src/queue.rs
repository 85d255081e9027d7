//! The queues to all shards.
//!
//! Each queue is bounded. If a shard's queue is full, rows for that shard overflow. Messages in the
//! queue for another node's shard are forwarded over a link. A thread without links sends its
//! requests to other nodes through a thread with links.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::message::Message;
use crate::platform::Path;

/// The maximum number of messages that may wait for a shard.
pub const QUEUE_MESSAGES_MAX: usize = 4096;

/// The queues, indexed by shard: the queues of this process's shards, and of this thread's links to
/// other nodes' shards. The entry of a shard without a queue is `None`.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    queues: Vec<Option<mpsc::Sender<Message>>>,
    /// The shard whose thread forwards requests to other nodes.
    forwarder: Option<u16>,
}

impl Peers {
    /// Adds the queue of `shard`.
    pub fn add(&mut self, shard: u16, queue: mpsc::Sender<Message>) {
        let place = usize::from(shard);
        self.queues.resize(self.queues.len().max(place + 1), None);
        self.queues[place] = Some(queue);
    }

    /// Makes the thread of `shard` forward requests to nodes that this thread has no link to.
    #[must_use]
    pub fn forwarding(self, shard: u16) -> Self {
        Self { forwarder: Some(shard), ..self }
    }

    fn queue(&self, shard: u16) -> Option<&mpsc::Sender<Message>> {
        self.queues.get(usize::from(shard)).and_then(Option::as_ref)
    }

    /// Sends `message` to `shard` if the shard's queue has room.
    #[must_use]
    pub fn send(&self, shard: u16, message: Message) -> bool {
        self.queue(shard).is_some_and(|queue| queue.try_send(message).is_ok())
    }

    /// Sends a request to `shard`'s node. Returns `None` if there is no link to that node, or if
    /// the queue is full. If the receiver reports an error, no answer will arrive.
    pub fn post(
        &self,
        shard: u16,
        path: Path,
        body: Bytes,
    ) -> Option<oneshot::Receiver<Result<Bytes, String>>> {
        let by = self.queue(shard).map(|_| shard).or(self.forwarder)?;
        let (reply, answer) = oneshot::channel();
        self.send(by, Message::Post { to: shard, path, body, reply }).then_some(answer)
    }

    /// Sends `message` to `shard` as soon as the shard's queue has room. Returns `false` if there
    /// is no such shard.
    pub async fn send_when_there_is_room(&self, shard: u16, message: Message) -> bool {
        match self.queue(shard) {
            Some(queue) => queue.send(message).await.is_ok(),
            None => false,
        }
    }

    /// Returns all shards that have a queue.
    pub fn shards(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&self.queues).filter(|(_, queue)| queue.is_some()).map(|(shard, _)| shard)
    }

    /// Whether there are several shards.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.queues.len() > 1
    }
}
