//! Runs work on a thread with a lower priority than the shards' threads.

use std::thread;

use ringwell_node::lower_priority;

/// Runs `work` on a thread with a lower priority than the shards. The threads that `work` starts
/// inherit the priority. SQLite's threads exist as long as their connections.
pub(crate) fn behind_the_shards<T: Send>(work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let done = thread::scope(|scope| {
        let work = scope.spawn(|| {
            lower_priority();
            work()
        });
        work.join()
    });
    done.map_err(|_| anyhow::anyhow!("the thread that opens the database panicked"))
}
