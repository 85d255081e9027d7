//! The directory: the ring pools, their keys, and the shards that own them.
//!
//! Owns an immutable snapshot that all shards read. A change creates the next state, which shares
//! all unchanged buckets with the previous one. The cost of a change, and of dropping the previous
//! state, therefore depends only on the size of the change. Independent of which numbers are free.
//! Numbers are stored as ranges, so memory grows with the count of pools and not with the count of
//! numbers. Invariant: no two pools share an id or a number, and no overflow number is in rotation.
//! Source: docs/decisions/026-the-directory-shares-its-buckets.md.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringwell_core::{NumberRange, PoolId, PromoNumber};

use crate::check::{self, Clash};
use crate::entry::Entry;
use crate::indices::Indices;
use crate::placement::{BUCKETS, SHARDS_MAX, bucket, bucket_of_spread, spread};
use crate::rotation::Rotation;
use crate::table::PoolTable;
use crate::{Fault, Placement, RingPool, RingPoolKey};

/// A table for each bucket.
type Tables = Box<[Arc<PoolTable>; BUCKETS as usize]>;

/// A snapshot of all ring pools.
#[derive(Debug)]
pub struct Directory {
    version: u64,
    placement: Placement,
    /// Tables by bucket.
    tables: Tables,
    pools: usize,
    /// For each shard, the indices in use.
    indices: Vec<Indices>,
    rotation: Rotation,
    /// A placeholder that the presented key is compared with if the pool does not exist.
    nobody: RingPoolKey,
}

impl Directory {
    /// The maximum number of pools.
    pub const POOLS_MAX: usize = 4_000_000;

    /// Builds a directory of `pools`, spread evenly over `shards` shards.
    ///
    /// # Errors
    /// All conflicts between the pools. In a fault, `ring_pool[7]` is the eighth pool.
    pub fn new(version: u64, pools: Vec<RingPool>, shards: u16) -> Result<Self, Vec<Fault>> {
        Self::with_placement(version, pools, even(shards)?)
    }

    /// Builds a directory of `pools`, assigned to shards by `placement`. A pool's index is its
    /// place in the list that [`Directory::pools_of`] returns for its shard.
    ///
    /// # Errors
    /// The same as for [`Directory::new`].
    pub fn with_placement(
        version: u64,
        pools: Vec<impl Into<Arc<RingPool>>>,
        placement: Placement,
    ) -> Result<Self, Vec<Fault>> {
        let pools: Vec<Arc<RingPool>> = pools.into_iter().map(Into::into).collect();
        check_all(&pools)?;
        Self::build(version, pools, placement)
    }

    /// Returns a directory of the same pools, assigned to shards by `placement`, with the indices
    /// that [`Directory::with_placement`] would give them.
    #[must_use]
    pub fn placed(self, placement: Placement) -> Self {
        let mut indices = vec![Indices::default(); usize::from(placement.shards())];
        let tables = (0..BUCKETS).map(|bucket| {
            let shard = placement.of_bucket(bucket);
            let pools = self.tables[usize::from(bucket)].pools().to_vec();
            table(pools, shard, &mut indices[usize::from(shard)])
        });
        let tables = all_tables(tables.collect());
        Self { placement, tables, indices, ..self }
    }

    /// Like [`Directory::with_placement`], but requires that the pools have already been checked
    /// against each other.
    ///
    /// # Errors
    /// If there are more than [`Self::POOLS_MAX`] pools.
    pub fn build(
        version: u64,
        mut pools: Vec<Arc<RingPool>>,
        placement: Placement,
    ) -> Result<Self, Vec<Fault>> {
        check_count(pools.len())?;
        let (count, rotation) = (pools.len(), Rotation::new(&pools));
        pools.sort_by_cached_key(|pool| (bucket(pool.id()), pool.id()));
        let mut indices = vec![Indices::default(); usize::from(placement.shards())];
        let mut pools = pools.into_iter().peekable();
        let tables = (0..BUCKETS).map(|at| {
            let shard = placement.of_bucket(at);
            let of_bucket = std::iter::from_fn(|| pools.next_if(|pool| bucket(pool.id()) == at));
            table(of_bucket.collect(), shard, &mut indices[usize::from(shard)])
        });
        let tables = all_tables(tables.collect());
        let nobody = RingPoolKey::NOBODY;
        Ok(Self { version, tables, pools: count, placement, indices, rotation, nobody })
    }

