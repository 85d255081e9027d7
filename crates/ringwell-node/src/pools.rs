//! Changes this process's ring pools, and queries the shards about them.

use std::sync::Arc;

use ringwell_core::PoolId;
use ringwell_directory::{Directory, Fault, RingPool};
use tokio::sync::oneshot;

use crate::platform::Tokio;
use ringwell_driver::message::Message;
use ringwell_driver::node::Node;
use ringwell_driver::partial_change;
use ringwell_driver::pool_query::{PoolAsked, PoolQuery, PoolSlot};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::Reason;

/// The maximum number of pools that a shard examines at once, between two batches.
const LOOK_AT_ONCE: usize = 256;

/// Adds the pools `put` to this process's directory, and removes the pools `removed`.
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

/// Replaces this process's directory with the one that `make` derives from it. If a visitor may
/// hold a pool's new overflow number, the pool gets it later, by [`go_on`].
///
/// # Errors
/// If nothing was changed, returns the reason.
pub(crate) async fn become_next(
    node: &Node,
    peers: &Peers,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>> + Send + 'static,
) -> Result<(), String> {
    let _one = node.changes.lock().await;
    let taken = partial_change::apply(&Tokio, node, peers, make).await;
    taken.map_err(|error| error.to_string())
}

/// Gives pools the overflow numbers that they have not received yet because visitors may hold them.
/// If this fails, or another change is in progress, the next call tries again.
pub(crate) async fn go_on(node: &Node, peers: &Peers) {
    let Ok(_one) = node.changes.try_lock() else { return };
    if let Err(error) = partial_change::resume(&Tokio, node, peers).await {
        tracing::warn!(%error, "ring pools cannot get their overflow numbers yet; trying again");
    }
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

/// Returns the name of the node that owns `pool`, if that is another node.
pub(crate) fn other_owner(node: &Node, pool: PoolId) -> Option<String> {
    let shard = node.directory().lookup(pool)?.shard();
    let mut others = node.membership.as_ref()?.others();
    others.find(|other| other.shard == shard).map(|other| other.node)
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
