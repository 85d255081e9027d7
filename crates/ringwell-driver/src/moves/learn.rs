//! Spreads the owners to nodes outside a move, from those that take part or from a node that
//! refuses their rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::payload::OwnersCopy;
use super::{to_its_end, use_owners};
use crate::Path;
use crate::canary::{Bug, planted};
use crate::message::Message;
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

/// A node that does not answer in this time gets them later, with refused rows.
const PATIENCE: Duration = Duration::from_secs(1);

/// Exchanges the owners of buckets with every other node. A node that is not reached gets them
/// later.
pub fn announce_owners<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) {
    let Some(membership) = &node.membership else { return };
    for shard in membership.first_shards_of_others() {
        let (platform, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        platform.clone().spawn(async move {
            learn_from(&platform, &node, &peers, shard).await;
        });
    }
}

/// Exchanges copies of the owners with the node of `shard`; returns whether anything was new here.
pub async fn learn_from<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    shard: u16,
) -> bool {
    let Some(owners) = node.owners() else { return false };
    let Ok(body) = serde_json::to_vec(&OwnersCopy { owners }) else { return false };
    let (reply, answer) = oneshot::channel();
    if !peers.send(shard, Message::Post { path: Path::Owners, body: body.into(), reply }) {
        return false;
    }
    let answer = platform.within(PATIENCE, answer).await;
    let Some(Ok(Ok(answer))) = answer else { return false };
    match serde_json::from_slice::<OwnersCopy>(&answer) {
        Ok(received) => learn(platform, node, peers, received).await,
        Err(_) => false,
    }
}

/// Takes over newer entries from another node. A batch that waits for it may end before.
pub async fn learn<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    received: OwnersCopy,
) -> bool {
    let (platform, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
    to_its_end(
        &platform.clone(),
        async move { learn_now(&platform, &node, &peers, &received).await },
    )
    .await
        == Some(true)
}

async fn learn_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    received: &OwnersCopy,
) -> bool {
    let _one = node.changes.lock().await;
    let Some(mut owners) = node.owners() else { return false };
    if !owners.learn(&received.owners, |shard| node.is_own(shard) && !planted(Bug::HearsayBelieved))
    {
        return false;
    }
    match use_owners(platform, node, peers, owners).await {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "another node's map could not be taken over");
            false
        }
    }
}
