//! The directory: which ring pools there are, what they ask for, and which shard owns them.
//!
//! Owns an immutable snapshot that every shard reads and none changes; a change makes another one.
//! Knows nothing of which numbers are free. Ranges of numbers stay ranges: what it takes of memory
//! grows with the pools, not with their numbers.
//! Invariant: no two pools share an id or a number, and no overflow number is in rotation.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::Arc;

use ringwell_core::{PoolId, PromoNumber};

use crate::check::{self, Run};
use crate::entry::{Entries, Entry};
use crate::placement::SHARDS_MAX;
use crate::{Fault, Placement, RingPool, RingPoolKey};

/// A snapshot of all ring pools.
#[derive(Debug)]
pub struct Directory {
    version: u64,
    placement: Placement,
    /// By shard, then by id.
    pools: Box<[Arc<RingPool>]>,
    /// Where each shard's pools start in `pools`, and where the last one's end.
    starts: Box<[usize]>,
    entries: Entries,
    /// The ranges in rotation, by their first number; they do not overlap.
    runs: Box<[Run]>,
    /// Overflow numbers with their pools, in rising order.
    overflow: Box<[(PromoNumber, PoolId)]>,
    numbers: u64,
    /// Compared with whatever is presented for a pool that does not exist.
    nobody: RingPoolKey,
}

impl Directory {
    /// The most pools.
    pub const POOLS_MAX: usize = 4_000_000;

    /// Makes a snapshot of `pools`, spread evenly over `shards` shards.
    ///
    /// # Errors
    /// Every rule that the pools break together; `ring_pool[7]` is the eighth of them.
    pub fn new(version: u64, pools: Vec<RingPool>, shards: u16) -> Result<Self, Vec<Fault>> {
        Self::with_placement(version, pools, even(shards)?)
    }

    /// Makes a snapshot of `pools`, each with the shard that `placement` gives it.
    ///
    /// # Errors
    /// As of [`Directory::new`].
    pub fn with_placement(
        version: u64,
        pools: Vec<RingPool>,
        placement: Placement,
    ) -> Result<Self, Vec<Fault>> {
        check_all(&pools)?;
        Self::assemble(version, pools, placement)
    }

    /// The same pools, each with the shard that `placement` gives it.
    ///
    /// # Errors
    /// None, as the pools have been checked.
    pub fn placed(self, placement: Placement) -> Result<Self, Vec<Fault>> {
        Self::build(self.version, self.pools.into_vec(), placement, None)
    }

    /// As [`Directory::with_placement`], for pools that have been checked against each other.
    pub(crate) fn assemble(
        version: u64,
        pools: Vec<RingPool>,
        placement: Placement,
    ) -> Result<Self, Vec<Fault>> {
        Self::build(version, pools.into_iter().map(Arc::new).collect(), placement, None)
    }

    /// The state that follows this one: `pools` on `placement`. Pools that stay with their shard
    /// keep their [`Entry::index`].
    ///
    /// # Errors
    /// As of [`Directory::new`].
    pub fn succeed(
        &self,
        version: u64,
        pools: Vec<Arc<RingPool>>,
        placement: Placement,
    ) -> Result<Self, Vec<Fault>> {
        check_all(&pools)?;
        Self::build(version, pools, placement, Some(self))
    }

    /// This state's pools with those of `put` in place of the ones with their ids, and without
    /// those of `removed`. To be given to [`Directory::succeed`].
    #[must_use]
    pub fn changed(&self, put: Vec<RingPool>, removed: &[PoolId]) -> Vec<Arc<RingPool>> {
        let gone: HashSet<PoolId> =
            put.iter().map(RingPool::id).chain(removed.iter().copied()).collect();
        let stay = self.pools.iter().filter(|pool| !gone.contains(&pool.id()));
        stay.cloned().chain(put.into_iter().map(Arc::new)).collect()
    }

    /// `pools` as a whole list, in which those that are as in this state share its memory. To be
    /// given to [`Directory::succeed`].
    #[must_use]
    pub fn reconciled(&self, pools: &[Arc<RingPool>]) -> Vec<Arc<RingPool>> {
        let known = |pool: &Arc<RingPool>| self.shared(pool.id()).filter(|known| *known == pool);
        pools.iter().map(|pool| Arc::clone(known(pool).unwrap_or(pool))).collect()
    }

    fn build(
        version: u64,
        mut pools: Vec<Arc<RingPool>>,
        placement: Placement,
        before: Option<&Self>,
    ) -> Result<Self, Vec<Fault>> {
        if pools.len() > Self::POOLS_MAX {
            return Err(vec![pools_fault(pools.len())]);
        }
        pools.sort_by_cached_key(|pool| (placement.shard(pool.id()), pool.id()));
        let starts: Box<[usize]> = (0..=placement.shards())
            .map(|shard| pools.partition_point(|pool| placement.shard(pool.id()) < shard))
            .collect();
        let mut entries = Vec::with_capacity(pools.len());
        for (shard, bounds) in (0..).zip(starts.windows(2)) {
            let of_shard = &pools[bounds[0]..bounds[1]];
            for (pool, index) in of_shard.iter().zip(indices(of_shard, shard, before)) {
                entries.push((pool.id(), Entry::new(pool, shard, index)));
            }
        }
        let mut overflow: Vec<_> =
            pools.iter().filter_map(|pool| Some((pool.overflow()?, pool.id()))).collect();
        overflow.sort_unstable();
        Ok(Self {
            version,
            placement,
            starts,
            entries: Entries::new(entries),
            runs: check::runs(&pools).into(),
            overflow: overflow.into(),
            numbers: pools.iter().map(|pool| pool.number_count()).sum(),
            nobody: RingPoolKey::NOBODY,
            pools: pools.into(),
        })
    }

