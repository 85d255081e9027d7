//! Detects that another node uses a newer version of the cluster file.
//!
//! A node that starts with a newer file tells the nodes in that file. A node that the file omits,
//! or to which it gives another address, must find out by itself. So every node asks the others for
//! the version that they use. Source: docs/spec/cluster.md, "A newer version of the map".

use std::sync::Arc;
use std::time::Duration;

use ringwell_mesh::frame;

use super::learn::{PATIENCE, learn_from};
use super::payload::OwnersCopy;
use crate::Path;
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
        // A node that does not answer may have lost this shard in the newer version.
        let is_answered = learn_from(platform, node, peers, other).await.is_some();
        learnt = version.filter(|_| is_answered).unwrap_or(learnt);
    }
}

/// Returns the shards of this node that belong to the node of `other` in the newer version of the
/// map that this node has `received` from there. There are none if the version is not newer.
pub(super) async fn shards_elsewhere<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    (other, received): (u16, &OwnersCopy),
) -> Vec<u16> {
    let own = node.owners().map_or(0, |owners| owners.version());
    let mut elsewhere = Vec::new();
    if received.owners.version() <= own || planted(Bug::OwnShardsBelieved) {
        return elsewhere;
    }
    for shard in node.shards() {
        // A node answers only for its own shards.
        if ping(platform, peers, other, shard).await.is_some_and(|version| version > own) {
            elsewhere.push(shard);
        }
    }
    elsewhere
}

/// Sends a ping for `shard` to the node of `to`. Returns the version of that node's map, or `None`
/// if the node does not serve this shard or does not answer.
async fn ping<P: Platform>(platform: &P, peers: &Peers, to: u16, shard: u16) -> Option<u64> {
    let mut body = Vec::new();
    frame::write_ping(&mut body, shard);
    let answer = peers.post(to, Path::Ping, body.into())?;
    let answer = platform.within(PATIENCE, answer).await?.ok()?.ok()?;
    Some(frame::read_answer(&answer, 0).ok()?.map_version)
}