    /// Returns the next state. The pools in `put` are added, or replace pools with the same ids;
    /// those in `removed` are removed. Pools that stay keep their [`Entry::index`].
    ///
    /// # Errors
    /// Every rule that the next state would break. In a fault, `ring_pool[7]` is the eighth pool of
    /// `put`.
    pub fn change(&self, put: Vec<RingPool>, removed: &[PoolId]) -> Result<Self, Vec<Fault>> {
        self.next(&put.into_iter().map(Arc::new).collect::<Vec<_>>(), removed)
    }

    /// Returns the next state, which has exactly these `pools`. It shares the memory of unchanged
    /// pools with this state.
    ///
    /// # Errors
    /// The same as for [`Directory::change`] with the pools that are new or changed.
    pub fn replace<'a>(
        &self,
        pools: impl IntoIterator<Item = &'a Arc<RingPool>>,
    ) -> Result<Self, Vec<Fault>> {
        let (mut put, mut kept) = (Vec::new(), BTreeSet::new());
        for pool in pools {
            if self.shared(pool.id()) == Some(pool) {
                kept.insert(pool.id());
            } else {
                put.push(Arc::clone(pool));
            }
        }
        let gone = self.pools().map(|pool| pool.id()).filter(|id| !kept.contains(id));
        self.next(&put, &gone.collect::<Vec<_>>())
    }

    fn next(&self, put: &[Arc<RingPool>], removed: &[PoolId]) -> Result<Self, Vec<Fault>> {
        let mut changes = BTreeMap::new();
        for id in removed {
            changes.extend(self.shared(*id).map(|_| (*id, None)));
        }
        for (place, pool) in put.iter().enumerate() {
            let before = changes.insert(pool.id(), Some(Arc::clone(pool)));
            if before.is_some_and(|before| before.is_some()) {
                return Err(faults(vec![check::same_id(place, pool.id())]));
            }
        }
        let known = changes.keys().filter_map(|id| self.shared(*id));
        let mut rotation = self.rotation.clone();
        let mut pools = self.pools;
        for pool in known {
            rotation.remove(pool);
            pools -= 1;
        }
        pools += put.len();
        check_count(pools)?;
        let clashes = rotation.put(put);
        if !clashes.is_empty() {
            return Err(faults(clashes));
        }
        let (tables, indices) = self.next_tables(changes);
        let (version, placement) = (self.version + 1, self.placement.clone());
        Ok(Self { version, placement, tables, pools, indices, rotation, nobody: self.nobody })
    }

    /// The tables after the pools in `changes` have been replaced or removed.
    fn next_tables(
        &self,
        changes: BTreeMap<PoolId, Option<Arc<RingPool>>>,
    ) -> (Tables, Vec<Indices>) {
        let mut indices = self.indices.clone();
        for id in changes.iter().filter(|(_, put)| put.is_none()).map(|(id, _)| id) {
            if let Some(entry) = self.lookup(*id) {
                indices[usize::from(entry.shard())].give(entry.index());
            }
        }
        // For each bucket, the ids that are removed or replaced, and the new entries.
        let mut by_bucket = BTreeMap::<u16, (BTreeSet<PoolId>, Vec<_>)>::new();
        for (id, put) in changes {
            let (replaced, new) = by_bucket.entry(bucket(id)).or_default();
            replaced.insert(id);
            let Some(pool) = put else { continue };
            let shard = self.placement.shard(id);
            let of_shard = &mut indices[usize::from(shard)];
            let index = self.lookup(id).map_or_else(|| of_shard.take(), Entry::index);
            let entry = Entry::new(&pool, shard, index);
            new.push((pool, entry));
        }
        let mut tables = self.tables.clone();
        for (bucket, (replaced, mut pools)) in by_bucket {
            let before = &mut tables[usize::from(bucket)];
            let stay = before.pools().iter().filter(|pool| !replaced.contains(&pool.id()));
            let entry = |pool: &Arc<RingPool>| self.lookup(pool.id()).cloned();
            pools.extend(stay.filter_map(|pool| Some((Arc::clone(pool), entry(pool)?))));
            pools.sort_by_key(|(pool, _)| pool.id());
            *before = Arc::new(PoolTable::new(pools));
        }
        (tables, indices)
    }

    /// Returns the next state, with the same pools, assigned to shards by `placement`. Pools that
    /// stay on their shard keep their [`Entry::index`].
    #[must_use]
    pub fn moved(&self, placement: Placement) -> Self {
        let mut indices = self.indices.clone();
        indices.resize(usize::from(placement.shards()).max(indices.len()), Indices::default());
        let mut tables = self.tables.clone();
        let is_moved =
            |bucket: &u16| placement.of_bucket(*bucket) != self.placement.of_bucket(*bucket);
        let moved: Vec<u16> = (0..BUCKETS).filter(is_moved).collect();
        for bucket in &moved {
            let of_shard = &mut indices[usize::from(self.placement.of_bucket(*bucket))];
            for pool in tables[usize::from(*bucket)].pools() {
                self.lookup(pool.id()).iter().for_each(|entry| of_shard.give(entry.index()));
            }
        }
        for bucket in moved {
            let shard = placement.of_bucket(bucket);
            let before = &mut tables[usize::from(bucket)];
            *before = table(before.pools().to_vec(), shard, &mut indices[usize::from(shard)]);
        }
        let (version, rotation) = (self.version + 1, self.rotation.clone());
        let (pools, nobody) = (self.pools, self.nobody);
        Self { version, placement, tables, pools, indices, rotation, nobody }
    }

    /// The part of `pool` that requests need; `None` if the pool does not exist.
    #[inline]
    #[must_use]
    pub fn lookup(&self, pool: PoolId) -> Option<&Entry> {
        let spread = spread(pool);
        self.tables[usize::from(bucket_of_spread(spread))].get(spread, pool)
    }

    /// Whether `key` is valid for the pool found by a look-up. Takes the same time if there is no
    /// pool, so that the time does not reveal whether the pool exists.
    #[expect(
        clippy::inline_always,
        reason = "without inlining, a third of the instructions would be call overhead"
    )]
    #[inline(always)]
    #[must_use]
    pub fn check_key(&self, entry: Option<&Entry>, key: &[u8]) -> bool {
        let (first, next) = entry.map_or((&self.nobody, None), Entry::keys);
        let first = first.difference(key);
        // If there are two keys, both are compared in full before the result is decided.
        let second = next.map_or(first, |next| next.difference(key));
        (first == 0 || second == 0) && entry.is_some()
    }

    /// The version of this state of the directory. Later states have greater versions.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The owner of each bucket.
    #[must_use]
    pub const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The count of shards.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.placement.shards()
    }

    /// The count of pools.
    #[must_use]
    pub const fn pool_count(&self) -> usize {
        self.pools
    }

    /// All pools, sorted by bucket and then by id.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<RingPool>> {
        self.tables.iter().flat_map(|table| table.pools())
    }

    /// The count of numbers in rotation in all pools.
    #[must_use]
    pub const fn number_count(&self) -> u64 {
        self.rotation.count()
    }

    /// The pools of `shard`, sorted by bucket and then by id; none if there is no such shard.
    pub fn pools_of(&self, shard: u16) -> impl Iterator<Item = &Arc<RingPool>> {
        self.placement.buckets_of(shard).flat_map(|bucket| self.pools_in(bucket))
    }

    /// The pools of a bucket, sorted by id; none if there is no such bucket.
    #[must_use]
    pub fn pools_in(&self, bucket: u16) -> &[Arc<RingPool>] {
        self.tables.get(usize::from(bucket)).map_or(&[], |table| table.pools())
    }

    /// Whether this state and `other` share the data of a bucket's pools. If so, the pools and
    /// their shard are the same in both.
    pub(crate) fn shares(&self, other: &Self, bucket: u16) -> bool {
        let of = |directory: &Self| directory.tables.get(usize::from(bucket)).map(Arc::as_ptr);
        of(self) == of(other)
    }

    /// The complete pool, not only the part that requests need.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&RingPool> {
        self.shared(id).map(|pool| &**pool)
    }

    fn shared(&self, id: PoolId) -> Option<&Arc<RingPool>> {
        self.tables[usize::from(bucket(id))].pool(id)
    }

    /// The pool that has `number` in its rotation.
    #[must_use]
    pub fn pool_by_number(&self, number: PromoNumber) -> Option<PoolId> {
        self.rotation.pool(number)
    }

    /// The pools with any numbers of `range` in their rotation.
    pub fn pools_with(&self, range: NumberRange) -> impl Iterator<Item = PoolId> {
        self.rotation.pools(range)
    }

    /// Whether `number` is the overflow number of any pool.
    #[must_use]
    pub fn is_overflow(&self, number: PromoNumber) -> bool {
        self.rotation.overflow_pools(number).next().is_some()
    }

    /// The pools whose overflow number is `number`, in the order of their ids.
    #[must_use]
    pub fn overflow_pools(&self, number: PromoNumber) -> Vec<PoolId> {
        self.rotation.overflow_pools(number).collect()
    }
}

