//! What a shard has to do to get from one state of the directory to the next.
//!
//! Knows nothing of how a shard does it. Invariant: a pool that is in no list is the same in both
//! states, as far as its shard is concerned.

use std::collections::HashMap;
use std::sync::Arc;

use ringwell_core::{NumberRange, PoolId};

use crate::{Directory, RingPool};

/// The changes of one shard.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Indices of pools that leave the shard, with their ids.
    pub removed: Vec<(u32, PoolId)>,
    /// Pools that come, or have other numbers or another lifetime, with their indices.
    pub put: Vec<(u32, Arc<RingPool>)>,
    /// Numbers that come into the shard's rotation: in no pool of it before.
    pub entering: Vec<NumberRange>,
}

impl Changes {
    /// From `before` to `after`, for `shard`.
    #[must_use]
    pub fn between(before: &Directory, after: &Directory, shard: u16) -> Self {
        let mut old: HashMap<PoolId, &Arc<RingPool>> =
            before.pools_of(shard).iter().map(|pool| (pool.id(), pool)).collect();
        let mut put = Vec::new();
        for pool in after.pools_of(shard) {
            let is_same = |old: &Arc<RingPool>| {
                Arc::ptr_eq(old, pool)
                    || (old.numbers() == pool.numbers() && old.lifetime() == pool.lifetime())
            };
            let index = after.lookup(pool.id()).map_or(0, crate::Entry::index);
            if !old.remove(&pool.id()).is_some_and(is_same) {
                put.push((index, Arc::clone(pool)));
            }
        }
        let index = |id: &PoolId| before.lookup(*id).map(|entry| (entry.index(), *id));
        let mut removed: Vec<_> = old.keys().filter_map(index).collect();
        removed.sort_unstable();
        let is_new = |range: &&NumberRange| !is_within(before, shard, **range);
        let entering =
            put.iter().flat_map(|(_, pool)| pool.numbers()).filter(is_new).copied().collect();
        Self { removed, put, entering }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.put.is_empty()
    }
}

/// Whether every number of `range` is in some pool of `shard`; may say no where several ranges
/// together hold it.
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
