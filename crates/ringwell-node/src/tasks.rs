//! Tasks on the thread of the current shard.

use std::future::Future;
use std::pin::Pin;

use tokio::task::JoinHandle;

/// Boxes a task before it is passed to tokio. Otherwise, tokio's code for tasks would be compiled
/// again for each type of task.
pub(crate) fn boxed(task: impl Future<Output = ()> + 'static) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(task)
}

/// Runs a task on the thread of the current shard.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(boxed(task))
}
