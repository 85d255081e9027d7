//! Placement: the shard that owns each ring pool.
//!
//! A pool's id permanently belongs to one of 1,024 buckets; a table assigns each bucket to a shard.
//! When a shard is added or a bucket is moved, only some pools move; with `id % shards`, nearly all
//! pools would move. Independent of the pools' contents and of connections to shards. Invariant: an
//! id's bucket is the same in every version of Ringwell and on every machine, because journals and
//! other machines depend on it.

use std::iter;

use ringwell_core::PoolId;

/// The count of buckets. With about a thousand buckets, all shards get nearly equal shares, and the
/// table stays small.
pub const BUCKETS: u16 = 1024;

/// The maximum number of shards.
pub const SHARDS_MAX: u16 = 256;

/// The golden ratio as a fraction of 2^64 (Knuth's multiplicative hashing). Pools usually have
/// neighbouring ids, and this factor spreads them over the buckets more evenly than a random hash
/// would. If the ids 1 to 200 are spread over four shards, each shard gets 49 to 51 of them; with a
/// random hash, 38 to 62.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The top bits of a spread id select its bucket; this is the count of those bits.
pub(crate) const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();

/// A pool's id, spread over all 64-bit integers. Its top bits depend on every bit of the id.
#[inline]
pub(crate) const fn spread(pool: PoolId) -> u64 {
    pool.0.wrapping_mul(GOLDEN)
}

/// The bucket of a pool: 0 to 1,023.
#[inline]
#[must_use]
pub const fn bucket(pool: PoolId) -> u16 {
    bucket_of_spread(spread(pool))
}

/// The bucket of a pool with this spread id.
#[inline]
pub(crate) const fn bucket_of_spread(spread: u64) -> u16 {
    (spread >> (u64::BITS - BUCKET_BITS)) as u16
}

/// The owner of each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The owner of each bucket.
    owners: Box<[u16]>,
    shards: u16,
}

impl Placement {
    /// Gives each of `shards` shards a run of consecutive buckets. The lengths of the runs differ
    /// by at most one. Returns `None` unless there are 1 to 256 shards.
    #[must_use]
    pub fn even(shards: u16) -> Option<Self> {
        if !(1..=SHARDS_MAX).contains(&shards) {
            return None;
        }
        let start = |shard: u16| usize::from(shard) * usize::from(BUCKETS) / usize::from(shards);
        let run = |shard| iter::repeat_n(shard, start(shard + 1) - start(shard));
        let owners = (0..shards).flat_map(run).collect();
        Some(Self { owners, shards })
    }

    /// Gives each bucket to the shard at the bucket's index in `owners`. Returns `None` unless
    /// there are 1 to 256 shards and each owner is one of them.
    #[must_use]
    pub fn from_owners(owners: &[u16; BUCKETS as usize], shards: u16) -> Option<Self> {
        let is_known = owners.iter().all(|owner| *owner < shards);
        (is_known && (1..=SHARDS_MAX).contains(&shards))
            .then(|| Self { owners: owners.as_slice().into(), shards })
    }

    /// The count of shards.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.shards
    }

    /// The buckets that `shard` owns, in ascending order.
    pub fn buckets_of(&self, shard: u16) -> impl Iterator<Item = u16> {
        (0..).zip(&self.owners).filter(move |(_, owner)| **owner == shard).map(|(bucket, _)| bucket)
    }

    /// The shard that owns `bucket`.
    ///
    /// # Panics
    /// If the bucket does not exist.
    #[must_use]
    pub fn of_bucket(&self, bucket: u16) -> u16 {
        self.owners[usize::from(bucket)]
    }

    /// The shard that owns `pool`.
    #[inline]
    #[must_use]
    pub fn shard(&self, pool: PoolId) -> u16 {
        self.owners[usize::from(bucket(pool))]
    }
}

#[cfg(test)]
mod tests;
