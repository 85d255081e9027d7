//! Withholds overflow numbers that other nodes' visitors may hold.
//!
//! The list of pools may have gone back to an older state. A number that another node has handed
//! out may then be an overflow number again. If this node was stopped in the meantime, it has no
//! record of the number's time in rotation. Source: docs/spec/allocation.md, "Changes while the
//! shard serves".

use std::collections::{BTreeMap, BTreeSet};

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};

use super::{Elsewhere, ask_others, now, unknown_until};
use crate::canary::{Bug, planted};
use crate::change::ChangeError;
use crate::node::Node;
use crate::partial_change;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::overflow_numbers;
use crate::withheld::{ends, report};

/// Asks the nodes of the shards in `nodes` about all overflow numbers. Withholds the numbers that
/// one of these nodes has in rotation or locked. If all other nodes answer, numbers that were
/// withheld only because the list has changed are withheld no longer than the answers require.
pub(crate) async fn withhold_overflow<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    nodes: Vec<u16>,
) {
    if !node.begun.withholds_others {
        return;
    }
    let _one = node.changes.lock().await;
    if let Err(error) = withhold(platform, node, peers, nodes).await {
        tracing::error!(
            %error,
            "overflow numbers that other nodes' visitors may hold could not be withheld"
        );
    }
}

/// Returns those of `numbers` that another node has in rotation or locked, each with the time until
/// which a visitor may hold it. Nodes that do not answer are left out, because a change to the list
/// must not wait for a node that is down.
///
/// # Errors
/// [`ChangeError::Stopping`]
pub(crate) async fn taken_elsewhere<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    numbers: &BTreeSet<PromoNumber>,
) -> Result<BTreeMap<PromoNumber, Millis>, ChangeError> {
    if !node.begun.withholds_others || planted(Bug::NewOverflowUnasked) {
        return Ok(BTreeMap::new());
    }
    let (answers, _) = elsewhere(platform, node, peers, &mut node.others(), numbers).await?;
    let taken = answers.into_iter().filter(|(_, _, is_taken)| *is_taken);
    Ok(taken.map(|(number, until, _)| (number, until)).collect())
}

/// The state of a number on the other nodes: the time until which a visitor may hold it, and
/// whether a node has it in rotation or locked.
type OfNumber = (PromoNumber, Millis, bool);

/// Asks `nodes` about `numbers`, and removes the nodes that do not answer. Also returns the shard
/// time.
async fn elsewhere<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    nodes: &mut Vec<u16>,
    numbers: &BTreeSet<PromoNumber>,
) -> Result<(Vec<OfNumber>, Millis), ChangeError> {
    let one = |number: &PromoNumber| NumberRange::new(*number, 1).map(|one| (PoolId(0), vec![one]));
    let asked: Vec<_> = numbers.iter().filter_map(one).collect();
    let (answers, _) = ask_others(platform, nodes, peers, &asked, false).await;
    let first = node.shards().next().ok_or(ChangeError::Stopping)?;
    let now = now(peers, first).await.ok_or(ChangeError::Stopping)?;
    let longest = unknown_until(node.lifetimes(), now);
    let of = |(number, answer): (PromoNumber, Elsewhere)| {
        // Adds a millisecond, because shard times are rounded down.
        let until = answer.left.map_or(longest, |left| now + left + Millis(left.0.min(1)));
        // A node that holds pools may have lost lockouts of any number. That matters only for
        // numbers that are in doubt here.
        (number, until, answer.left.is_none() || !answer.allocated_at.is_empty())
    };
    let numbers = asked.iter().map(|(_, one)| one[0].first());
    Ok((numbers.zip(answers).map(of).collect(), now))
}

async fn withhold<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    mut nodes: Vec<u16>,
) -> Result<(), ChangeError> {
    let waiting = node.withheld();
    let doubted: BTreeSet<_> =
        node.begun.doubted_overflow.iter().map(|(number, _)| *number).collect();
    let own: BTreeMap<_, _> = node.begun.withheld.iter().copied().collect();
    let mut until: BTreeMap<PromoNumber, Millis> = ends(&waiting).into_iter().collect();
    let directory = node.directory();
    let numbers = overflow_numbers(&directory).chain(until.keys().copied()).collect();
    let (answers, now) = elsewhere(platform, node, peers, &mut nodes, &numbers).await?;
    let is_complete = nodes.len() == node.others().len();
    let unknown = node.unknown_until(now);
    for (number, elsewhere, is_taken) in answers {
        let known = until.get(&number).copied();
        let next = match known {
            Some(_) if doubted.contains(&number) && is_complete => {
                let own = own.get(&number).copied().unwrap_or_default();
                Some(own.max(elsewhere).max(unknown)).filter(|next| *next > now)
            }
            Some(known) if doubted.contains(&number) => Some(known.max(elsewhere)),
            known => known.max(Some(elsewhere).filter(|_| is_taken)),
        };
        match next {
            Some(next) => until.insert(number, next),
            None => until.remove(&number),
        };
    }
    let until: Vec<_> = until.into_iter().collect();
    if until != ends(&waiting) {
        partial_change::withhold(platform, node, peers, until).await?;
    }
    let is_certain = |number| !doubted.contains(&number);
    let before: Vec<_> = waiting.into_iter().filter(|it| is_certain(it.number)).collect();
    report(&before, &node.withheld(), now);
    Ok(())
}
