//! A shard thread's work for its connections, apart from answering.

use std::rc::Rc;
use std::time::Duration;

use crate::conn::PhaseLimits;
use crate::shard::HttpShard;

/// The interval between two sweeps of connections.
const ROUND: Duration = Duration::from_secs(1);

/// Enforces the time limits of the connections' phases until the thread ends. This is a separate
/// task, so that a hanging disk does not keep slow clients connected.
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
