//! Limits the log lines about a repeated failure, such as an unavailable service, to one per
//! minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two log lines.
const PAUSE: Duration = Duration::from_mins(1);

/// Permits one log line per minute about a repeated failure. Meant for a `static` next to the log
/// call.
#[derive(Debug)]
pub struct Repeated(Mutex<RepeatedState>);

#[derive(Debug)]
struct RepeatedState {
    last: Option<Instant>,
    left_out: u64,
}

impl Repeated {
    /// Creates a limiter for a failure that has not occurred yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(RepeatedState { last: None, left_out: 0 }))
    }

    /// Returns the count of log lines that were suppressed since the last permitted line, or `None`
    /// if the current line must be suppressed too.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

impl Default for Repeated {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[test]
fn one_line_a_minute_counts_the_omitted_ones() {
    let (repeated, start) = (Repeated::new(), Instant::now());
    let at = |seconds| repeated.pass_at(start + Duration::from_secs(seconds));
    assert_eq!([0, 1, 59, 60, 61].map(at), [Some(0), None, None, Some(2), None]);
}
