//! Nodes that neither give nor take learn from those that do, or from whoever refuses their rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{to_its_end, use_owners};
use ringwell_driver::Path;
use ringwell_driver::message::Message;
use ringwell_driver::moves::OwnersCopy;
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;

/// A node that does not answer by then learns later, by rows that are refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells every other node who owns what; and learns from it. Whoever is not reached learns later.
pub(crate) fn tell_all(node: &Arc<Node>, peers: &Peers) {
    let Some(membership) = &node.membership else { return };
    for shard in membership.first_shards_of_others() {
        let (node, peers) = (Arc::clone(node), peers.clone());
        tokio::spawn(async move {
            learn_from(&node, &peers, shard).await;
        });
    }
}

/// Exchanges copies of the owners with the node of `shard`; says whether anything was new here.
pub(crate) async fn learn_from(node: &Arc<Node>, peers: &Peers, shard: u16) -> bool {
    let Some(owners) = node.owners() else { return false };
    let Ok(body) = serde_json::to_vec(&OwnersCopy { owners }) else { return false };
    let (reply, answer) = oneshot::channel();
    if !peers.send(shard, Message::Post { path: Path::Owners, body: body.into(), reply }) {
        return false;
    }
    let answer = tokio::time::timeout(PATIENCE, answer).await;
    let Ok(Ok(Ok(answer))) = answer else { return false };
    match serde_json::from_slice::<OwnersCopy>(&answer) {
        Ok(told) => learn(node, peers, told).await,
        Err(_) => false,
    }
}

/// Takes over what another node knows better. A batch that waits for it may end before.
pub(crate) async fn learn(node: &Arc<Node>, peers: &Peers, told: OwnersCopy) -> bool {
    let (node, peers) = (Arc::clone(node), peers.clone());
    to_its_end(async move { learn_now(&node, &peers, &told).await }).await == Some(true)
}

async fn learn_now(node: &Node, peers: &Peers, told: &OwnersCopy) -> bool {
    let _one = node.changes.lock().await;
    let Some(mut owners) = node.owners() else { return false };
    if !owners.learn(&told.owners, |shard| node.is_own(shard)) {
        return false;
    }
    match use_owners(node, peers, owners).await {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "another node's map could not be taken over");
            false
        }
    }
}
