//! The priority of threads beside the shards.

/// A third of a shard's share if both need the same core.
const NICENESS: i32 = 5;

/// Lowers the priority of the calling thread, and of those that it starts, below that of the
/// shards. Linux applies niceness to threads.
pub fn step_back() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "cannot lower the priority of a thread below that of the shards");
    }
}
