//! Exchanges copies of the bucket owners between nodes: after a move, when a node refuses rows of
//! moved buckets, and when a node starts.
//!
//! A node whose data is from before a move would serve buckets that it has since given away. Every
//! node therefore asks the other nodes for the current owners before it serves. If a node learns
//! only later that buckets have moved away, it stops serving them. The owners of these buckets then
//! hold their pools long enough for all lockouts that began on the outdated node to end. Source:
//! docs/spec/cluster.md, "Data from before a move".

use std::sync::Arc;
use std::time::Duration;

use ringwell_directory::Owners;

use super::owners::use_owners;
use super::payload::OwnersCopy;
use super::versions::shards_elsewhere;
use crate::Path;
use crate::arrivals;
use crate::canary::{Bug, planted};
use crate::kept::{read_served, write_served};
use crate::node::{Node, Phase};
use crate::platform::{Platform, to_its_end};
use crate::queue::Peers;
use crate::store::FileError;

/// The time limit for exchanging copies of the owners with another node. A node that does not
/// answer within this time gets the owners later, when it sends rows that are refused.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The time limit for an exchange if the other node may have to hold buckets before it answers.
/// Longer than [`PATIENCE`], because that node first asks the remaining nodes for the lockouts of
/// the numbers in these buckets.
const HOLD_PATIENCE: Duration = Duration::from_secs(5);

/// Exchanges copies of the owners with every other node. If a node cannot be reached, it gets the
/// owners later.
pub fn announce_owners<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) {
    for shard in node.others() {
        let (platform, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        platform.clone().spawn(async move {
            learn_from(&platform, &node, &peers, shard).await;
        });
    }
}

/// Asks every other node for the owners of buckets. Runs before this node serves. Returns one shard
/// of each node that did not answer.
pub(crate) async fn ask_owners<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
) -> Vec<u16> {
    let away = ask_once(platform, node, peers).await;
    if node.stale().is_empty() {
        return away;
    }
    // Asks once more, so that the owners of the stale buckets hold them as soon as possible.
    ask_once(platform, node, peers).await
}

async fn ask_once<P: Platform>(platform: &P, node: &Arc<Node>, peers: &Peers) -> Vec<u16> {
    if planted(Bug::OwnersNotAsked) {
        announce_owners(platform, node, peers);
        return Vec::new();
    }
    let mut asked = Vec::new();
    for shard in node.others() {
        let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        let learnt = async move { learn_from(&at, &node, &peers, shard).await };
        asked.push((shard, platform.task(learnt)));
    }
    let mut away = Vec::new();
    for (shard, learnt) in asked {
        if !matches!(learnt.await, Ok(Some(_))) {
            away.push(shard);
        }
    }
    away
}

/// Exchanges copies of the owners with `shard`'s node, and returns whether any received entry was
/// new. Returns `None` if the other node does not answer.
pub async fn learn_from<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    shard: u16,
) -> Option<bool> {
    let copy = copy(node, Vec::new())?;
    let patience = if copy.stale.is_empty() { PATIENCE } else { HOLD_PATIENCE };
    let body = serde_json::to_vec(&copy).ok()?.into();
    let answer = peers.post(shard, Path::Owners, body)?;
    let answer = platform.within(patience, answer).await?.ok()?.ok()?;
    let received = serde_json::from_slice::<OwnersCopy>(&answer).ok()?;
    node.settle_stale(&received.held);
    let elsewhere = shards_elsewhere(platform, node, peers, (shard, &received)).await;
    let learnt = learn_without(platform, node, peers, (received, elsewhere)).await;
    Some(learnt.has_learnt)
}

/// Returns this node's copy of the owners, or `None` without a cluster.
#[must_use]
pub fn copy(node: &Node, held: Vec<u16>) -> Option<OwnersCopy> {
    Some(OwnersCopy { owners: node.owners()?, stale: node.stale(), held })
}

/// The effects of a copy of the owners that another node sent.
#[derive(Debug, Default)]
pub struct Learnt {
    /// Whether any of the received entries was new to this node.
    pub has_learnt: bool,
    /// Buckets of this node that are now held, because the other node may have served them.
    pub held: Vec<u16>,
}

/// Merges another node's copy of the owners into this node's: newer entries replace older ones.
/// This work continues even if the batch that waits for it ends first.
pub async fn learn<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    received: OwnersCopy,
) -> Learnt {
    learn_without(platform, node, peers, (received, Vec::new())).await
}

