//! The owners of buckets, and the digest that nodes use to compare the buckets' pools.

use ringwell_directory::{Directory, Owners};

use crate::change::{self, ChangeError};
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;

/// Makes all of this node's shards serve according to `owners`. Records the owners in `node` only
/// once every shard uses them, so that a failed step is repeated in the next attempt.
pub(super) async fn use_owners<P: Platform>(
    platform: &P,
    node: &Node,
    peers: &Peers,
    owners: Owners,
) -> Result<(), ChangeError> {
    let placement = owners.placement();
    change::apply(platform, node, peers, move |before| Ok(before.moved(placement))).await?;
    node.set_owners(owners);
    Ok(())
}

/// Returns a digest of the pools of `buckets`: their ids, lifetimes and numbers. Two nodes must
/// compute the same digest before a move between them.
pub(super) fn digest(directory: &Directory, buckets: &[u16]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut pools: Vec<_> = buckets.iter().flat_map(|bucket| directory.pools_in(*bucket)).collect();
    pools.sort_by_key(|pool| pool.id());
    for pool in pools {
        for word in [pool.id().0, pool.lifetime().0, pool.numbers().len() as u64] {
            hasher.update(&word.to_le_bytes());
        }
        for range in pool.numbers() {
            hasher.update(&range.first().to_code().to_le_bytes());
            hasher.update(&range.count().to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