    /// What the path of a request needs to know of `pool`; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn lookup(&self, pool: PoolId) -> Option<&Entry> {
        self.entries.get(pool)
    }

    /// Whether `key` opens the pool that a look-up found. Takes as long if it found none, so that
    /// the time does not tell whether a pool exists.
    #[inline]
    #[must_use]
    pub fn check_key(&self, entry: Option<&Entry>, key: &[u8]) -> bool {
        let (first, next) = entry.map_or((&self.nobody, None), Entry::keys);
        let first = first.difference(key);
        // Where there are two, both are compared in full before either is judged.
        let second = next.map_or(first, |next| next.difference(key));
        (first == 0 || second == 0) && entry.is_some()
    }

    /// Which state of the directory this is; later ones have greater versions.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Which shard owns which bucket.
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How many shards there are.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.placement.shards()
    }

    /// All pools, by shard, then by id.
    #[must_use]
    pub fn pools(&self) -> &[Arc<RingPool>] {
        &self.pools
    }

    /// How many numbers are in rotation, in all pools together.
    #[must_use]
    pub const fn number_count(&self) -> u64 {
        self.numbers
    }

    /// The pools of `shard`, by their ids; none if there is no such shard.
    #[must_use]
    pub fn pools_of(&self, shard: u16) -> &[Arc<RingPool>] {
        match self.starts.get(usize::from(shard)..usize::from(shard) + 2) {
            Some(bounds) => &self.pools[bounds[0]..bounds[1]],
            None => &[],
        }
    }

    /// The pool with everything that the directory knows of it.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&RingPool> {
        self.shared(id).map(|pool| &**pool)
    }

    fn shared(&self, id: PoolId) -> Option<&Arc<RingPool>> {
        let pools = self.pools_of(self.lookup(id)?.shard());
        pools.get(pools.binary_search_by_key(&id, |pool| pool.id()).ok()?)
    }

    /// The pool in whose rotation `number` is.
    #[must_use]
    pub fn pool_by_number(&self, number: PromoNumber) -> Option<PoolId> {
        let place = check::owner(&self.runs, number.to_u64())?;
        Some(self.pools[usize::try_from(place).ok()?].id())
    }

    /// Whether `number` is the overflow number of some pool.
    #[must_use]
    pub fn is_overflow(&self, number: PromoNumber) -> bool {
        self.overflow.binary_search_by_key(&number, |(other, _)| *other).is_ok()
    }

    /// The pools whose overflow number is `number`, by their ids.
    #[must_use]
    pub fn overflow_pools(&self, number: PromoNumber) -> Vec<PoolId> {
        let first = self.overflow.partition_point(|(other, _)| *other < number);
        let rest = &self.overflow[first..];
        rest.iter().take_while(|(other, _)| *other == number).map(|(_, pool)| *pool).collect()
    }
}

/// As [`Placement::even`], with a fault for a count of shards that cannot be.
pub(crate) fn even(shards: u16) -> Result<Placement, Vec<Fault>> {
    let fault = || Fault {
        field: "shards".to_owned(),
        message: format!("must be 1 to {SHARDS_MAX}, is {shards}"),
        ..Fault::default()
    };
    Placement::even(shards).ok_or_else(|| vec![fault()])
}

/// Checks the rules between pools.
fn check_all<P: Borrow<RingPool>>(pools: &[P]) -> Result<(), Vec<Fault>> {
    let faults: Vec<Fault> = check::clashes(pools)
        .into_iter()
        .map(|clash| Fault {
            field: format!("ring_pool[{}].{}", clash.pool, clash.field),
            message: clash.message,
            hint: Some(clash.hint.to_owned()),
            ..Fault::default()
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The indices of a shard's pools: those of `before` for pools that it had already, and for others
/// the lowest that are free.
fn indices(pools: &[Arc<RingPool>], shard: u16, before: Option<&Directory>) -> Vec<u32> {
    let kept = |pool: &Arc<RingPool>| {
        let entry = before?.lookup(pool.id())?;
        (entry.shard() == shard).then_some(entry.index())
    };
    let kept: Vec<Option<u32>> = pools.iter().map(kept).collect();
    let taken: HashSet<u32> = kept.iter().copied().flatten().collect();
    let mut free = (0..).filter(|index| !taken.contains(index));
    kept.into_iter().map(|index| index.unwrap_or_else(|| free.next().unwrap_or(u32::MAX))).collect()
}

fn pools_fault(count: usize) -> Fault {
    Fault {
        field: "ring_pool".to_owned(),
        message: format!("are {count}, and may be {} at most", Directory::POOLS_MAX),
        ..Fault::default()
    }
}

#[cfg(test)]
mod tests;
