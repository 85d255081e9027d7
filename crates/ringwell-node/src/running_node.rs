//! A handle to a running node, for the part of the process that maintains the directory. The handle
//! sends pool changes to the node, and returns the shards' data about pools.
//!
//! This module does not depend on where the directory is stored.

use std::sync::Arc;

use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_directory::{Directory, Fault, RingPool};
use tokio::sync::{mpsc, oneshot};

use ringwell_driver::Platform;

use crate::platform::Tokio;
use crate::server::Server;
use crate::site;
use ringwell_driver::change;
use ringwell_driver::message::Message;
use ringwell_driver::node::Node;
use ringwell_driver::pool_query::{PoolAsked, PoolQuery, PoolSlot, PoolState};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::Reason;

/// The maximum number of orders that may be waiting.
const ORDERS_MAX: usize = 64;

/// The maximum number of pools that a shard examines at once, between two batches.
const LOOK_AT_ONCE: usize = 256;

/// A handle to a running node. Orders wait until the node runs. An order that is sent after the
/// node has ended fails.
#[derive(Clone, Debug)]
pub struct RunningNode(mpsc::Sender<Order>);

/// The receiving end of the orders, which is passed to [`crate::serve`].
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<Order>);

/// The reason why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The change would break a rule that concerns several pools, or a number cannot be added to
    /// its pool yet.
    #[error("{0}")]
    Refused(String),
    /// The node has ended, or is about to end.
    #[error("the server is stopping")]
    Stopping,
}

#[derive(Debug)]
enum Order {
    Change { put: Vec<RingPool>, removed: Vec<PoolId>, reply: oneshot::Sender<Result<(), String>> },
    Replace { all: Vec<RingPool>, reply: oneshot::Sender<Result<(), String>> },
    State { pool: PoolId, reply: oneshot::Sender<Option<PoolState>> },
    Refused { pool: PoolId, reply: oneshot::Sender<Vec<(&'static str, u64)>> },
    Unused { pool: PoolId, since: Millis, reply: oneshot::Sender<Vec<NumberRange>> },
    Asked { reply: oneshot::Sender<Vec<PoolAsked>> },
    Sites(Vec<Site>),
    Current,
}

/// Creates a handle, and the receiving end of its orders.
#[must_use]
pub fn order_channel() -> (RunningNode, Orders) {
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    (RunningNode(sender), Orders(orders))
}

impl RunningNode {
    /// Adds or updates the pools `put` on all shards of the node, and removes the pools `removed`.
    /// Returns when every shard uses the new pools.
    ///
    /// # Errors
    /// Returns an [`OrderError`]. A refused change has no effect.
    pub async fn change(&self, put: Vec<RingPool>, removed: Vec<PoolId>) -> Result<(), OrderError> {
        let taken = self.ask(|reply| Order::Change { put, removed, reply }).await?;
        taken.map_err(OrderError::Refused)
    }

    /// Replaces all of the node's pools with `all`. Like [`Self::change`], returns when every shard
    /// uses the new pools. Unchanged pools take little time.
    ///
    /// # Errors
    /// Returns an [`OrderError`]. A refused change has no effect.
    pub async fn replace(&self, all: Vec<RingPool>) -> Result<(), OrderError> {
        let taken = self.ask(|reply| Order::Replace { all, reply }).await?;
        taken.map_err(OrderError::Refused)
    }

    /// Returns the current state of `pool`; `None` if no shard of this node owns the pool.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn state(&self, pool: PoolId) -> Result<Option<PoolState>, OrderError> {
        self.ask(|reply| Order::State { pool, reply }).await
    }

    /// Counts the rows for `pool` that got an overflow number or no number although the pool was
    /// not exhausted. Returns the counts since the node started, by reason.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn refused(&self, pool: PoolId) -> Result<Vec<(&'static str, u64)>, OrderError> {
        self.ask(|reply| Order::Refused { pool, reply }).await
    }

    /// Returns the numbers of `pool` that no visitor has held since the time `since`. The overflow
    /// number is not included. The list is empty if no shard of this node owns the pool.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn unused(
        &self,
        pool: PoolId,
        since: Millis,
    ) -> Result<Vec<NumberRange>, OrderError> {
        self.ask(|reply| Order::Unused { pool, since, reply }).await
    }

    /// Returns the demand for each pool that this node serves.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn asked(&self) -> Result<Vec<PoolAsked>, OrderError> {
        self.ask(|reply| Order::Asked { reply }).await
    }

    /// Serves exactly these web sites from now on.
    pub async fn sites(&self, sites: Vec<Site>) {
        // A node that is shutting down serves no web sites.
        let _ = self.0.send(Order::Sites(sites)).await;
    }

    async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Result<T, OrderError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(order(reply)).await.map_err(|_| OrderError::Stopping)?;
        answer.await.map_err(|_| OrderError::Stopping)
    }

    /// Reports that the node's directory was just confirmed to be current. `/healthz` shows how
    /// much time has passed since the last such report.
    pub async fn is_current(&self) {
        // A node that is shutting down needs no such reports.
        let _ = self.0.send(Order::Current).await;
    }
}

