//! The counters of a journal.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::locks::lock;

/// The longest time that is recorded for a flush, in microseconds. Longer flushes count as this
/// long.
const FLUSH_MICROS_MAX: u64 = 60_000_000;

/// A journal's counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The count of groups that were stored.
    pub frames: u64,
    /// The total size of these groups' records, in bytes.
    pub body_bytes: u64,
    /// The number of bytes that were written for these groups.
    pub written_bytes: u64,
    /// The total time spent writing and flushing these groups.
    pub flush_total: Duration,
    /// The median time to store a group.
    pub flush_p50: Duration,
    /// The 99th percentile of the time to store a group.
    pub flush_p99: Duration,
    /// The count of segments that are kept.
    pub segments: usize,
    /// Their total length.
    pub segment_bytes: u64,
    /// Whether the disk is full and a group is waiting for space.
    pub full: bool,
    /// Whether a write or flush has failed. If so, nothing more is stored.
    pub failed: bool,
}

/// The counters behind [`Stats`].
#[derive(Debug)]
pub(super) struct Counters(Mutex<(Stats, Histogram<u64>)>);

impl Counters {
    pub(super) fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants; a test creates this histogram"
        )]
        let histogram =
            Histogram::new_with_bounds(1, FLUSH_MICROS_MAX, 2).expect("bounds of a histogram");
        Self(Mutex::new((Stats::default(), histogram)))
    }

    pub(super) fn stored(&self, body_bytes: usize, written_bytes: usize, took: Duration) {
        self.with(|stats, histogram| {
            stats.frames += 1;
            stats.body_bytes += body_bytes as u64;
            stats.written_bytes += written_bytes as u64;
            stats.flush_total += took;
            stats.full = false;
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            histogram.saturating_record(micros.clamp(1, FLUSH_MICROS_MAX));
        });
    }

    pub(super) fn full(&self) {
        self.with(|stats, _| stats.full = true);
    }

    /// Whether a write or flush has failed.
    pub(super) fn have_failed(&self) -> bool {
        self.with(|stats, _| stats.failed)
    }

    pub(super) fn failed(&self) {
        self.with(|stats, _| stats.failed = true);
    }

    pub(super) fn read(&self) -> Stats {
        self.with(|stats, histogram| Stats {
            flush_p50: Duration::from_micros(histogram.value_at_quantile(0.5)),
            flush_p99: Duration::from_micros(histogram.value_at_quantile(0.99)),
            ..*stats
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Stats, &mut Histogram<u64>) -> T) -> T {
        let mut guard = lock(&self.0);
        let (stats, histogram) = &mut *guard;
        f(stats, histogram)
    }
}
