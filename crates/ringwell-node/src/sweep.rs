//! What a shard's thread does for its connections beside answering.

use std::rc::Rc;
use std::time::Duration;

use crate::conn::PhaseLimits;
use crate::shard::HttpShard;

/// How often connections are swept.
const ROUND: Duration = Duration::from_secs(1);

/// Keeps the limits of connections' phases until the thread ends: a task of its own, so that a disk
/// that hangs does not keep slow clients.
pub(crate) async fn sweep(thread: Rc<HttpShard>) {
    let limits = &thread.node.config.limits;
    let phases = PhaseLimits {
        idle: limits.idle_timeout,
        head: limits.head_timeout,
        write: limits.write_timeout,
    };
    loop {
        tokio::time::sleep(ROUND).await;
        thread.stats.connections_cut.add(thread.connections.sweep(&phases));
    }
}
