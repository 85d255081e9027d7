//! The part of a ring pool that is needed to handle a request.
//!
//! Invariant: if a pool has one key of up to 33 bytes, one cache line contains everything needed to
//! find the pool, compare the key and send a row to the pool's shard.

use std::mem::offset_of;
use std::sync::Arc;

use ringwell_core::{Millis, PoolId, PromoNumber};

use crate::{RingPool, RingPoolKey, Tracking};

/// The part of a ring pool that is needed to handle a request. It fills two cache lines; the fields
/// that every row needs are in the first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    id: PoolId,
    /// The fields that few pools have, stored separately.
    rare: Option<Arc<Rare>>,
    overflow: Option<PromoNumber>,
    index: u32,
    /// The shard, which fits into a byte because there are at most 256.
    shard: u8,
    /// Flags that show whether the cell is empty and which of the rare fields are set, so that
    /// these fields are read only when needed.
    flags: u8,
    key: RingPoolKey,
    lifetime: Millis,
}

/// The flag of an empty cell in a `PoolTable`.
const VACANT: u8 = 1;
const HAS_NEXT_KEY: u8 = 2;
const IS_TRACKED: u8 = 4;

#[derive(Debug)]
struct Rare {
    next_key: Option<RingPoolKey>,
    tracking: Option<Arc<Tracking>>,
}

const _: () = assert!(size_of::<Entry>() == 128);
const _: () = assert!(offset_of!(Entry, key) == 30);

impl Entry {
    pub(crate) fn new(pool: &RingPool, shard: u16, index: u32) -> Self {
        let rare = Rare { next_key: pool.next_key().copied(), tracking: pool.tracking().cloned() };
        let mut flags = 0;
        if rare.next_key.is_some() {
            flags |= HAS_NEXT_KEY;
        }
        if rare.tracking.is_some() {
            flags |= IS_TRACKED;
        }
        Self {
            id: pool.id(),
            rare: (flags != 0).then(|| Arc::new(rare)),
            overflow: pool.overflow(),
            index,
            shard: u8::try_from(shard).unwrap_or(u8::MAX),
            flags,
            key: *pool.key(),
            lifetime: pool.lifetime(),
        }
    }

    /// An empty cell.
    pub(crate) const fn vacant(id: PoolId) -> Self {
        Self {
            id,
            rare: None,
            overflow: None,
            index: 0,
            shard: 0,
            flags: VACANT,
            key: RingPoolKey::NOBODY,
            lifetime: Millis::ZERO,
        }
    }

    /// Whether the cell is empty.
    pub(crate) const fn is_vacant(&self) -> bool {
        self.flags == VACANT
    }

    /// The pool.
    #[inline]
    pub(crate) const fn id(&self) -> PoolId {
        self.id
    }

    /// The shard that owns the pool.
    #[inline]
    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard as u16
    }

    /// The pool's index among its shard's pools. The index stays the same in later states of the
    /// directory as long as the pool stays on its shard. Once the pool has left the shard, another
    /// pool may get the index.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The guaranteed lifetime of an allocation.
    #[inline]
    #[must_use]
    pub const fn lifetime(&self) -> Millis {
        self.lifetime
    }

    /// The number that is handed out when no other is free; `None` forbids overflow.
    #[inline]
    #[must_use]
    pub const fn overflow(&self) -> Option<PromoNumber> {
        self.overflow
    }

    /// The base of tracking URLs; if it is `None`, tracking URLs are empty.
    #[inline]
    #[must_use]
    pub fn tracking(&self) -> Option<&Tracking> {
        self.rare.as_ref().filter(|_| self.is_tracked())?.tracking.as_deref()
    }

    /// Whether the pool has a base of tracking URLs.
    #[inline]
    #[must_use]
    pub const fn is_tracked(&self) -> bool {
        self.flags & IS_TRACKED != 0
    }

    /// The key and, if there is one, the second valid key.
    #[inline]
    pub(crate) fn keys(&self) -> (&RingPoolKey, Option<&RingPoolKey>) {
        let rare = self.rare.as_ref().filter(|_| self.flags & HAS_NEXT_KEY != 0);
        (&self.key, rare.and_then(|rare| rare.next_key.as_ref()))
    }
}
