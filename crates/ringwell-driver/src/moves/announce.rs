//! Announces a newer cluster file to the nodes of the previous one.
//!
//! A starting node exchanges owners with the nodes in its cluster file. If the previous file had
//! other nodes, or the same nodes at other addresses, these may still run with the previous file.
//! Source: docs/spec/cluster.md, "A newer version of the map".

use std::sync::Arc;
use std::time::Duration;

use ringwell_config::ClusterNode;
use ringwell_directory::Owners;

use super::owner_exchange::{PATIENCE, ask_owners, learn};
use super::payload::OwnersCopy;
use crate::canary::{Bug, planted};
use crate::membership::{Membership, Neighbour};
use crate::node::Node;
use crate::platform::{Net, Path, Platform};
use crate::queue::Peers;
use crate::store::{KnownNode, read_nodes, write_nodes};

/// The interval between two attempts.
const EVERY: Duration = Duration::from_secs(1);

/// The time within which an announcement reaches each running node whose former address can be
/// reached. An attempt at another address may take [`PATIENCE`].
const ANNOUNCED_WITHIN: Duration = Duration::from_millis(2_500);

/// The interval between two queries while a node waits for an announcement.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The maximum number of former addresses. The oldest ones are forgotten.
const FORMER_MAX: usize = 64;

/// A node of the previous cluster file, and the connection to its former address.
type Former<P> = (KnownNode, <P as Platform>::Net);

/// Announces this node's cluster file to each node in the previous file that the new file omits or
/// lists at another address. `net` creates a connection. If a node does not answer, the attempt is
/// repeated for as long as this node runs, because the node may be started at any time. Runs before
/// this node serves.
pub async fn announce_to_former<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    net: impl Fn(&Neighbour) -> P::Net,
) {
    let Some(membership) = node.membership.as_ref().filter(|_| node.answers_wait()) else { return };
    let known = read_nodes(&platform.files(), &node.config.data).unwrap_or_else(|error| {
        tracing::warn!(%error, "the nodes of the previous cluster file are unknown");
        Vec::new()
    });
    let known = known.into_iter().filter(|known| is_former(membership, known));
    let known = known.filter(|_| !planted(Bug::FormerUninformed)).take(FORMER_MAX);
    let former = known.filter_map(|known| {
        let link = known.link.parse().ok()?;
        let shard = known.shards.first().copied()?;
        let net = net(&Neighbour { shard, node: known.name.clone(), link });
        Some((known, net))
    });
    let left = announce_to_all(platform, node, peers, former.collect()).await;
    if !left.is_empty() {
        let nodes: Vec<&str> = left.iter().map(|(known, _)| known.name.as_str()).collect();
        tracing::warn!(
            ?nodes,
            "the cluster file no longer contains these nodes, or gives them other addresses, and \
             they do not answer at their former addresses. This is normal if they were stopped; \
             this node then keeps trying to reach them, in case they are started with an older \
             cluster file. If they still run with an older cluster file, stop them at once: they \
             may hand out the same numbers as other nodes"
        );
    }
    record(platform, node, &left).await;
    if !left.is_empty() {
        let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        platform.spawn(async move { go_on(&at, &node, &peers, left).await });
    }
}

async fn go_on<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    mut left: Vec<Former<P>>,
) {
    while !left.is_empty() {
        platform.sleep_until(platform.moment() + EVERY).await;
        let before = left.len();
        left = announce_to_all(platform, node, peers, left).await;
        if left.len() < before {
            record(platform, node, &left).await;
        }
    }
}

/// Waits until another node answers or announces a newer cluster file, but at most for
/// [`ANNOUNCED_WITHIN`]. Runs at startup if no other node in this node's cluster file answers and
/// the file may be outdated. A node with a newer file may run at an address that only that file
/// contains. Such a node contacts this one with [`announce_to_former`]. Returns one shard of each
/// node that did not answer.
pub(crate) async fn wait_for_newer<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    mut away: Vec<u16>,
) -> Vec<u16> {
    let Some(own) = node.owners().map(|owners| owners.version()) else { return away };
    let until = platform.moment() + ANNOUNCED_WITHIN;
    while platform.moment() < until && node.check_newest(own).is_ok() {
        platform.sleep_until(platform.moment() + ASK_EVERY).await;
        away = ask_owners(platform, node, peers).await;
        if away.len() < node.others().len() {
            break;
        }
    }
    away
}

/// Whether `known` may run at an address that is not in this node's cluster file.
fn is_former(membership: &Membership, known: &KnownNode) -> bool {
    let is_there = |node: &ClusterNode| node.link.to_string() == known.link;
    known.name != membership.own().name && !membership.cluster().nodes().iter().any(is_there)
}

/// Returns the nodes that do not answer.
async fn announce_to_all<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    former: Vec<Former<P>>,
) -> Vec<Former<P>> {
    let announce_to = |former| {
        let (at, node, peers) = (platform.clone(), Arc::clone(node), peers.clone());
        platform.task(async move { announce(&at, &node, &peers, former).await })
    };
    let answers: Vec<_> = former.into_iter().map(announce_to).collect();
    let mut left = Vec::new();
    for answer in answers {
        left.extend(answer.await.ok().flatten());
    }
    left
}

/// Announces the owners to one node. Returns the node if it does not answer.
async fn announce<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    peers: &Peers,
    (known, net): Former<P>,
) -> Option<Former<P>> {
    let owners = owners_for(node, &known)?;
    let copy = OwnersCopy { owners, stale: Vec::new(), held: Vec::new() };
    let call = net.call(Path::Owners, serde_json::to_vec(&copy).ok()?.into());
    let answer = platform.within(PATIENCE, call).await;
    let received = answer.and_then(Result::ok);
    let received = received.and_then(|answer| serde_json::from_slice::<OwnersCopy>(&answer).ok());
    let Some(received) = received else { return Some((known, net)) };
    learn(platform, node, peers, received).await;
    None
}

/// Returns the owners without the former shards of `known` that belong to another node now: `known`
/// would consider them its own.
fn owners_for(node: &Node, known: &KnownNode) -> Option<Owners> {
    let cluster = node.membership.as_ref()?.cluster();
    let now = cluster.node(&known.name).map(|(_, node)| &*node.shards).unwrap_or_default();
    let is_lost = |shard: u16| known.shards.contains(&shard) && !now.contains(&shard);
    Some(node.owners()?.without(is_lost))
}

/// Records the nodes of this node's cluster file, and those in `left`, which have not answered yet.
async fn record<P: Platform>(platform: &P, node: &Node, left: &[Former<P>]) {
    let Some(membership) = &node.membership else { return };
    let known = |node: &ClusterNode| KnownNode {
        name: node.name.clone(),
        link: node.link.to_string(),
        shards: node.shards.clone(),
    };
    let mut nodes: Vec<KnownNode> = membership.cluster().nodes().iter().map(known).collect();
    nodes.extend(left.iter().map(|(known, _)| known.clone()));
    let (files, data) = (platform.files(), node.config.data.clone());
    let written = platform.offload(move || write_nodes(&files, &data, &nodes)).await;
    if let Some(Err(error)) = written {
        tracing::warn!(
            %error,
            "the nodes of the cluster file could not be recorded: if a newer file omits some of \
             them, this node cannot announce that file to them"
        );
    }
}
