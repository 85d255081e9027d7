//! A status line on a terminal for work that takes longer than two seconds. Shows the progress, and
//! the remaining time if it can be estimated. Prints nothing if stderr is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The delay before the status line appears. Shorter work needs no status line.
const SILENT: Duration = Duration::from_secs(2);

/// The interval between updates.
const EVERY: Duration = Duration::from_millis(200);

/// Progress of one piece of work.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    /// `None` if the total is not known in advance.
    total: Option<u64>,
    done: u64,
    start: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    /// Starts to track work that consists of `total` units of any kind.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        Self::start(what.into(), Some(total))
    }

    /// Starts to track work whose total is unknown.
    pub(crate) fn counting(what: impl Into<String>) -> Self {
        Self::start(what.into(), None)
    }

    fn start(what: String, total: Option<u64>) -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { what, total, done: 0, start: Instant::now(), drawn: None, is_shown }
    }

    /// Adds completed units.
    pub(crate) fn add(&mut self, units: u64) {
        self.done += units;
        let elapsed = self.start.elapsed();
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= EVERY);
        if self.is_shown && elapsed >= SILENT && is_due {
            self.drawn = Some(Instant::now());
            let _ = write!(io::stderr(), "\r\x1b[K{}", self.line(elapsed));
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let Some(total) = self.total else { return format!("{}: {}", self.what, self.done) };
        let percent = (self.done * 100).checked_div(total).unwrap_or(100).min(100);
        let left = left(self.done, total, elapsed);
        format!("{}: {percent} %, {} s left", self.what, left.as_secs())
    }
}

/// Estimates the remaining time from the speed so far.
fn left(done: u64, total: u64, elapsed: Duration) -> Duration {
    let rest = u128::from(total.saturating_sub(done));
    let millis = (elapsed.as_millis() * rest).checked_div(u128::from(done)).unwrap_or_default();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
#[test]
fn the_remaining_work_takes_as_long_per_piece_as_the_work_so_far() {
    assert_eq!(left(25, 100, Duration::from_secs(10)), Duration::from_secs(30));
    assert_eq!(left(0, 100, Duration::from_secs(10)), Duration::ZERO);
    assert_eq!(left(200, 100, Duration::from_secs(10)), Duration::ZERO);
    let mut progress = Progress::new("copying", 200);
    progress.done = 50;
    assert_eq!(progress.line(Duration::from_secs(4)), "copying: 25 %, 12 s left");
    let mut progress = Progress::counting("exported");
    progress.done = 7_000;
    assert_eq!(progress.line(Duration::from_secs(4)), "exported: 7000");
}
