//! The reasons why buckets do not move.

use crate::change::ChangeError;
use crate::store::FileError;

/// The reason why buckets cannot move, or have not arrived yet.
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
    #[error("shard {shard}'s node does not accept the buckets: {reason}. Nothing has moved")]
    NotTaken { shard: u16, reason: String },
    #[error(
        "the buckets are released, but shard {shard}'s node has not accepted them yet: \
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
    #[error("the buckets were not taken back from shard {shard}'s node: {reason}")]
    NotTakenBack { shard: u16, reason: String },
}
