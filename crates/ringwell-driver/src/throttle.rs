//! How often the same warning is logged: strangers must not fill a disk with lines.

use std::cell::Cell;
use std::time::Duration;

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets one line a second through, and counts those that it leaves out.
#[derive(Debug, Default)]
pub struct Throttle {
    last: Cell<Option<Duration>>,
    left_out: Cell<u64>,
}

impl Throttle {
    /// How many lines were left out since the last one that was let through; `None` if this one is
    /// left out too. `now` is any clock that only goes forward.
    pub fn pass(&self, now: Duration) -> Option<u64> {
        if self.last.get().is_some_and(|last| now.saturating_sub(last) < PAUSE) {
            self.left_out.set(self.left_out.get() + 1);
            return None;
        }
        self.last.set(Some(now));
        Some(self.left_out.take())
    }
}

#[cfg(test)]
#[test]
fn one_line_a_second_says_how_many_were_left_out() {
    let (throttle, ms) = (Throttle::default(), Duration::from_millis);
    let passed = [0, 1, 999, 1_000, 1_500, 5_000].map(|at| throttle.pass(ms(at)));
    assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
}