/// Carries out orders until all senders are dropped.
pub(crate) async fn carry_out(server: Arc<Server>, peers: Peers, Orders(mut orders): Orders) {
    while let Some(order) = orders.recv().await {
        let (server, node) = (Arc::clone(&server), Arc::clone(&server.node));
        let peers = peers.clone();
        match order {
            Order::Current => node.directory_is_current(Tokio.moment()),
            Order::Sites(sites) => {
                if let Err(error) = site::serve(&server, sites) {
                    tracing::error!(
                        %error,
                        "cannot apply the new web sites: the previous ones stay in use"
                    );
                }
            }
            Order::Change { put, removed, reply } => {
                tokio::spawn(async move {
                    let changed: Vec<PoolId> =
                        put.iter().map(RingPool::id).chain(removed.iter().copied()).collect();
                    let taken = take(&node, &peers, put, &removed).await;
                    if let Some(application) = server.application.as_ref().filter(|_| taken.is_ok())
                    {
                        for pool in &changed {
                            application.disown(*pool);
                        }
                    }
                    let _ = reply.send(taken);
                });
            }
            Order::Replace { all, reply } => {
                tokio::spawn(async move {
                    let all: Vec<_> = all.into_iter().map(Arc::new).collect();
                    let taken =
                        become_next(&node, &peers, move |before| before.replace(&all)).await;
                    if let Some(application) = server.application.as_ref().filter(|_| taken.is_ok())
                    {
                        application.disown_all();
                    }
                    let _ = reply.send(taken);
                });
            }
            Order::State { pool, reply } => {
                tokio::spawn(async move {
                    let look = |place, reply| PoolQuery::State { place, reply };
                    let _ = reply.send(look_at(&node, &peers, pool, look).await.flatten());
                });
            }
            Order::Unused { pool, since, reply } => {
                tokio::spawn(async move {
                    let look = |place, reply| PoolQuery::Unused { place, since, reply };
                    let unused = look_at(&node, &peers, pool, look).await;
                    let _ = reply.send(unused.unwrap_or_default());
                });
            }
            Order::Refused { pool, reply } => {
                tokio::spawn(async move {
                    let _ = reply.send(refused(&node, &peers, pool).await);
                });
            }
            Order::Asked { reply } => {
                tokio::spawn(async move {
                    let _ = reply.send(asked(&node, &peers).await);
                });
            }
        }
    }
}

/// Adds the pools `put` to the directory of this process, and removes the pools `removed`.
///
/// # Errors
/// If nothing was changed, returns the reason.
pub(crate) async fn take(
    node: &Node,
    peers: &Peers,
    put: Vec<RingPool>,
    removed: &[PoolId],
) -> Result<(), String> {
    let removed = removed.to_vec();
    become_next(node, peers, move |before| before.change(put, &removed)).await
}

/// Replaces the directory of this process with the one that `make` derives from it.
///
/// # Errors
/// If nothing was changed, returns the reason.
async fn become_next(
    node: &Node,
    peers: &Peers,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>> + Send + 'static,
) -> Result<(), String> {
    let _one = node.changes.lock().await;
    let taken = change::apply(&Tokio, node, peers, make).await;
    taken.map(drop).map_err(|error| error.to_string())
}

/// Sends a query to the shard that owns `pool`, if that shard is on this node.
pub(crate) async fn look_at<T>(
    node: &Node,
    peers: &Peers,
    pool: PoolId,
    look: impl FnOnce(PoolSlot, oneshot::Sender<T>) -> PoolQuery,
) -> Option<T> {
    let directory = node.directory();
    let entry = directory.lookup(pool).filter(|entry| node.is_own(entry.shard()))?;
    let (reply, answer) = oneshot::channel();
    let look = Message::Pools(look((entry.index(), pool), reply));
    peers.send_when_there_is_room(entry.shard(), look).await;
    answer.await.ok()
}

/// Adds up the counts of all threads, because each thread counts only the rows that it received.
pub(crate) async fn refused(node: &Node, peers: &Peers, pool: PoolId) -> Vec<(&'static str, u64)> {
    let mut counts = [0; Reason::ALL.len()];
    for shard in peers.shards().filter(|shard| node.is_own(*shard)) {
        let (reply, answer) = oneshot::channel();
        let look = Message::Pools(PoolQuery::Refused { pool, reply });
        peers.send_when_there_is_room(shard, look).await;
        let more = answer.await.unwrap_or_default();
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    Reason::ALL.iter().map(|reason| reason.name()).zip(counts).filter(|(_, n)| *n > 0).collect()
}

/// Queries each shard in several small steps, so that no shard delays its rows for long.
pub(crate) async fn asked(node: &Node, peers: &Peers) -> Vec<PoolAsked> {
    let directory = node.directory();
    let mut asked = Vec::with_capacity(directory.pool_count());
    for shard in peers.shards().filter(|shard| node.is_own(*shard)) {
        let place = |pool: &Arc<RingPool>| {
            directory.lookup(pool.id()).map(|entry| (entry.index(), pool.id()))
        };
        let mut all = directory.pools_of(shard).filter_map(place).peekable();
        while all.peek().is_some() {
            let places = all.by_ref().take(LOOK_AT_ONCE).collect();
            let (reply, answer) = oneshot::channel();
            let look = Message::Pools(PoolQuery::Asked { places, reply });
            peers.send_when_there_is_room(shard, look).await;
            asked.extend(answer.await.unwrap_or_default());
        }
    }
    asked
}

#[cfg(test)]
mod pauses;
#[cfg(test)]
mod turns;
