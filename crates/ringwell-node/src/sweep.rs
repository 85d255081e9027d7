//! The periodic task that closes a shard's slow and idle connections.

use std::rc::Rc;
use std::time::Duration;

use crate::conn::PhaseLimits;
use crate::shard::HttpShard;

/// The interval between two sweeps over the connections.
const ROUND: Duration = Duration::from_secs(1);

/// Enforces the time limits on the phases of connections, until the thread ends. This is a task of
/// its own, so that slow clients are disconnected even while a disk hangs.
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
