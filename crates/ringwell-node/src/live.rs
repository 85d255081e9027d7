//! The way into a running node for whoever keeps its directory: changes of pools go in, what the
//! shards know of pools comes out.
//!
//! Knows nothing of where the directory is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringwell_core::{Millis, PoolId};
use ringwell_directory::RingPool;
use tokio::sync::{mpsc, oneshot};

use crate::change;
use crate::mesh::{Message, Peers};
use crate::node::Node;

/// Orders that may wait.
const ORDERS_MAX: usize = 64;

/// A handle on a running node. Orders given before it runs, or after it has ended, wait or fail.
#[derive(Clone, Debug)]
pub struct Live(mpsc::Sender<Order>);

/// The other end: to be given to [`crate::serve`].
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<Order>);

/// A pool as its shard has it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The pool.
    pub pool: PoolId,
    /// The shard that owns it.
    pub shard: u16,
    /// Numbers in rotation.
    pub numbers: u32,
    /// How many of them are locked out.
    pub locked: u32,
    /// When the next number comes free, if none is; or when the pool is no longer held.
    pub next_free: Option<Millis>,
    /// Numbers handed out since the pool came to this process; counted modulo 2^32.
    pub allocated: u32,
    /// Rows that found every number locked, in the same way.
    pub exhausted: u32,
}

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Rules between pools are broken, or a number cannot go where it should yet.
    #[error("{0}")]
    Refused(String),
    /// The node has ended, or is about to.
    #[error("the server is stopping")]
    Stopping,
}

#[derive(Debug)]
enum Order {
    Change { put: Vec<RingPool>, removed: Vec<PoolId>, reply: oneshot::Sender<Result<(), String>> },
    States { pools: Vec<PoolId>, reply: oneshot::Sender<Vec<PoolState>> },
    Current,
}

/// A handle and its other end.
#[must_use]
pub fn live() -> (Live, Orders) {
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    (Live(sender), Orders(orders))
}

impl Live {
    /// Brings pools into the rotation of all shards of the node, as they are now, and takes others
    /// out of it. Returns when every shard goes by it.
    ///
    /// # Errors
    /// [`LiveError`]; a change that was refused leaves everything as it was.
    pub async fn change(&self, put: Vec<RingPool>, removed: Vec<PoolId>) -> Result<(), LiveError> {
        let (reply, answer) = oneshot::channel();
        let order = Order::Change { put, removed, reply };
        self.0.send(order).await.map_err(|_| LiveError::Stopping)?;
        answer.await.map_err(|_| LiveError::Stopping)?.map_err(LiveError::Refused)
    }

    /// What the shards of this node know of `pools`. Pools of other nodes are left out, and those
    /// that there are not.
    ///
    /// # Errors
    /// [`LiveError::Stopping`].
    pub async fn states(&self, pools: Vec<PoolId>) -> Result<Vec<PoolState>, LiveError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Order::States { pools, reply }).await.map_err(|_| LiveError::Stopping)?;
        answer.await.map_err(|_| LiveError::Stopping)
    }

    /// The directory has just been seen to be as the node has it: `/healthz` tells how long that is
    /// ago.
    pub async fn is_current(&self) {
        // A node that is stopping needs no news.
        let _ = self.0.send(Order::Current).await;
    }
}

/// Carries orders out until nobody gives any more.
pub(crate) async fn carry_out(node: Arc<Node>, peers: Peers, Orders(mut orders): Orders) {
    while let Some(order) = orders.recv().await {
        let (node, peers) = (Arc::clone(&node), peers.clone());
        match order {
            Order::Current => node.directory_is_current(),
            Order::Change { put, removed, reply } => {
                tokio::spawn(async move {
                    let _ = reply.send(take(&node, &peers, put, &removed).await);
                });
            }
            Order::States { pools, reply } => {
                tokio::spawn(async move {
                    let _ = reply.send(states(&node, &peers, &pools).await);
                });
            }
        }
    }
}

/// Brings `put` into the directory of this process, and takes `removed` out of it.
///
/// # Errors
/// Why everything stays as it was.
pub(crate) async fn take(
    node: &Node,
    peers: &Peers,
    put: Vec<RingPool>,
    removed: &[PoolId],
) -> Result<(), String> {
    let _one = node.changes.lock().await;
    let before = node.directory();
    let pools = before.changed(put, removed);
    let next = before.succeed(before.version() + 1, pools, before.placement().clone());
    let next = next
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    change::apply(node, peers, Arc::new(next)).await.map_err(|error| error.to_string())
}

async fn states(node: &Node, peers: &Peers, pools: &[PoolId]) -> Vec<PoolState> {
    let directory = node.directory();
    let mut by_shard: BTreeMap<u16, Vec<(u32, PoolId)>> = BTreeMap::new();
    for pool in pools {
        if let Some(entry) = directory.lookup(*pool).filter(|entry| node.is_own(entry.shard())) {
            by_shard.entry(entry.shard()).or_default().push((entry.index(), *pool));
        }
    }
    let mut states = Vec::with_capacity(pools.len());
    for (shard, pools) in by_shard {
        let (reply, answer) = oneshot::channel();
        if peers.send_when_there_is_room(shard, Message::States { pools, reply }).await {
            states.extend(answer.await.unwrap_or_default());
        }
    }
    states
}
