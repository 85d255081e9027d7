//! Buckets that move between running shards, with their lockouts.
//!
//! The node of the present owner, called the giver, controls the move. It first records that it has
//! released the buckets, and stops serving them. Then it sends the state of the buckets' numbers to
//! the next owner. Once that state is durable there, the giver hands the buckets over. Between the
//! release and this handover, rows of these buckets overflow. An interrupted move continues where
//! it was interrupted, even after a restart. Invariant: a node serves a bucket only while the
//! newest map on its disk assigns the bucket to it, and only if it has the lockouts of all previous
//! owners. Source: docs/spec/cluster.md, "Moving buckets".

mod give;
mod learn;
mod payload;
mod take;

use std::future::Future;

use ringwell_directory::{Directory, Owners};

pub use self::give::Given;
pub use self::give::{abort, give, resume};
pub(crate) use self::learn::ask_owners;
pub use self::learn::{Learnt, announce_owners, copy as copy_owners, learn, learn_from};
pub use self::payload::{
    Adopted, AnswerWord, HoldWord, NumberWord, OwnersCopy, Prepare, Prepared, Take, answer_word,
    hold_word, in_time_of, number_word, read_answer, read_hold, read_number,
};
pub use self::take::{abandon, adopt, adopt_here, prepare, take};
use crate::change::{self, ChangeError};
pub use crate::kept::keep;
use crate::node::Node;
use crate::platform::Platform;
use crate::queue::Peers;
use crate::store::FileError;

/// The reason why buckets do not move, or have not arrived yet.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error texts explain the variants")]
pub enum MoveError {
    #[error(
        "this server is not a node of a cluster: it owns all shards, and --shards sets their number"
    )]
    NoCluster,
    #[error("buckets cannot move, because the journals are in a log shared by all machines")]
    InLog,
    #[error("this node is starting or stopping: try again when it is serving")]
    NotServing,
    #[error("there is no bucket {0}: buckets are numbered from 0 to 1023")]
    NoBucket(u16),
    #[error("there is no shard {0} in the cluster")]
    NoShard(u16),
    #[error(
        "bucket {bucket} belongs to shard {shard} of node {node}: send the request to that node"
    )]
    Elsewhere { bucket: u16, shard: u16, node: String },
    #[error("the node of shard {shard} does not accept the buckets: {reason}. Nothing has moved")]
    NotTaken { shard: u16, reason: String },
    #[error(
        "the buckets are released, but the node of shard {shard} has not accepted them yet: \
            {reason}. Until that node accepts the buckets, their pools answer with overflow \
            numbers. The move is retried until it succeeds, even after a restart"
    )]
    OnTheirWay { shard: u16, reason: String },
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("the map could not be stored: {0}. Nothing has moved")]
    Map(#[from] FileError),
    #[error("buckets that this node released earlier are still moving: {0}")]
    Busy(String),
    #[error("no buckets of this node are in transit")]
    NothingLeaves,
    #[error("the buckets were not taken back from the node of shard {shard}: {reason}")]
    NotTakenBack { shard: u16, reason: String },
}

/// Makes all shards of this node serve according to `owners`. Records the owners in `node` only
/// once every shard uses them, so that a failed step is repeated in the next attempt.
async fn use_owners<P: Platform>(
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

/// Runs `work` to its end, even if the caller stops waiting. An interrupted change would leave some
/// shards in the new state and others in the old one. Returns `None` if the node is stopping.
pub async fn to_its_end<P: Platform, T: 'static>(
    platform: &P,
    work: impl Future<Output = T> + 'static,
) -> Option<T> {
    platform.task(work).await.ok()
}

/// Returns a digest of the pools of `buckets`: their ids, lifetimes and numbers. Two nodes must
/// compute the same digest before a move between them.
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
