//! Numbers that enter pools of this node and were in none of its pools before.
//!
//! Their lockouts may be on other nodes. The numbers are found by comparing two states of the
//! directory; buckets that both states share are skipped. Source: docs/spec/cluster.md, "Numbers
//! that change nodes".

use ringwell_core::{NumberRange, PoolId, PromoNumber};

use crate::placement::BUCKETS;
use crate::{Directory, RingPool};

/// The numbers that a change adds to one node's pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Pools of this node, each with its new numbers that were in none of this node's pools before.
    pub pools: Vec<(PoolId, Vec<NumberRange>)>,
    /// Buckets that differ between the two states.
    pub buckets: Vec<u16>,
}

impl Arrivals {
    /// The arrivals between `before` and `after`, for the node whose shards satisfy `is_own`. If a
    /// pool only moves to another owner, its numbers do not count, because their lockouts move with
    /// the pool.
    #[must_use]
    pub fn between(before: &Directory, after: &Directory, is_own: impl Fn(u16) -> bool) -> Self {
        let mut found = Self::default();
        let is_own = |directory: &Directory, pool: PoolId| {
            directory.lookup(pool).is_some_and(|entry| is_own(entry.shard()))
        };
        for bucket in (0..BUCKETS).filter(|bucket| !after.shares(before, *bucket)) {
            found.buckets.push(bucket);
            for pool in after.pools_in(bucket).iter().filter(|pool| is_own(after, pool.id())) {
                let mut numbers = entering(pool, before.pool(pool.id()));
                // If a number moves between pools of the node, its lockout moves with it.
                let others = numbers.iter().flat_map(|range| before.pools_with(*range));
                let own = others.filter(|other| is_own(before, *other));
                let mut own: Vec<PoolId> = own.collect();
                own.dedup();
                for known in own.iter().filter_map(|other| before.pool(*other)) {
                    let known = sorted(known);
                    numbers = numbers.iter().flat_map(|range| without(*range, &known)).collect();
                }
                if !numbers.is_empty() {
                    found.pools.push((pool.id(), numbers));
                }
            }
        }
        found
    }
}

/// The numbers in `new` that are not in `old`.
fn entering(new: &RingPool, old: Option<&RingPool>) -> Vec<NumberRange> {
    let known = old.map_or(Vec::new(), sorted);
    new.numbers().iter().flat_map(|range| without(*range, &known)).collect()
}

fn sorted(pool: &RingPool) -> Vec<NumberRange> {
    let mut ranges = pool.numbers().to_vec();
    ranges.sort_unstable_by_key(|range| range.first());
    ranges
}

/// `range` without the numbers in `known`, whose ranges are in ascending order.
#[must_use]
pub fn without(range: NumberRange, known: &[NumberRange]) -> Vec<NumberRange> {
    let (mut rest, mut first) = (Vec::new(), range.first().to_e164());
    let mut add = |first: u64, end: u64| {
        let count = u32::try_from(end.saturating_sub(first)).unwrap_or(u32::MAX);
        rest.extend(PromoNumber::from_e164(first).and_then(|it| NumberRange::new(it, count)));
    };
    let from = known.partition_point(|other| other.last() < range.first());
    for other in known[from..].iter().take_while(|other| other.first() <= range.last()) {
        if first < other.first().to_e164() {
            add(first, other.first().to_e164());
        }
        first = first.max(other.last().to_e164() + 1);
    }
    if first <= range.last().to_e164() {
        add(first, range.last().to_e164() + 1);
    }
    rest
}

#[cfg(test)]
mod tests;
