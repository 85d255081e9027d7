//! Limits how often the same warning is logged, so that attackers cannot fill the disk with log
//! lines.

use core::cell::Cell;
use core::time::Duration;

/// The default time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Permits one line per interval, and counts the lines that it suppresses.
#[derive(Debug)]
pub struct Throttle {
    pause: Duration,
    last: Cell<Option<Duration>>,
    left_out: Cell<u64>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::every(PAUSE)
    }
}

impl Throttle {
    /// Permits one line per `pause`.
    #[must_use]
    pub const fn every(pause: Duration) -> Self {
        Self { pause, last: Cell::new(None), left_out: Cell::new(0) }
    }

    /// Returns the count of lines suppressed since the last permitted line, or `None` if this line
    /// must be suppressed too. `now` may come from any clock that never goes back.
    pub fn pass(&self, now: Duration) -> Option<u64> {
        if self.last.get().is_some_and(|last| now.saturating_sub(last) < self.pause) {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.last.set(Some(now));
        Some(self.left_out.take())
    }
}

#[cfg(test)]
#[test]
fn one_line_a_second_counts_the_omitted_ones() {
    let (throttle, ms) = (Throttle::default(), Duration::from_millis);
    let passed = [0, 1, 999, 1_000, 1_500, 5_000].map(|at| throttle.pass(ms(at)));
    assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
}
