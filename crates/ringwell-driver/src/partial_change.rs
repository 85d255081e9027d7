//! Applies changes to the list of pools without the overflow numbers that a visitor may still hold.
//!
//! A list of pools from a database must not be rejected completely because of one overflow number.
//! The database may have been restored from a copy that is older than the number's last
//! allocations. As long as a visitor may hold the number, its pools have no overflow number.
//! Source: docs/spec/allocation.md, "Changes while the shard serves".

use std::collections::BTreeSet;
use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolSpec, PromoNumber};
use ringwell_directory::{Directory, Fault, RingPool, new_overflow};
use ringwell_engine::lockout;

use crate::arrivals;
use crate::change::{ChangeError, CollectedHolds, apply as apply_all, ask_known, held, until};
use crate::kept::write_overflow;
use crate::lists::LIST_SPREAD;
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::withheld::{Withheld, ends, latest, report, take_out};

/// Like [`change::apply`](crate::change::apply), but omits an overflow number that a visitor may
/// hold. [`resume`] adds the number to its pools once the visitor's lockout has ended. `make`
/// receives a state in which all pools have their overflow numbers.
///
/// # Errors
/// [`ChangeError`]
pub async fn apply<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>> + Send + 'static,
) -> Result<(), ChangeError> {
    let before = node.withheld();
    if step(platform, node, peers, make).await? {
        // The numbers have left their pools now, so their lockouts are known.
        step(platform, node, peers, |list| list.change(Vec::new(), &[])).await?;
    }
    let after = node.withheld();
    if !(before.is_empty() && after.is_empty()) {
        report(&before, &after, now(node, peers).await?);
    }
    Ok(())
}

/// Adds overflow numbers to their pools once no visitor can hold them.
///
/// # Errors
/// [`ChangeError`]
pub async fn resume<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
) -> Result<(), ChangeError> {
    let now = now(node, peers).await?;
    if node.withheld().iter().all(|it| it.until > now) {
        return Ok(());
    }
    apply(platform, node, peers, |list| list.change(Vec::new(), &[])).await
}

/// Applies a change without those overflow numbers that are in rotation or that a visitor holds.
/// Returns whether any of them were in rotation.
async fn step<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    make: impl FnOnce(&Directory) -> Result<Directory, Vec<Fault>> + Send + 'static,
) -> Result<bool, ChangeError> {
    let (before, waiting) = (node.directory(), node.withheld());
    let (old, pools) = (Arc::clone(&before), waiting.iter().flat_map(|it| it.pools.clone()));
    let pools: Vec<RingPool> = pools.collect();
    let make = move || {
        let next = if pools.is_empty() { make(&old) } else { make(&old.change(pools, &[])?) }?;
        let new: BTreeSet<_> = new_overflow(&old, &next).into_iter().map(|it| it.0).collect();
        Ok((next, new))
    };
    let next = platform.offload(make).await.ok_or(ChangeError::Stopping)?;
    let (next, new) = next.map_err(ChangeError::Rules)?;
    let is_in_rotation = new.iter().any(|number| before.pool_by_number(*number).is_some());
    let mut locked = locked(node, peers, &before, (&new, &waiting)).await?;
    if !new.is_empty() {
        // The list may have gone back while the number was in no pool of `before`.
        let elsewhere = arrivals::taken_elsewhere(platform, node, peers, &new).await?;
        locked = latest(locked.into_iter().chain(elsewhere));
    }
    let taken = platform.offload(move || take_out(next, &locked)).await;
    let (next, withheld) = taken.ok_or(ChangeError::Stopping)?.map_err(ChangeError::Rules)?;
    take_effect(platform, node, peers, (next, withheld)).await?;
    Ok(is_in_rotation)
}

/// Withholds exactly the overflow numbers in `until`, each until the given time.
///
/// # Errors
/// [`ChangeError`]
pub(crate) async fn withhold<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    until: Vec<(PromoNumber, Millis)>,
) -> Result<(), ChangeError> {
    let (before, waiting) = (node.directory(), node.withheld());
    let pools: Vec<RingPool> = waiting.into_iter().flat_map(|it| it.pools).collect();
    let make = move || take_out(before.change(pools, &[])?, &until);
    let taken = platform.offload(make).await.ok_or(ChangeError::Stopping)?;
    take_effect(platform, node, peers, taken.map_err(ChangeError::Rules)?).await
}

/// Applies a list without the overflow numbers in `withheld`, and records these.
async fn take_effect<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    (next, withheld): (Directory, Vec<Withheld>),
) -> Result<(), ChangeError> {
    let next = apply_all(platform, node, peers, move |_| Ok(next)).await?;
    let is_changed = ends(&node.withheld()) != ends(&withheld);
    node.set_withheld(withheld);
    if is_changed {
        write_overflow(platform, node, next).await;
    }
    Ok(())
}

/// Returns the shard time.
async fn now(node: &Node, peers: &Peers) -> Result<Millis, ChangeError> {
    let first = node.shards().next().ok_or(ChangeError::Stopping)?;
    arrivals::now(peers, first).await.ok_or(ChangeError::Stopping)
}

/// Returns those numbers in `new` that cannot be overflow numbers yet, each with the time until
/// which a visitor may hold it. If a number is still in rotation on this node, this time is unknown
/// and may be too short.
async fn locked(
    node: &Node,
    peers: &Peers,
    before: &Directory,
    (new, waiting): (&BTreeSet<PromoNumber>, &[Withheld]),
) -> Result<Vec<(PromoNumber, Millis)>, ChangeError> {
    let one = |number: &PromoNumber| NumberRange::new(*number, 1);
    let ranges: Vec<NumberRange> = new.iter().filter_map(one).collect();
    if ranges.is_empty() {
        return Ok(Vec::new());
    }
    let shards: Vec<u16> = node.shards().collect();
    let known = ask_known(peers, shards.iter(), &ranges, false).await?;
    let is_new = |number: &PromoNumber| before.pool_by_number(*number).is_none();
    let (held, now) = if waiting.is_empty() && new.iter().all(is_new) {
        // In the usual case, neither value is needed.
        (CollectedHolds::default(), Millis::ZERO)
    } else {
        (held(peers, &shards, before).await?, now(node, peers).await?)
    };
    let in_rotation = |number| in_rotation(node, before, &held, (number, now));
    let until = |number: &PromoNumber| {
        let known = known.iter().filter(|known| known.slot.number == *number);
        let earlier = waiting.iter().filter(|it| it.number == *number && it.until > now);
        let all = known.map(|known| known.slot.locked_until).chain(earlier.map(|it| it.until));
        Some((*number, all.max().max(in_rotation(*number))?))
    };
    Ok(new.iter().filter_map(until).collect())
}

/// If `number` is in rotation, returns the time until which it may be locked by an allocation that
/// this node's shards have not recorded.
fn in_rotation(
    node: &Node,
    before: &Directory,
    held: &CollectedHolds,
    (number, now): (PromoNumber, Millis),
) -> Option<Millis> {
    let id = before.pool_by_number(number)?;
    let is_own = before.lookup(id).is_none_or(|entry| node.is_own(entry.shard()));
    if !is_own {
        let own = before.pool(id).map_or(Millis::ZERO, |pool| lockout(pool.lifetime()));
        return Some(now + node.lifetimes().longest(now).max(own) + LIST_SPREAD);
    }
    let numbers = NumberRange::new(number, 1).into_iter().collect();
    let of_number = PoolSpec { id, lockout: Millis::ZERO, numbers };
    Some(until(held, &of_number).unwrap_or(Millis::ZERO))
}
