//! Compares two runs, A and B, and estimates how certain their difference is.
//!
//! Method: percentile bootstrap. Each run's intervals are resampled 2,000 times: each sample draws,
//! with replacement, as many intervals as the run has. For each sample, the rate, the percentiles
//! and the mean are computed from the sums of its intervals' counts and histograms. For each
//! figure, the 95 % confidence interval ranges from the 2.5th to the 97.5th percentile of the ratio
//! B / A over all samples. Intervals are treated as independent. If a disturbance (a warm-up,
//! another program) lasts longer than an interval, the true uncertainty is larger than the computed
//! one. The same random samples are drawn each time, so that repeated comparisons give the same
//! result.

use std::fmt::Write as _;

use crate::outcome::{Outcome, Sample};
use crate::text::{ms, round};

/// The count of samples that are drawn.
const DRAWS: usize = 2_000;
/// The minimum number of intervals in a run. With fewer, the variance could not be estimated.
const INTERVALS_MIN: usize = 5;
/// The seed of the random samples.
const SEED: u64 = 0x5EED;

/// The reason why two runs cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A run is too short.
    #[error("a run has fewer than {INTERVALS_MIN} whole intervals: measure for longer")]
    TooShort,
    /// A run has no answer with status 200.
    #[error("a run got no answer with status 200: there is nothing to compare")]
    NoAnswers,
}

/// One figure, measured in both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// The first run's figure.
    pub a: f64,
    /// The second run's figure.
    pub b: f64,
    /// The ratio B / A, computed from all intervals of both runs.
    pub ratio: f64,
    /// The 95 % confidence interval of the ratio.
    pub between: (f64, f64),
}

/// The comparison of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One line for each figure.
    pub lines: Vec<Line>,
    /// The settings that differ between the runs.
    pub differences: Vec<String>,
}

impl Line {
    /// Whether the difference is certain: the whole confidence interval is above 1, or below 1.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        let (low, high) = self.between;
        low > 1.0 || high < 1.0
    }
}

/// Compares run `b` with run `a`.
///
/// # Errors
/// [`CompareError`] if a run has too little data.
pub fn compare(a: &Outcome, b: &Outcome) -> Result<Comparison, CompareError> {
    if a.samples.len() < INTERVALS_MIN || b.samples.len() < INTERVALS_MIN {
        return Err(CompareError::TooShort);
    }
    let whole = |run: &Outcome| Figures::of(&run.samples, run.interval_seconds, |index| index);
    let (of_a, of_b) = (whole(a), whole(b));
    if of_a.is_empty() || of_b.is_empty() {
        return Err(CompareError::NoAnswers);
    }
    let mut random = Random(SEED);
    let mut draw = |run: &Outcome| {
        let count = run.samples.len();
        Figures::of(&run.samples, run.interval_seconds, |_| random.below(count))
    };
    let draws: Vec<(Figures, Figures)> = (0..DRAWS).map(|_| (draw(a), draw(b))).collect();
    let line = |(index, name): (usize, &'static str)| {
        let (a, b) = (of_a.0[index], of_b.0[index]);
        let mut ratios: Vec<f64> =
            draws.iter().map(|(a, b)| ratio(a.0[index], b.0[index])).collect();
        ratios.sort_by(f64::total_cmp);
        let between = (ratios[DRAWS * 25 / 1000], ratios[DRAWS * 975 / 1000]);
        Line { name, a, b, ratio: ratio(a, b), between }
    };
    let lines = NAMES.into_iter().enumerate().map(line).collect();
    Ok(Comparison { lines, differences: differences(a, b) })
}

/// The figures that are compared. The first is a rate. The others are latencies, which are computed
/// in microseconds and shown in milliseconds.
const NAMES: [&str; 6] = ["batches/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "mean ms"];
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

#[derive(Clone, Copy, Debug)]
struct Figures([f64; 6]);

impl Figures {
    /// Computes the figures from `samples.len()` intervals. `pick` returns the index of each
    /// interval to use, so that intervals can be resampled.
    fn of(samples: &[Sample], seconds: f64, mut pick: impl FnMut(usize) -> usize) -> Self {
        let mut all: Vec<(u64, u64)> = Vec::new();
        let mut ok = 0;
        for index in 0..samples.len() {
            let sample = &samples[pick(index)];
            ok += sample.ok;
            all.extend_from_slice(&sample.latency_ns);
        }
        all.sort_unstable();
        let total: u64 = all.iter().map(|(_, count)| count).sum();
        let sum: f64 = all.iter().map(|(value, count)| float(*value) * float(*count)).sum();
        let mut figures = [float(ok) / (seconds * float(samples.len() as u64)); 6];
        let (mut seen, mut values) = (0, all.iter().peekable());
        for (figure, quantile) in figures[1..].iter_mut().zip(QUANTILES) {
            while let Some((value, count)) = values.peek() {
                *figure = float(*value) / 1e3;
                if float(seen + count) >= quantile * float(total) {
                    break;
                }
                seen += count;
                values.next();
            }
        }
        figures[5] = sum / float(total.max(1)) / 1e3;
        Self(figures)
    }

    fn is_empty(&self) -> bool {
        self.0[0] <= 0.0 || self.0[5] <= 0.0
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if a > 0.0 { b / a } else { f64::INFINITY }
}

#[expect(clippy::cast_precision_loss, reason = "no count or time in ns reaches 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

fn differences(a: &Outcome, b: &Outcome) -> Vec<String> {
    let (a, b) = (a.setting.sentence(), b.setting.sentence());
    if a == b { Vec::new() } else { vec![format!("A: {a}"), format!("B: {b}")] }
}

/// A small random number generator (splitmix64); the choice of intervals may be predictable.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let count = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        usize::try_from((bits ^ (bits >> 31)) % count).unwrap_or(0)
    }
}

impl Comparison {
    /// The comparison as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for difference in &self.differences {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{difference}");
        }
        if !self.differences.is_empty() {
            text += "The runs have different settings, which the comparison below does not take \
                     into account.\n";
        }
        let _ = writeln!(text, "{:<10}{:>12}{:>12}{:>8}   95 % confidence", "", "A", "B", "B/A");
        for line in &self.lines {
            let Line { name, a, b, ratio, between: (low, high) } = line;
            let show = |value: f64| if *name == NAMES[0] { round(value) } else { ms(value) };
            let verdict = match (line.is_sure(), *ratio > 1.0) {
                (false, _) => "no difference shown",
                (true, true) => "more",
                (true, false) => "less",
            };
            let _ = writeln!(
                text,
                "{name:<10}{:>12}{:>12}{ratio:>8.3}   {low:.3} to {high:.3}  {verdict}",
                show(*a),
                show(*b)
            );
        }
        text + "Percentile bootstrap over intervals, 2,000 resamples; latencies are rounded to two \
                significant digits.\n"
    }
}

#[cfg(test)]
pub(crate) mod tests;
