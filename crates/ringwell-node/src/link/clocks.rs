//! Compares the clocks of two machines: every answer over a link contains the time of the node that
//! sent it.
//!
//! No lockout depends on a comparison of clocks. However, look-ups contain a time by the clock of
//! the node that asks. If the clocks differ, this time is converted to the clock of the node that
//! answers.

use std::cell::Cell;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ringwell_driver::platform::CLOCK_DIFFERENCE_MIN_MS;
use ringwell_os::clock::{coarse_time, wall_time};

/// The header with the wall-clock time of the node that answers, in milliseconds. If an answer
/// lacks this header, as answers from early releases do, no clocks are compared.
static CLOCK: HeaderName = HeaderName::from_static("ringwell-clock");

/// The interval between two comparisons.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// The interval between two reports.
const REPORT_EVERY: Duration = Duration::from_mins(10);

/// Adds this node's time to the headers of an answer.
pub(super) fn show(headers: &mut HeaderMap) {
    headers.insert(&CLOCK, HeaderValue::from(millis(wall_time())));
}

/// The clock of another machine, compared with this machine's clock.
#[derive(Debug)]
pub(super) struct Clocks {
    node: String,
    /// Whether differences are reported.
    warns: bool,
    ahead_ms: Cell<i64>,
    estimate_ms: Cell<i64>,
    compared_at: Cell<Option<Duration>>,
    reported_at: Cell<Option<Duration>>,
}

impl Clocks {
    pub(super) fn new(node: String, warns: bool) -> Self {
        let (ahead_ms, estimate_ms, compared_at, reported_at) = Default::default();
        Self { node, warns, ahead_ms, estimate_ms, compared_at, reported_at }
    }

    /// Returns by how many milliseconds the other machine's clock is ahead. The result is negative
    /// if that clock is behind.
    pub(super) fn ahead_ms(&self) -> i64 {
        self.ahead_ms.get()
    }

    /// Returns the best estimate of the difference if the clocks certainly differ, and otherwise
    /// zero.
    pub(super) fn estimate_ms(&self) -> i64 {
        let is_apart = self.ahead_ms.get().unsigned_abs() >= CLOCK_DIFFERENCE_MIN_MS;
        if is_apart { self.estimate_ms.get() } else { 0 }
    }

    /// Compares the time in an answer with this machine's clock. The answer must have arrived just
    /// now, and `took` is the time since the request was sent. Unless `is_exact` is set, does
    /// nothing if the clocks have been compared in the last second.
    pub(super) fn compare(&self, headers: &HeaderMap, took: Duration, is_exact: bool) {
        let now = coarse_time();
        let is_soon = |at| now.saturating_sub(at) < COMPARE_EVERY;
        if !is_exact && self.compared_at.get().is_some_and(is_soon) {
            return;
        }
        let theirs = headers.get(&CLOCK).and_then(|time| time.to_str().ok()?.parse().ok());
        let Some(theirs) = theirs else { return };
        self.compared_at.set(Some(now));
        let arrived = wall_time();
        let (asked, arrived) = (millis(arrived.saturating_sub(took)), millis(arrived));
        let ahead_ms = ahead_ms(theirs, asked, arrived);
        self.ahead_ms.set(ahead_ms);
        // The answer was probably sent in the middle of the interval.
        let half = i64::try_from(arrived.saturating_sub(asked) / 2).unwrap_or_default();
        self.estimate_ms.set(ahead_ms.saturating_add(ahead_ms.signum() * half));
        let is_due = |at| now.saturating_sub(at) >= REPORT_EVERY;
        let is_apart = ahead_ms.unsigned_abs() >= CLOCK_DIFFERENCE_MIN_MS;
        if self.warns && is_apart && self.reported_at.get().is_none_or(is_due) {
            self.reported_at.set(Some(now));
            tracing::warn!(
                node = self.node,
                ahead_ms,
                "the clocks of this node and another node differ: times that these two nodes \
                 report do not agree, and at the node whose clock is wrong, a look-up with a time \
                 may find the wrong visitor. Synchronize the clocks of all nodes with chrony or \
                 systemd-timesyncd"
            );
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns how far `theirs` is outside the interval between request and answer. The result is
/// negative if `theirs` is before the interval.
fn ahead_ms(theirs: u64, asked: u64, arrived: u64) -> i64 {
    let difference =
        |later: u64, earlier: u64| i64::try_from(later.saturating_sub(earlier)).unwrap_or(i64::MAX);
    difference(theirs, arrived) - difference(asked, theirs)
}

#[cfg(test)]
mod tests;
