//! A run's measurements, as they are printed, stored and compared.

use serde::{Deserialize, Serialize};

use crate::request::Spread;
use crate::tally::{Counts, Latencies};

/// The version of the JSON format of an [`Outcome`].
pub(crate) const FORMAT: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The version of this JSON format: 1.
    pub format: u32,
    /// The program that made the measurements, and its version.
    pub by: String,
    /// The time when the run began, in RFC 3339 format.
    pub started_at: String,
    /// The requested settings.
    pub setting: Setting,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// The time during which batches were sent, in seconds.
    pub seconds: f64,
    /// All counts, including answers that arrived after the last batch was sent.
    pub counts: Counts,
    /// Answers with status 200 per second, measured over `seconds`.
    pub batches_per_second: f64,
    /// Rows with a number per second, measured over `seconds`.
    pub rows_per_second: f64,
    /// Latencies of answers with status 200, and of timeouts.
    pub latency: Latency,
    /// The complete curve of percentiles, for drawing.
    pub percentiles: Vec<Point>,
    /// CPU time that the generator itself used, divided by its running time: 1 means one full core.
    pub generator_cores: f64,
    /// The generator's CPU time per answer, in microseconds.
    pub generator_cpu_us_per_answer: f64,
    /// The length of each interval of `samples`, in seconds.
    pub interval_seconds: f64,
    /// The data of each interval, for curves over time and for comparing runs.
    pub samples: Vec<Sample>,
}

/// The requested settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The addresses that batches are sent to.
    pub targets: Vec<String>,
    /// `open` or `closed`.
    pub mode: String,
    /// The requested rate in batches a second (only in an open loop).
    pub rate: Option<f64>,
    /// The time in seconds during which the rate, or the number of connections, rises from 0.
    pub ramp_seconds: f64,
    /// The count of requested spikes: periods in which the rate is multiplied.
    pub spikes: usize,
    /// The way pools were chosen for rows.
    pub spread: Spread,
    /// The count of pools among which rows were distributed.
    pub pools: usize,
    /// Rows in each batch.
    pub rows: usize,
    /// Keep-alive connections.
    pub connections: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// The requested duration in seconds.
    pub duration_seconds: f64,
    /// The time after which a batch is abandoned, in seconds.
    pub timeout_seconds: f64,
    /// Whether every row was recorded in a history. Recording makes the generator slower.
    pub history: bool,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The fastest answer.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// One in 10 answers is slower than this.
    pub p90_us: f64,
    /// One in 100 answers is slower than this.
    pub p99_us: f64,
    /// One in 1,000 answers is slower than this.
    pub p999_us: f64,
    /// The slowest answer.
    pub max_us: f64,
    /// The arithmetic mean.
    pub mean_us: f64,
}

/// A point on the percentile curve: the fraction `quantile` of all answers took at most `us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// From 0 to 1.
    pub quantile: f64,
    /// Microseconds.
    pub us: f64,
    /// The count of answers up to this point on the curve.
    pub count: u64,
}

/// One interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Answers with 200.
    pub ok: u64,
    /// Rows with a number.
    pub rows: u64,
    /// Rows with an overflow number.
    pub overflow_rows: u64,
    /// Error rows.
    pub error_rows: u64,
    /// All other failures.
    pub failures: u64,
    /// Latencies in nanoseconds, rounded to two significant digits, with their counts.
    pub latency_ns: Vec<(u64, u64)>,
}

impl Latency {
    pub(crate) fn of(all: &Latencies) -> Self {
        if all.is_empty() {
            return Self::default();
        }
        let at = |quantile| us(all.value_at_quantile(quantile));
        Self {
            min_us: us(all.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(all.max()),
            mean_us: all.mean() / 1e3,
        }
    }
}

impl Sample {
    pub(crate) fn new(counts: &Counts, all: &Latencies) -> Self {
        let mut coarse: Vec<(u64, u64)> = Vec::new();
        for step in all.iter_recorded() {
            let value = two_digits(step.value_iterated_to());
            let count = step.count_at_value();
            match coarse.last_mut() {
                Some((last, sum)) if *last == value => *sum += count,
                _ => coarse.push((value, count)),
            }
        }
        Self {
            ok: counts.ok(),
            rows: counts.rows,
            overflow_rows: counts.overflow_rows,
            error_rows: counts.error_rows,
            failures: counts.failures(),
            latency_ns: coarse,
        }
    }
}

/// Returns the percentile curve, up to the slowest answer.
pub(crate) fn curve(all: &Latencies) -> Vec<Point> {
    if all.is_empty() {
        return Vec::new();
    }
    let steps = all.iter_quantiles(5);
    let point = |quantile: f64, ns, count| Point { quantile, us: us(ns), count };
    let mut count = 0;
    steps
        .map(|step| {
            count += step.count_since_last_iteration();
            point(step.quantile_iterated_to(), step.value_iterated_to().min(all.max()), count)
        })
        .collect()
}

/// Rounds to two significant digits.
fn two_digits(value: u64) -> u64 {
    let mut scale = 1;
    while value / scale >= 100 {
        scale *= 10;
    }
    (value + scale / 2) / scale * scale
}

#[expect(clippy::cast_precision_loss, reason = "latencies are at most 1 h, less than 2^53 ns")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::latencies;

    #[test]
    fn percentiles_and_curve_match_the_recorded_values() {
        let mut all = latencies();
        for ms in 1..=1000_u64 {
            all.record(ms * 1_000_000).unwrap();
        }
        let latency = Latency::of(&all);
        let close = |value: f64, ms: f64| (value / 1e3 / ms - 1.0).abs() < 0.002;
        assert!(close(latency.p50_us, 500.0) && close(latency.p99_us, 990.0), "{latency:?}");
        assert!(close(latency.p999_us, 999.0) && close(latency.max_us, 1000.0), "{latency:?}");
        let curve = curve(&all);
        assert!(curve.is_sorted_by(|a, b| a.quantile <= b.quantile && a.us <= b.us));
        assert_eq!(curve.last().unwrap().count, 1000);
    }

    #[test]
    fn a_sample_keeps_counts_and_two_digits() {
        let mut all = latencies();
        all.record_n(123_456, 3).unwrap();
        all.record(99_000_000).unwrap();
        let sample = Sample::new(&Counts::default(), &all);
        assert_eq!(sample.latency_ns, [(120_000, 3), (99_000_000, 1)]);
    }
}
