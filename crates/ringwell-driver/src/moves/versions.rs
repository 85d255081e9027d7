//! Pings that show which version of the map another node uses, and which shards it has.

use std::time::Duration;

use ringwell_mesh::frame;

use super::payload::OwnersCopy;
use crate::Path;
use crate::canary::{Bug, planted};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

/// The time limit for the answer to a ping.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns this node's shards that belong to `other`'s node in the version of the map that
/// `received` contains. There are none unless that version is newer.
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

/// Sends a ping for `shard` to the node of shard `to`. Returns the version of that node's map, or
/// `None` if the node does not serve this shard or does not answer.
pub(super) async fn ping<P: Platform>(
    platform: &P,
    peers: &Peers,
    to: u16,
    shard: u16,
) -> Option<u64> {
    let mut body = Vec::new();
    frame::write_ping(&mut body, shard);
    let answer = peers.post(to, Path::Ping, body.into())?;
    let answer = platform.within(PATIENCE, answer).await?.ok()?.ok()?;
    Some(frame::read_answer(&answer, 0).ok()?.map_version)
}
