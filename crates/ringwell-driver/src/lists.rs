//! Digests of each bucket's list of pools, which reveal changes to that list, and the time within
//! which a list spreads.

use std::collections::BTreeMap;

use ringwell_core::Millis;
use ringwell_directory::{BUCKETS, Directory, RingPool};

/// The time within which a new list of pools reaches every node.
pub const LIST_SPREAD: Millis = Millis(10_000);

/// For each bucket, a digest of its pools and their numbers.
pub type Lists = BTreeMap<u16, u64>;

/// Returns the digests of all buckets that have pools.
#[must_use]
pub fn lists(directory: &Directory) -> Lists {
    (0..BUCKETS).filter_map(|bucket| Some((bucket, list(directory, bucket)?))).collect()
}

/// Returns the digest of one bucket, if it has pools.
#[must_use]
pub fn list(directory: &Directory, bucket: u16) -> Option<u64> {
    let pools = directory.pools_in(bucket);
    let mut hasher = blake3::Hasher::new();
    for pool in pools {
        add(&mut hasher, pool);
    }
    (!pools.is_empty()).then(|| shortened(&hasher))
}

/// Returns the digest of all pools, with their lifetimes.
#[must_use]
pub fn digest(directory: &Directory) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for pool in (0..BUCKETS).flat_map(|bucket| directory.pools_in(bucket)) {
        add(&mut hasher, pool);
        hasher.update(&pool.lifetime().0.to_le_bytes());
    }
    shortened(&hasher)
}

/// Adds the pool's id and numbers.
fn add(hasher: &mut blake3::Hasher, pool: &RingPool) {
    hasher.update(&pool.id().0.to_le_bytes());
    hasher.update(&(pool.numbers().len() as u64).to_le_bytes());
    for range in pool.numbers() {
        hasher.update(&range.first().to_code().to_le_bytes());
        hasher.update(&range.count().to_le_bytes());
    }
}

fn shortened(hasher: &blake3::Hasher) -> u64 {
    let mut digest = [0; 8];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(digest)
}
