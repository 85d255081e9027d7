//! Latencies as percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Percentiles in microseconds.
#[expect(clippy::struct_field_names, reason = "the unit belongs in the name, in the JSON too")]
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    /// The median.
    pub(crate) p50_us: f64,
    /// One duration in ten is longer.
    pub(crate) p90_us: f64,
    /// One duration in 100 is longer.
    pub(crate) p99_us: f64,
    /// One duration in 1,000 is longer.
    pub(crate) p999_us: f64,
    /// The longest.
    pub(crate) max_us: f64,
}

/// The longest duration that is recorded; longer durations count as this one.
const NANOS_MAX: u64 = 600_000_000_000;

/// Collects durations, in nanoseconds, with three significant digits.
pub(crate) struct Recorder(Histogram<u64>);

impl Recorder {
    /// An empty recorder for durations of up to ten minutes.
    ///
    /// # Errors
    /// This never fails, because the bounds and the precision are valid.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, NANOS_MAX, 3)?))
    }

    /// Adds one duration.
    pub(crate) fn add(&mut self, duration: Duration) {
        self.0.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The percentiles of the recorded values.
    #[must_use]
    pub(crate) fn latency(&self) -> Latency {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Latency {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(self.0.max()),
        }
    }
}

fn micros(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64() * 1e6
}

impl Latency {
    /// The percentiles as one line of text.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        format!(
            "p50 {:.0} us  p90 {:.0} us  p99 {:.0} us  p99.9 {:.0} us  max {:.0} us",
            self.p50_us, self.p90_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

/// Resident memory of a process in KiB (`VmRSS`), if it can be read.
#[must_use]
pub(crate) fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Recorder, resident_kib};
    use std::time::Duration;

    #[test]
    fn percentiles_are_printed_in_microseconds() {
        let mut recorder = Recorder::new().unwrap();
        (1..=1_000).for_each(|n| recorder.add(Duration::from_micros(n)));
        let latency = recorder.latency();
        assert!((latency.p50_us - 500.0).abs() < 2.0, "{latency:?}");
        assert!((latency.p99_us - 990.0).abs() < 2.0, "{latency:?}");
    }

    #[test]
    fn this_process_has_resident_memory() {
        assert!(resident_kib(std::process::id()).is_some_and(|kib| kib > 0));
    }
}
