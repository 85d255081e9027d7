//! What the path of a request needs to know of each ring pool, and how it is found by the pool's id.
//!
//! Ids are counted up by whoever makes pools, so most stand in a table; the others are hashed.
//! Invariant: entries lie side by side, and one with a key of up to 33 bytes is read in one cache
//! line.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;

use ringwell_core::{Millis, PoolId, PromoNumber};

use crate::{RingPool, RingPoolKey, Tracking};

/// What the path of a request needs to know of one ring pool, in two cache lines. What a row needs
/// stands first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// Lies elsewhere: few pools have one.
    next_key: Option<Box<RingPoolKey>>,
    tracking: Option<Arc<Tracking>>,
    /// As an integer, 0 for none: `Option<PromoNumber>` would take twice the room.
    overflow: u64,
    index: u32,
    shard: u16,
    key: RingPoolKey,
    lifetime: Millis,
}

const _: () = assert!(size_of::<Entry>() == 128);
const _: () = assert!(offset_of!(Entry, key) == 30);

impl Entry {
    pub(crate) fn new(pool: &RingPool, shard: u16, index: u32) -> Self {
        Self {
            key: *pool.key(),
            next_key: pool.next_key().copied().map(Box::new),
            tracking: pool.tracking().cloned(),
            lifetime: pool.lifetime(),
            overflow: pool.overflow().map_or(0, PromoNumber::to_u64),
            index,
            shard,
        }
    }

    /// The shard that owns the pool.
    #[inline]
    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard
    }

    /// Where the pool is among its shard's pools. It stays the same in later states of the
    /// directory while the pool stays with its shard; then another pool may get it.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// How long an allocation is guaranteed.
    #[inline]
    #[must_use]
    pub const fn lifetime(&self) -> Millis {
        self.lifetime
    }

    /// Goes out when no number is free; `None` forbids overflow.
    #[inline]
    #[must_use]
    pub const fn overflow(&self) -> Option<PromoNumber> {
        PromoNumber::from_u64(self.overflow)
    }

    /// What tracking URLs are made of; `None` for an empty URL.
    #[inline]
    #[must_use]
    pub fn tracking(&self) -> Option<&Tracking> {
        self.tracking.as_deref()
    }

    /// The key, and the one that is valid beside it, if there is one.
    #[inline]
    pub(crate) fn keys(&self) -> (&RingPoolKey, Option<&RingPoolKey>) {
        (&self.key, self.next_key.as_deref())
    }
}

/// The entries of all pools.
#[derive(Debug)]
pub(crate) struct Entries {
    all: Box<[Entry]>,
    /// Places in `all` by id; [`NOWHERE`] for ids that no pool has.
    table: Box<[u32]>,
    /// Those of ids beyond the table.
    others: HashMap<PoolId, u32, foldhash::fast::FixedState>,
}

/// No entry has this place.
const NOWHERE: u32 = u32::MAX;

/// The table has room for so many ids a pool, and some more.
const TABLE_IDS_A_POOL: usize = 4;
const TABLE_IDS_MORE: usize = 1024;

/// Pool ids come from the configuration, never from a stranger: a fixed seed cannot be abused.
const SEED: u64 = 0x5269_6E67_7765_6C6C;

impl Entries {
    pub(crate) fn new(entries: Vec<(PoolId, Entry)>) -> Self {
        let table_ids = entries.len() * TABLE_IDS_A_POOL + TABLE_IDS_MORE;
        let index = |PoolId(id): PoolId| usize::try_from(id).ok().filter(|id| *id < table_ids);
        let greatest = entries.iter().filter_map(|(id, _)| index(*id)).max();
        let mut table = vec![NOWHERE; greatest.map_or(0, |greatest| greatest + 1)];
        let mut others = HashMap::with_hasher(foldhash::fast::FixedState::with_seed(SEED));
        for (place, (id, _)) in (0..).zip(&entries) {
            match index(*id) {
                Some(index) => table[index] = place,
                None => _ = others.insert(*id, place),
            }
        }
        let all = entries.into_iter().map(|(_, entry)| entry).collect();
        Self { all, table: table.into(), others }
    }

    #[inline]
    pub(crate) fn get(&self, pool: PoolId) -> Option<&Entry> {
        let in_table = usize::try_from(pool.0).ok().and_then(|id| self.table.get(id));
        let place = in_table.or_else(|| self.others.get(&pool))?;
        self.all.get(*place as usize)
    }
}

#[cfg(test)]
mod tests;
