//! Implements the driver's `Platform` trait on the calling thread, without other threads, a runtime
//! or a network.
//!
//! Tasks are polled only during a call, so the engine does nothing between calls. If a task waits
//! for the disk, the caller waits, too.

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

/// The maximum number of times that background tasks are polled after a call. It is high enough for
/// maintenance to keep pace with the batches. The polls take a few microseconds, unless data must
/// be flushed.
const POLLS_AFTER: usize = 8;

/// The calling thread. Clones share the same tasks and timers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Executor);

impl Platform for Caller {
    const TURNS_TO_READ: usize = 1;

    // Each piece of a snapshot is small, because the caller waits for it.
    const SNAPSHOT_ENTRIES: u32 = 128;

    // The interval is short, so that a caller that never pauses does not write much between two
    // maintenance rounds.
    const ROUND: Duration = Duration::from_millis(100);

    // A call may begin late, because calls from several threads wait for one another.
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
    /// Runs `work`, together with the tasks that are ready, until `work` completes. Then polls the
    /// ready tasks, at most [`POLLS_AFTER`] times.
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

    /// Runs tasks until none is ready.
    pub(crate) fn settle(&self) {
        self.0.advance(self.moment());
        while self.0.poll_next() {}
    }

    /// Drops all tasks. After this, nothing more is written to the disk.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}
