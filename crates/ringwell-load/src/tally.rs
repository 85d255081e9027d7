//! The counters: answers by status, rows by kind, failures by kind, and latencies.
//!
//! Latencies are recorded only for answers with status 200 and for batches that timed out. The
//! latency of a batch that timed out is at least the timeout. Refusals are left out, because a
//! quick refusal must not make a server look fast.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::answer::Rows;

/// The histogram must distinguish latencies of this length from 0. Its finest step is therefore 64
/// ns.
const LATENCY_MIN_NS: u64 = 100;
/// The longest latency that is recorded; longer latencies count as an hour.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// The number of significant digits in recorded latencies.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds.
pub(crate) type Latencies = Histogram<u64>;

/// An empty histogram.
pub(crate) fn latencies() -> Latencies {
    #[expect(clippy::expect_used, reason = "the constants are valid bounds")]
    Histogram::new_with_bounds(LATENCY_MIN_NS, LATENCY_MAX_NS, DIGITS).expect("fit bounds")
}

/// The reason why a batch has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There was no connection, so nothing was sent.
    Refused,
    /// The connection broke, or was closed before the answer.
    Reset,
    /// The client abandoned the batch.
    Timeout,
    /// The received bytes were not a valid answer.
    Bad,
    /// The run ended before the answer arrived.
    End,
}

/// The counts of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Batches whose first byte was sent.
    pub sent: u64,
    /// Answers by HTTP status.
    pub statuses: BTreeMap<u16, u64>,
    /// Rows with a number, including overflow numbers.
    pub rows: u64,
    /// Rows with an overflow number.
    pub overflow_rows: u64,
    /// Rows with an error.
    pub error_rows: u64,
    /// Attempts to connect that failed.
    pub refused: u64,
    /// Batches whose connection broke or was closed before the answer.
    pub reset: u64,
    /// Batches that the client abandoned.
    pub timeouts: u64,
    /// Answers that were not valid.
    pub bad_answers: u64,
    /// Batches that had no answer when the run ended.
    pub unanswered: u64,
    /// Batches that were due but never sent, because no connection was free.
    pub unsent: u64,
    /// Received bytes.
    pub bytes_in: u64,
}

impl Counts {
    /// Answers with status 200.
    #[must_use]
    pub fn ok(&self) -> u64 {
        self.statuses.get(&200).copied().unwrap_or(0)
    }

    /// The count of all failures: answers with a status other than 200, attempts to connect that
    /// failed, and batches that were not sent or got no valid answer.
    #[must_use]
    pub fn failures(&self) -> u64 {
        let other: u64 = self.statuses.iter().filter(|(s, _)| **s != 200).map(|(_, n)| n).sum();
        let broken = self.refused + self.reset + self.timeouts + self.bad_answers;
        other + broken + self.unanswered + self.unsent
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        let pairs = [
            (&mut self.sent, other.sent),
            (&mut self.rows, other.rows),
            (&mut self.overflow_rows, other.overflow_rows),
            (&mut self.error_rows, other.error_rows),
            (&mut self.refused, other.refused),
            (&mut self.reset, other.reset),
            (&mut self.timeouts, other.timeouts),
            (&mut self.bad_answers, other.bad_answers),
            (&mut self.unanswered, other.unanswered),
            (&mut self.unsent, other.unsent),
            (&mut self.bytes_in, other.bytes_in),
        ];
        for (into, more) in pairs {
            *into += more;
        }
    }
}

/// One thread's counts in one interval.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) latencies: Latencies,
    ok: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { counts: Counts::default(), latencies: latencies(), ok: 0 }
    }

    /// Counts an answer with status 200.
    pub(crate) fn answered(&mut self, latency_ns: u64, rows: Rows) {
        self.ok += 1;
        self.counts.rows += rows.numbers;
        self.counts.overflow_rows += rows.overflow;
        self.counts.error_rows += rows.errors;
        self.latencies.saturating_record(latency_ns);
    }

    /// Counts an answer with another status.
    pub(crate) fn other_status(&mut self, status: u16) {
        *self.counts.statuses.entry(status).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, failure: Failure, latency_ns: u64) {
        match failure {
            Failure::Refused => self.counts.refused += 1,
            Failure::Reset => self.counts.reset += 1,
            Failure::Bad => self.counts.bad_answers += 1,
            Failure::End => self.counts.unanswered += 1,
            Failure::Timeout => {
                self.counts.timeouts += 1;
                self.latencies.saturating_record(latency_ns);
            }
        }
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&mut self) -> (Counts, Latencies) {
        let taken = std::mem::replace(self, Self::new());
        let mut counts = taken.counts;
        if taken.ok > 0 {
            *counts.statuses.entry(200).or_default() += taken.ok;
        }
        (counts, taken.latencies)
    }
}
