//! The implementation of the driver's platform on tokio's current-thread runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ringwell_driver::{Moment, Platform};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::disk::OsFiles;
use crate::link::HttpNet;
use ringwell_os::clock::{boot_time, wall_time};

/// The process's monotonic times are measured from this time.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Boxes a task before it is passed to tokio. Otherwise, tokio's code for tasks would be compiled
/// again for each type of task.
pub(crate) fn boxed(task: impl Future<Output = ()> + 'static) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(task)
}

/// Runs a task on the thread of the current shard.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    tokio::task::spawn_local(boxed(task))
}

/// The tokio runtime. It spawns tasks on the `LocalSet` of the shard's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokio;

impl Platform for Tokio {
    const TURNS_TO_READ: usize = 3;

    type Files = OsFiles;
    type Net = HttpNet;

    fn files(&self) -> OsFiles {
        OsFiles
    }

    fn moment(&self) -> Moment {
        Moment(ORIGIN.elapsed())
    }

    fn boot_time(&self) -> Duration {
        boot_time()
    }

    fn wall(&self) -> Duration {
        wall_time()
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        tokio::time::sleep_until((*ORIGIN + at.0).into())
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        tokio::task::yield_now()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let (done, output) = oneshot::channel();
        // The closure is boxed for the same reason as tasks are in [`boxed`].
        let work: Box<dyn FnOnce() + Send> = Box::new(move || drop(done.send(work())));
        let ended = tokio::task::spawn_blocking(work);
        async move {
            match ended.await {
                Ok(()) => output.await.ok(),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => None,
            }
        }
    }
}
