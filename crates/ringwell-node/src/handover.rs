//! Buckets that move between running shards, with their lockouts.
//!
//! The present owner's node makes the move. It writes down that it has given the buckets up and
//! serves them no more; then it tells the next owner what it knows of their numbers; when that is
//! durable there, it hands the buckets over. Between the two, rows of these buckets overflow. A
//! move that was cut off goes on where it was, after a restart too.
//! Invariant: a node serves a bucket only while its newest map on disk says so, and it has the
//! lockouts of all owners before. Source: docs/spec/cluster.md, "Moving buckets".

mod give;
mod learn;
mod take;

use ringwell_directory::{Directory, Owners};

pub use self::give::Given;
pub(crate) use self::give::{abort, give, resume};
pub(crate) use self::learn::{learn, learn_from, tell_all};
pub(crate) use self::take::{abandon, adopt, adopt_here, prepare, take};
use crate::change::{self, ChangeError};
use crate::disk::{FileError, Leaving, OsFiles, ServedMap, create_directory};
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;

/// Why buckets stay where they are, or are on their way still.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveError {
    #[error("this server is no node of a cluster: all shards are its own, and move with --shards")]
    NoCluster,
    #[error("this node is starting or stopping: ask again when it serves")]
    NotServing,
    #[error("there is no bucket {0}: they are counted from 0 to 1023")]
    NoBucket(u16),
    #[error("there is no shard {0} in the cluster")]
    NoShard(u16),
    #[error("bucket {bucket} is of shard {shard}, which is node {node}'s: ask that node")]
    Elsewhere { bucket: u16, shard: u16, node: String },
    #[error("the node of shard {shard} does not take them: {reason}. Nothing has moved")]
    NotTaken { shard: u16, reason: String },
    #[error(
        "the buckets are given up, but the node of shard {shard} has not taken them yet: {reason}. \
         Their rows get overflow numbers; it is tried again until it succeeds, after a restart too"
    )]
    OnTheirWay { shard: u16, reason: String },
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("the map could not be stored: {0}. Nothing has moved")]
    Map(#[from] FileError),
    #[error("buckets of this node that were given up before are still on their way: {0}")]
    Busy(String),
    #[error("no buckets of this node are on their way")]
    NothingLeaves,
    #[error("the buckets are not taken back from the node of shard {shard}: {reason}")]
    NotTakenBack { shard: u16, reason: String },
}

/// Serves by these owners from now on. They are known as the node's once they are in use, so that
/// what failed is done again when it is told again.
async fn use_owners(node: &Node, peers: &Peers, owners: Owners) -> Result<(), ChangeError> {
    let placement = owners.placement();
    change::apply(node, peers, move |before| Ok(before.moved(placement))).await?;
    node.set_owners(owners);
    Ok(())
}

/// Does `work` to its end, also if whoever asked for it stops waiting: a change that is cut off half
/// way would leave some shards in the new state and some in the old one. `None`: the node ends.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    tokio::spawn(work).await.ok()
}

/// Writes down, durably, which buckets this node serves by `owners`, and which are on their way.
pub(crate) async fn keep(
    node: &Node,
    owners: &Owners,
    leaving: Vec<Leaving>,
) -> Result<(), FileError> {
    let map =
        ServedMap::of(owners.clone(), |shard| node.is_own(shard), leaving, node.bucket_holds());
    let data = node.config.data.clone();
    let written = tokio::task::spawn_blocking(move || {
        // With durability "memory" nobody has made it yet.
        create_directory(&data)?;
        map.write(&OsFiles, &data)
    })
    .await;
    written.unwrap_or_else(|error| {
        Err(FileError::new("write", &node.config.data, std::io::Error::other(error)))
    })
}

/// What two nodes must know alike of the pools of `buckets` before those move.
fn digest(directory: &Directory, buckets: &[u16]) -> String {
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
