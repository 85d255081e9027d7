//! Compares the clocks of two machines: every answer over a link contains the sender's time.
//!
//! No lockout depends on a comparison of clocks. However, a look-up contains a time from the asking
//! node's clock. If the clocks differ, this time is converted to the answering node's clock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ringwell_driver::platform::CLOCK_DIFFERENCE_MIN_MS;
use ringwell_os::clock::{coarse_time, wall_time};

/// The header with the answering node's wall-clock time, in milliseconds. If an answer lacks this
/// header, as answers from early releases do, no clocks are compared.
static CLOCK: HeaderName = HeaderName::from_static("ringwell-clock");

/// If the difference changes by more than this plus the errors of the estimates, a clock was set.
const SLACK_MS: u64 = 20;

/// The interval between two comparisons.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// The smallest difference that is reported.
const REPORT_MIN_MS: u64 = 1_000;

/// The interval between two reports.
const REPORT_EVERY: Duration = Duration::from_mins(10);

/// Adds this node's time to the headers of an answer.
pub(super) fn show(headers: &mut HeaderMap) {
    headers.insert(&CLOCK, HeaderValue::from(millis(wall_time())));
}

/// The estimates of all links, by the name of the other node. The links of all threads share one
/// estimate, because look-ups that are converted differently would return different times for the
/// same allocation.
#[derive(Debug, Default)]
pub(crate) struct Estimates(Mutex<BTreeMap<String, Arc<Mutex<Estimate>>>>);

impl Estimates {
    pub(super) fn of(&self, node: &str) -> Arc<Mutex<Estimate>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(node.to_owned()).or_default())
    }
}

/// The estimated difference between another machine's clock and this one's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    ahead_ms: i64,
    /// The largest error of `ahead_ms`.
    error_ms: i64,
    is_known: bool,
}

impl Estimate {
    /// Replaces the estimate if the new one is more exact, or if a clock has been set since.
    fn update(&mut self, ahead_ms: i64, error_ms: i64) {
        let is_set =
            ahead_ms.abs_diff(self.ahead_ms) > (error_ms + self.error_ms).unsigned_abs() + SLACK_MS;
        if !self.is_known || is_set || error_ms < self.error_ms {
            *self = Self { ahead_ms, error_ms, is_known: true };
        }
    }
}

/// Another machine's clock, compared with this machine's clock.
#[derive(Debug)]
pub(super) struct Clocks {
    node: String,
    /// Whether differences are reported.
    warns: bool,
    ahead_ms: Cell<i64>,
    estimate: Arc<Mutex<Estimate>>,
    compared_at: Cell<Option<Duration>>,
    reported_at: Cell<Option<Duration>>,
}

impl Clocks {
    pub(super) fn new(node: String, warns: bool, estimates: &Estimates) -> Self {
        let (ahead_ms, compared_at, reported_at) = Default::default();
        let estimate = estimates.of(&node);
        Self { node, warns, ahead_ms, estimate, compared_at, reported_at }
    }

    /// The name of the other node.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Returns by how many milliseconds the other machine's clock is ahead. The result is negative
    /// if that clock is behind.
    pub(super) fn ahead_ms(&self) -> i64 {
        self.ahead_ms.get()
    }

    /// Returns the best estimate of the difference if the clocks certainly differ, and otherwise
    /// zero.
    pub(super) fn estimate_ms(&self) -> i64 {
        let Estimate { ahead_ms, error_ms, .. } =
            *self.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        let certain = ahead_ms.unsigned_abs().saturating_sub(error_ms.unsigned_abs());
        if certain >= CLOCK_DIFFERENCE_MIN_MS { ahead_ms } else { 0 }
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
        let middle = difference(theirs, arrived).saturating_add(half);
        self.estimate.lock().unwrap_or_else(PoisonError::into_inner).update(middle, half);
        let is_due = |at| now.saturating_sub(at) >= REPORT_EVERY;
        let is_apart = ahead_ms.unsigned_abs() >= REPORT_MIN_MS;
        if self.warns && is_apart && self.reported_at.get().is_none_or(is_due) {
            self.reported_at.set(Some(now));
            tracing::warn!(
                node = self.node,
                ahead_ms,
                "the clocks of this node and another node differ: the times that these two \
                 nodes report do not agree. At the node whose clock is wrong, a look-up with a \
                 time may find the wrong visitor. Synchronize the clocks of all nodes with chrony \
                 or systemd-timesyncd"
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
    difference(theirs, arrived).max(0) - difference(asked, theirs).max(0)
}

/// Returns `one` minus `other`.
fn difference(one: u64, other: u64) -> i64 {
    one.checked_signed_diff(other).unwrap_or(if one > other { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;
