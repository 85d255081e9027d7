//! Answers another node's query about lockouts.

use std::collections::BTreeMap;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber, Retired, Slot};
use ringwell_directory::bucket;

use super::query::{Locked, ServedList, Wanted};
use super::{ask, leaving, now};
use crate::canary::{Bug, planted};
use crate::lists::digest;
use crate::message::{Step, StepResult};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

const STOPPING: &str = "the shard is stopping";

/// This node's record of a number that is in none of its pools.
#[derive(Clone, Copy, Default)]
struct Left {
    /// The remaining time of the lockout, in milliseconds, and the time of its allocation; zero if
    /// the number is free.
    locked: (u64, Millis),
    /// The time since the newest allocation, in milliseconds.
    age: Option<u64>,
}

impl Left {
    /// Adds a shard's record; `now` is this shard's time.
    fn add(&mut self, slot: &Slot, now: Millis) {
        if !slot.is_free(now) {
            let locked = (slot.locked_until.since(now).0, slot.allocated_at);
            self.locked = self.locked.max(locked);
        }
    }
}

/// Answers another node's query.
///
/// # Errors
/// The reason for a refusal, as text.
pub async fn locked<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    wanted: Wanted,
) -> Result<Locked, String> {
    let range = |(first, count): &(u64, u32)| {
        PromoNumber::from_code(*first).and_then(|first| NumberRange::new(first, *count))
    };
    let read = |pool: &Vec<(u64, u32)>| pool.iter().map(range).collect::<Option<Vec<_>>>();
    let pools = wanted.pools.iter().map(read).collect::<Option<Vec<_>>>();
    let pools = pools.ok_or("the request contains invalid promo numbers")?;
    let directory = node.directory();
    let is_own =
        |pool: PoolId| directory.lookup(pool).is_some_and(|entry| node.is_own(entry.shard()));
    let is_here = |range: &NumberRange| directory.pools_with(*range).any(is_own);
    let (leaving, prepared) = (leaving(platform, node).await?, node.prepared());
    let is_moving = |pool: &PoolId| {
        let of = bucket(*pool);
        let moves = leaving.contains(&of) || prepared.contains_key(&of);
        moves && !planted(Bug::TransitUnreported)
    };
    let with = |ranges: &Vec<NumberRange>| -> Vec<u64> {
        let pools = ranges.iter().flat_map(|range| directory.pools_with(*range));
        pools.filter(is_moving).map(|pool| pool.0).collect()
    };
    let mut moving: Vec<Vec<u64>> = pools.iter().map(with).collect();
    if moving.iter().all(Vec::is_empty) {
        moving.clear();
    }
    let (mut known, mut held) = (BTreeMap::new(), 0);
    for shard in node.shards() {
        let now = now(peers, shard).await.ok_or(STOPPING)?;
        let numbers = pools.iter().flatten().copied().collect();
        let step = Step::Report { numbers, includes_free: true };
        if let Some(StepResult::Known(retired)) = ask(peers, shard, step).await {
            for Retired { slot, local_at, .. } in retired {
                let it = known.entry(slot.number).or_insert(Left::default());
                it.add(&slot, now);
                if slot.allocated_at > Millis::ZERO {
                    let age = now.since(local_at).0;
                    it.age = Some(it.age.map_or(age, |other| other.min(age)));
                }
            }
        } else {
            return Err(STOPPING.to_owned());
        }
        // The lockouts of a held pool are unknown, and the queried numbers may have been in that
        // pool.
        let step = Step::ReportHolds { includes_past: false };
        let Some(StepResult::Holds(holds)) = ask(peers, shard, step).await else {
            return Err(STOPPING.to_owned());
        };
        held = holds.iter().map(|(_, until)| until.since(now).0).fold(held, u64::max);
    }
    let of = |ranges: &Vec<NumberRange>| {
        let of = ranges.iter().flat_map(|range| known.range(range.first()..=range.last()));
        of.map(|(_, it)| *it).collect::<Vec<_>>()
    };
    let longest = |ranges: &Vec<NumberRange>| {
        let (left, at) = of(ranges).iter().map(|it| it.locked).max().unwrap_or_default();
        ((!ranges.iter().any(is_here)).then_some(left.max(held)), at.0)
    };
    let ages = pools.iter().map(|ranges| of(ranges).iter().filter_map(|it| it.age).min()).collect();
    let first = node.shards().next().ok_or("the node has no shard")?;
    let now = now(peers, first).await.ok_or(STOPPING)?;
    let lifetimes = node.lifetimes();
    let list = if pools.is_empty() {
        let directory = node.directory();
        let digest = platform.offload(move || digest(&directory)).await;
        Some(ServedList { digest: digest.ok_or(STOPPING)?, longest: lifetimes.longest(now).0 })
    } else {
        None
    };
    let (pools, allocated_at) = pools.iter().map(longest).unzip();
    Ok(Locked { pools, earlier: lifetimes.earlier(now).0, list, allocated_at, ages, moving })
}