/// Builds the table of a bucket that `shard` owns; `pools` are sorted by id.
fn table(pools: Vec<Arc<RingPool>>, shard: u16, indices: &mut Indices) -> Arc<PoolTable> {
    let with_entry = |pool: Arc<RingPool>| {
        let entry = Entry::new(&pool, shard, indices.take());
        (pool, entry)
    };
    Arc::new(PoolTable::new(pools.into_iter().map(with_entry).collect()))
}

#[expect(clippy::expect_used, reason = "the argument contains a table for each bucket")]
fn all_tables(tables: Vec<Arc<PoolTable>>) -> Tables {
    tables.try_into().expect("a table for each bucket")
}

/// Like [`Placement::even`], with a fault for an invalid count of shards.
///
/// # Errors
/// If the count of shards is invalid.
pub fn even(shards: u16) -> Result<Placement, Vec<Fault>> {
    let fault = || Fault {
        field: "shards".to_owned(),
        message: format!("must be 1 to {SHARDS_MAX}, but is {shards}"),
        ..Fault::default()
    };
    Placement::even(shards).ok_or_else(|| vec![fault()])
}

/// Checks the pools for conflicts.
fn check_all<P: Borrow<RingPool>>(pools: &[P]) -> Result<(), Vec<Fault>> {
    let clashes = check::clashes(pools);
    if clashes.is_empty() { Ok(()) } else { Err(faults(clashes)) }
}

fn faults(clashes: Vec<Clash>) -> Vec<Fault> {
    let fault = |clash: Clash| Fault {
        field: format!("ring_pool[{}].{}", clash.pool, clash.field),
        message: clash.message,
        hint: Some(clash.hint.to_owned()),
        ..Fault::default()
    };
    clashes.into_iter().map(fault).collect()
}

fn check_count(pools: usize) -> Result<(), Vec<Fault>> {
    let fault = || Fault {
        field: "ring_pool".to_owned(),
        message: format!("has {pools} entries, but at most {} are allowed", Directory::POOLS_MAX),
        ..Fault::default()
    };
    if pools > Directory::POOLS_MAX { Err(vec![fault()]) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
