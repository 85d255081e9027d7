//! The driver's platform on the calling thread: no threads, no runtime, no network.
//!
//! Tasks are polled only during a call, so a process that makes no calls does nothing. Everything
//! that waits for the disk makes the caller wait.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::thread::sleep;
use std::time::Duration;

use ringwell_driver::local::{Executor, turn};
use ringwell_driver::store::Files;
use ringwell_driver::{Moment, Platform};
use ringwell_os::OsFiles;
use ringwell_os::clock::{boot_time, wall_time};

/// The count of polls of other tasks after a call. This is enough for maintenance to keep pace with
/// the batches, and takes a few microseconds unless something must be flushed.
const POLLS_AFTER: usize = 8;

/// The calling thread. Clones share the same tasks and timers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Executor);

impl Platform for Caller {
    const TURNS_TO_READ: usize = 1;

    // Small, because the caller waits for each piece.
    const SNAPSHOT_ENTRIES: u32 = 128;

    // Short, so that a caller that never pauses does not write much between two rounds.
    const ROUND: Duration = Duration::from_millis(100);

    // Calls from several threads wait for one another.
    const STARTS_LATE: bool = true;

    type Files = OsFiles;
    type Net = Infallible;

    fn files(&self) -> OsFiles {
        OsFiles
    }

    fn moment(&self) -> Moment {
        Moment(OsFiles.moment())
    }

    fn boot_time(&self) -> Duration {
        boot_time()
    }

    fn wall(&self) -> Duration {
        wall_time()
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.0.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        ready(Some(work()))
    }
}

impl Caller {
    /// Runs `work` and the tasks that are ready until `work` completes, then polls some more tasks.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let output = loop {
            self.0.advance(self.moment());
            if let Some(output) = self.0.run(work.as_mut()) {
                break output;
            }
            let Some(next) = self.0.next_timer() else {
                unreachable!("a call waits without a deadline")
            };
            sleep(next.since(self.moment()));
        };
        for _ in 0..POLLS_AFTER {
            if !self.0.poll_next() {
                break;
            }
        }
        output
    }

    /// Runs the tasks until none is ready.
    pub(crate) fn settle(&self) {
        self.0.advance(self.moment());
        while self.0.poll_next() {}
    }

    /// Drops all tasks. Nothing is stored after that.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}
