//! The steps that bring a shard from one state of the directory to the next.
//!
//! Buckets that the two states share are skipped, so the cost of finding the steps depends on the
//! size of the change. Independent of how a shard applies the steps. Invariant: if a pool is in
//! none of the lists in [`Changes`], nothing that its shard needs has changed.

use std::cmp::Ordering;
use std::sync::Arc;

use ringwell_core::{NumberRange, PoolId, PromoNumber};

use crate::placement::BUCKETS;
use crate::{Directory, RingPool};

/// The changes for one shard.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The indices and ids of pools that leave the shard.
    pub removed: Vec<(u32, PoolId)>,
    /// New pools, and pools whose numbers or lifetime change. Each pool is stored with its index,
    /// and the list is sorted by id.
    pub put: Vec<(u32, Arc<RingPool>)>,
    /// Numbers that enter the shard's rotation and were in none of its pools before.
    pub entering: Vec<NumberRange>,
}

impl Changes {
    /// The changes for `shard` from the state `before` to the state `after`.
    #[must_use]
    pub fn between(before: &Directory, after: &Directory, shard: u16) -> Self {
        let (mut removed, mut put) = (Vec::new(), Vec::new());
        let pools = |directory: &Directory, bucket| -> Vec<Arc<RingPool>> {
            let is_own = directory.placement().of_bucket(bucket) == shard;
            if is_own { directory.pools_in(bucket).to_vec() } else { Vec::new() }
        };
        let index = |directory: &Directory, id| directory.lookup(id).map(crate::Entry::index);
        for bucket in (0..BUCKETS).filter(|bucket| !after.shares(before, *bucket)) {
            for (old, new) in pairs(&pools(before, bucket), &pools(after, bucket)) {
                match (old, new) {
                    (Some(old), None) => {
                        let index = index(before, old.id());
                        removed.extend(index.map(|index| (index, old.id())));
                    }
                    (Some(old), Some(new)) if is_same(old, new) => {}
                    (_, Some(new)) => {
                        let index = index(after, new.id());
                        put.extend(index.map(|index| (index, Arc::clone(new))));
                    }
                    (None, None) => {}
                }
            }
        }
        removed.sort_unstable();
        put.sort_by_key(|(_, pool)| pool.id());
        let is_new = |range: &&NumberRange| !is_within(before, shard, **range);
        let entering =
            put.iter().flat_map(|(_, pool)| pool.numbers()).filter(is_new).copied().collect();
        Self { removed, put, entering }
    }

    /// Whether nothing changes for the shard.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.put.is_empty()
    }
}

/// Numbers that are overflow numbers in `after` but not in `before`, each with a pool that uses it.
#[must_use]
pub fn new_overflow(before: &Directory, after: &Directory) -> Vec<(PromoNumber, PoolId)> {
    let changed = (0..BUCKETS).filter(|bucket| !after.shares(before, *bucket));
    let pools = changed.flat_map(|bucket| after.pools_in(bucket));
    let numbers = pools.filter_map(|pool| Some((pool.overflow()?, pool.id())));
    numbers.filter(|(number, _)| !before.is_overflow(*number)).collect()
}

/// A pool before and after the change.
type Pair<'a> = (Option<&'a Arc<RingPool>>, Option<&'a Arc<RingPool>>);

/// Pairs the pools of two lists by id; both lists are sorted by id.
fn pairs<'a>(old: &'a [Arc<RingPool>], new: &'a [Arc<RingPool>]) -> Vec<Pair<'a>> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut pairs = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return pairs,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.id().cmp(&other.id()),
        };
        pairs.push(match order {
            Ordering::Less => (old.next(), None),
            Ordering::Equal => (old.next(), new.next()),
            Ordering::Greater => (None, new.next()),
        });
    }
}

/// Whether all properties that a shard needs are the same in both pools.
fn is_same(old: &Arc<RingPool>, new: &Arc<RingPool>) -> bool {
    Arc::ptr_eq(old, new) || (old.numbers() == new.numbers() && old.lifetime() == new.lifetime())
}

/// Whether every number of `range` is in some pool of `shard`; may return `false` if `range` spans
/// several ranges of the pools.
fn is_within(directory: &Directory, shard: u16, range: NumberRange) -> bool {
    let owner = |number| {
        let pool = directory.pool_by_number(number)?;
        directory.lookup(pool).filter(|entry| entry.shard() == shard).map(|_| pool)
    };
    let Some(pool) = owner(range.first()).and_then(|id| directory.pool(id)) else { return false };
    pool.numbers().iter().any(|held| held.contains(range.first()) && held.contains(range.last()))
}

#[cfg(test)]
mod tests;
