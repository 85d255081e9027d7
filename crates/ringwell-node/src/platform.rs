//! The implementation of the driver's platform on tokio's current-thread runtime.

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ringwell_driver::{Moment, Platform};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::ServeError;
use crate::disk::OsFiles;
use crate::link::call::HttpNet;
use crate::priority::lower_priority;
use crate::tasks::spawn;
use ringwell_os::clock::{boot_time, wall_time};

/// The process's monotonic times are measured from this time.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

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

/// Creates the runtime of one thread.
///
/// # Errors
/// [`ServeError::Thread`].
pub(crate) fn current_thread() -> Result<Runtime, ServeError> {
    // Look-ups read history files on the runtime's blocking threads, which get a lower priority
    // than the thread that serves batches.
    let mut runtime = Builder::new_current_thread();
    runtime.enable_all().on_thread_start(lower_priority).build().map_err(ServeError::Thread)
}
