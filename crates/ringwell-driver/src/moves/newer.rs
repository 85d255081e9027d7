//! Detects that another node uses a newer version of the cluster file.
//!
//! A node that starts with a newer file announces it to the nodes in that file. A node that the
//! file omits or lists at another address gets no announcement. So every node asks the others which
//! version they use. Source: docs/spec/cluster.md, "A newer version of the map".

use std::sync::Arc;
use std::time::Duration;

use super::owner_exchange::learn_from;
use super::versions::ping;
use crate::canary::{Bug, planted};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

/// The interval between two queries of a node.
const EVERY: Duration = Duration::from_secs(1);

/// Asks each other node for the version of its cluster file, again and again. If the version is
/// newer, this node stops serving the buckets that belong to other nodes.
pub async fn watch<P: Platform>(platform: P, node: Arc<Node>, peers: Peers) {
    if planted(Bug::VersionUnasked) {
        return;
    }
    for other in node.others() {
        let (at, node, peers) = (platform.clone(), Arc::clone(&node), peers.clone());
        platform.spawn(async move { watch_one(&at, &node, &peers, other).await });
    }
}

async fn watch_one<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers, other: u16) {
    let Some(own) = node.owners().map(|owners| owners.version()) else { return };
    let mut learnt = own;
    loop {
        platform.sleep_until(platform.moment() + EVERY).await;
        let version = ping(platform, peers, other, other).await;
        if version.is_some_and(|version| version <= learnt) {
            continue;
        }
        // In the newer version of the map, a node that does not answer may no longer have this
        // shard.
        let is_answered = learn_from(platform, node, peers, other).await.is_some();
        learnt = version.filter(|_| is_answered).unwrap_or(learnt);
    }
}