/// Like [`learn`]. `elsewhere` contains this node's shards that belong to the other node in its
/// newer version of the map.
async fn learn_without<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    (received, elsewhere): (OwnersCopy, Vec<u16>),
) -> Learnt {
    let (platform, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
    let at = platform.clone();
    let work = async move { learn_now(&at, &node, &peers, (&received, &elsewhere)).await };
    to_its_end(&platform, work).await.unwrap_or_default()
}

async fn learn_now<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    (received, elsewhere): (&OwnersCopy, &[u16]),
) -> Learnt {
    let _one = node.changes.lock().await;
    let Some(mut owners) = node.owners() else { return Learnt::default() };
    let is_own = |shard: u16| node.is_own(shard) && !planted(Bug::HearsayBelieved);
    let stays = |shard: u16| is_own(shard) && !elsewhere.contains(&shard);
    let owned = |bucket: &u16| owners.get(*bucket).is_some_and(|owner| node.is_own(owner.shard));
    let held: Vec<u16> = received.stale.iter().copied().filter(owned).collect();
    if !held.is_empty() {
        tracing::warn!(
            buckets = held.len(),
            "another node may have served this node's buckets with data from before a move, or \
            with an older cluster file: the pools in these buckets answer with overflow numbers \
            until that node's lockouts have ended"
        );
        let is_of_older = received.owners.version() < owners.version();
        arrivals::hold_stale(platform, node, peers, (&held, is_of_older)).await;
    }
    note_claims(node, &owners, &received.owners);
    let before = owners.clone();
    let is_newer = received.owners.version() > owners.version();
    if node.note_version(received.owners.version()) && is_newer {
        tracing::warn!(
            version = owners.version(),
            newer_version = received.owners.version(),
            "another node uses a newer version of the cluster file: this node refuses look-ups, \
             because it may not know all nodes. Restart this node with the newer file"
        );
    }
    let has_learnt = if is_newer {
        let is_ignored = planted(Bug::NewerMapIgnored) && node.phase() != Phase::Starting;
        !is_ignored && owners.give_way(&received.owners, is_own, stays)
    } else {
        owners.learn(&received.owners, is_own)
    };
    if !has_learnt {
        return Learnt { has_learnt, held };
    }
    let stale = owners.lost_since(&before, is_own);
    let returned = owners.returned_since(&before, is_own);
    node.add_returned(&returned);
    if let Err(error) = use_owners(platform, node, peers, owners.clone()).await {
        tracing::error!(%error, "another node's map could not be applied");
        return Learnt { has_learnt: false, held };
    }
    if !stale.is_empty() {
        report_stale(stale.len(), &before, &received.owners);
        node.add_stale(&stale);
        if let Err(error) = record(platform, node, received, (is_own, stays)).await {
            tracing::warn!(
                %error,
                "the loss of these buckets could not be recorded: at the next startup, this node \
                will ask the other nodes again which nodes own the buckets"
            );
        }
    }
    Learnt { has_learnt, held }
}

/// Logs that this node has stopped serving `count` buckets, and why.
fn report_stale(count: usize, known: &Owners, received: &Owners) {
    if received.version() > known.version() {
        tracing::error!(
            buckets = count,
            version = known.version(),
            newer_version = received.version(),
            "another node uses a newer version of the cluster file, in which these buckets belong \
            to other nodes: this node no longer serves them. Restart this node with the newer file"
        );
    } else {
        tracing::error!(
            buckets = count,
            "according to another node, these buckets have moved away from this node: this data \
            directory is from before the move. This node no longer serves the buckets"
        );
    }
}

/// Records the buckets that this node took over before it lost its data. No move can bring these
/// buckets back to this node. Only their owner can move them, and the other nodes have recorded
/// that this node is already their owner. Look-ups must take into account that the buckets' numbers
/// were here.
fn note_claims(node: &Node, known: &Owners, received: &Owners) {
    let claimed = known.claimed_by(received, |shard| node.is_own(shard));
    let is_new = !planted(Bug::OwnGapsForgotten) && node.add_claimed(&claimed);
    if is_new && node.phase() == Phase::Starting {
        tracing::error!(
            buckets = claimed.len(),
            "according to another node, these buckets have moved to this node, but this node's \
                data shows no such move. Unless the move is still in progress, the buckets' data \
                is lost: no node serves the buckets, and their pools answer with overflow numbers, \
                until the `version` in the cluster file is raised on all nodes"
        );
    }
}

/// Records the owners. The owners in `cluster-map.json` may be newer than the owners in use,
/// because a take-over of buckets is recorded before it takes effect.
async fn record<P: Platform>(
    platform: &P,
    node: &Node,
    received: &OwnersCopy,
    (is_own, stays): (impl Fn(u16) -> bool, impl Fn(u16) -> bool),
) -> Result<(), FileError> {
    let Some(owners) = node.owners() else { return Ok(()) };
    let served = read_served(platform, node)?;
    let (known, leaving) = served.map(|it| (it.owners, it.leaving)).unwrap_or_default();
    let is_present = |known: &Owners| known.version() == owners.version();
    let mut known = known.filter(is_present).unwrap_or_else(|| owners.clone());
    if received.owners.version() > known.version() {
        known.give_way(&received.owners, is_own, stays);
    } else {
        known.learn(&received.owners, is_own);
    }
    write_served(platform, node, &known, leaving).await
}
