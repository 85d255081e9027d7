//! Finds numbers that left this node's pools, and came back, while the node was not running.
//!
//! The node's list is then the one that it served last, but another node may have handed the
//! numbers out. Only that node's records show this. Source: docs/spec/cluster.md, "Numbers that
//! change nodes".

use ringwell_core::{Millis, NumberRange, PoolId};

use super::query::ask_others;
use crate::canary::{Bug, planted};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

/// The time by which the clocks of two nodes, or of one node before and after a startup, may
/// differ.
const CLOCKS_APART: Millis = Millis(60_000);

/// Returns those of `pools` that have a number that another node may have handed out since this
/// node served the list. Nodes that do not answer are left out.
pub(super) async fn returned<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    pools: Vec<(PoolId, Vec<NumberRange>)>,
) -> Vec<(PoolId, Vec<NumberRange>)> {
    let Some(served_at) = node.begun.served_at.filter(|_| !planted(Bug::ReturnedUnseen)) else {
        return Vec::new();
    };
    // If the clock was set back, any allocation may have been made in the meantime.
    let wall = u64::try_from(platform.wall().as_millis()).unwrap_or(u64::MAX);
    let stopped = wall.checked_sub(served_at).unwrap_or(u64::MAX);
    let since = stopped.saturating_add(CLOCKS_APART.0);
    let (all, _) = ask_others(platform, &mut node.others(), peers, &pools, false).await;
    let of_pools = pools.into_iter().zip(all);
    let given = of_pools.filter(|(_, it)| it.age.is_some_and(|age| age.0 <= since));
    given.map(|(pool, _)| pool).collect()
}
