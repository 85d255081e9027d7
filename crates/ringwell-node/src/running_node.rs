//! A handle to a running node, for the part of the process that maintains the directory. The handle
//! sends pool changes to the node, and returns the shards' data about pools.
//!
//! This module does not depend on where the directory is stored.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_directory::RingPool;
use ringwell_journal::{Noted, believed_wall};
use ringwell_os::Clock;
use tokio::sync::{mpsc, oneshot};

use ringwell_driver::Platform;

use crate::platform::Tokio;
use crate::pools::{asked, become_next, go_on, look_at, other_owner, refused, take};
use crate::server::Server;
use ringwell_driver::pool_query::{PoolAsked, PoolQuery, PoolState};
use ringwell_driver::queue::Peers;

/// The maximum number of orders that may be waiting.
const ORDERS_MAX: usize = 64;

/// The interval between two checks of whether pools can get the overflow numbers that visitors
/// held.
const GO_ON_EVERY: Duration = Duration::from_secs(1);

/// A handle to a running node. Orders wait until the node runs. An order that is sent after the
/// node has ended fails.
#[derive(Clone, Debug)]
pub struct RunningNode {
    orders: mpsc::Sender<Order>,
    clock: Arc<OnceLock<ClockAndNotes>>,
}

/// The clock of a running node, and the clock readings that are recorded in its journals, newest
/// first.
type ClockAndNotes = (Clock, Vec<Noted>);

/// The receiving end of the orders, which is passed to [`crate::serve`].
#[derive(Debug)]
pub struct Orders {
    orders: mpsc::Receiver<Order>,
    clock: Arc<OnceLock<ClockAndNotes>>,
}

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
    OtherOwner { pool: PoolId, reply: oneshot::Sender<Option<String>> },
    Refused { pool: PoolId, reply: oneshot::Sender<Vec<(&'static str, u64)>> },
    Unused { pool: PoolId, since: Millis, reply: oneshot::Sender<Option<Vec<NumberRange>>> },
    Asked { reply: oneshot::Sender<Vec<PoolAsked>> },
    Sites(Vec<Site>),
    Current,
}

/// Creates a handle, and the receiving end of its orders.
#[must_use]
pub fn order_channel() -> (RunningNode, Orders) {
    let (sender, orders) = mpsc::channel(ORDERS_MAX);
    let clock = Arc::default();
    (RunningNode { orders: sender, clock: Arc::clone(&clock) }, Orders { orders, clock })
}

impl RunningNode {
    /// Returns the node's own time, which does not leap when the wall clock is set. Before the node
    /// runs, returns the time of the wall clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        let wall = || Millis(u64::try_from(Tokio.wall().as_millis()).unwrap_or(u64::MAX));
        self.clock.get().map_or_else(wall, |(clock, _)| clock.now())
    }

    /// Returns the wall-clock time to use when deciding whether data is old. If the wall clock may
    /// have been set ahead, returns an earlier time: the node's own time, or [`believed_wall`].
    #[must_use]
    pub fn believed_wall(&self) -> Millis {
        let Some((clock, noted)) = self.clock.get() else { return self.now() };
        let now = clock.now();
        now.min(believed_wall(now, clock.clocks(), noted.iter().copied()))
    }

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

    /// Returns the name of the node that owns `pool`; `None` if this node owns the pool.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn other_owner(&self, pool: PoolId) -> Result<Option<String>, OrderError> {
        self.ask(|reply| Order::OtherOwner { pool, reply }).await
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
    /// number is not included. The list is empty if no shard of this node owns the pool. Returns
    /// `None` if it is not known which numbers visitors have held since then.
    ///
    /// # Errors
    /// [`OrderError::Stopping`].
    pub async fn unused(
        &self,
        pool: PoolId,
        since: Millis,
    ) -> Result<Option<Vec<NumberRange>>, OrderError> {
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
        let _ = self.orders.send(Order::Sites(sites)).await;
    }

    async fn ask<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Result<T, OrderError> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(order(reply)).await.map_err(|_| OrderError::Stopping)?;
        answer.await.map_err(|_| OrderError::Stopping)
    }

    /// Reports that the node's directory was just confirmed to be current. `/healthz` shows how
    /// much time has passed since the last such report.
    pub async fn is_current(&self) {
        // A node that is shutting down needs no such reports.
        let _ = self.orders.send(Order::Current).await;
    }
}

/// Carries out orders until all senders are dropped, and gives pools the overflow numbers that
/// visitors held.
pub(crate) async fn carry_out(server: Arc<Server>, peers: Peers, clock: Clock, orders: Orders) {
    let mut noted = server.node.begun.noted.clone();
    noted.sort_by_key(|noted| Reverse(noted.at));
    // Only one node carries out the orders, so the clock is set once.
    let _ = orders.clock.set((clock, noted));
    let (node, others) = (Arc::clone(&server.node), peers.clone());
    let check = async {
        let mut check = tokio::time::interval(GO_ON_EVERY);
        loop {
            check.tick().await;
            if node.withholds() {
                go_on(&node, &others).await;
            }
        }
    };
    tokio::select! {
        () = carry_out_orders(server, peers, orders.orders) => {}
        () = check => {}
    }
}

async fn carry_out_orders(server: Arc<Server>, peers: Peers, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.recv().await {
        let (server, node) = (Arc::clone(&server), Arc::clone(&server.node));
        let peers = peers.clone();
        match order {
            Order::Current => node.directory_is_current(Tokio.moment()),
            Order::Sites(sites) => {
                if let Err(error) = server.sites.serve(&server.node, sites) {
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
            Order::OtherOwner { pool, reply } => {
                let _ = reply.send(other_owner(&node, pool));
            }
            Order::Unused { pool, since, reply } => {
                tokio::spawn(async move {
                    let look = |place, reply| PoolQuery::Unused { place, since, reply };
                    let unused = look_at(&node, &peers, pool, look).await;
                    let _ = reply.send(unused.unwrap_or_else(|| Some(Vec::new())));
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
