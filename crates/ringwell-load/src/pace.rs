//! Computes the due time of each batch from a rate, a ramp at the beginning, and spikes.
//!
//! Pure arithmetic. Invariant: the times never decrease, and batch n is due at the first time at
//! which the integral of the rate reaches n.

use std::str::FromStr;
use std::time::Duration;

use crate::clock::as_ns;

/// The method that determines when batches are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each connection sends its next batch as soon as the previous answer has
    /// arrived.
    Closed,
    /// Open loop: batches are due at fixed times, regardless of answers.
    Open {
        /// Batches per second, over all connections together.
        rate: f64,
        /// The periods in which the rate is multiplied.
        spikes: Vec<Spike>,
    },
}

/// A period in which the rate is a multiple of the normal one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    at: Duration,
    length: Duration,
    factor: f64,
}

impl FromStr for Spike {
    type Err = String;

    /// Reads `AT,FOR,xN`, as in `10s,2s,x5`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a spike: use AT,FOR,xN, for example 10s,2s,x5");
        let mut parts = text.split(',');
        let (Some(at), Some(length), Some(factor), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let factor = factor.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok());
        let factor = factor.filter(|factor| (0.0..=1e6).contains(factor)).ok_or_else(wrong)?;
        let length_of = |text: &str| parse_duration(text).ok_or_else(wrong);
        Ok(Self { at: length_of(at)?, length: length_of(length)?, factor })
    }
}

/// Reads a length of time with its unit: `250ms`, `1.5s`, `2m`, `1h`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let count: f64 = digits.parse().ok()?;
    Duration::try_from_secs_f64(count * scale).ok()
}

/// Reads a number of batches a second: `1000`, `1000/s`, `2.5k/s`.
#[must_use]
pub fn parse_rate(text: &str) -> Option<f64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let (text, scale) = text.strip_suffix('k').map_or((text, 1.0), |text| (text, 1e3));
    let rate = text.parse::<f64>().ok()? * scale;
    (rate > 0.0 && rate <= 1e7).then_some(rate)
}

/// A period in which the rate changes linearly or is constant.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The start of the period, in seconds.
    from: f64,
    /// The count of batches that are due before the period.
    before: f64,
    /// The rate at the start of the period, in batches a second.
    rate: f64,
    /// The rate's increase per second.
    slope: f64,
    /// The count of batches that are due in the period.
    count: f64,
}

/// The due times of all batches.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    stretches: Vec<Stretch>,
    /// The period of the last batch whose due time was requested. Due times are requested in order.
    place: usize,
}

impl Schedule {
    /// A schedule that ends at `end`. Its rate rises from 0 to `rate` within `ramp`, and is
    /// multiplied during `spikes`.
    pub(crate) fn new(rate: f64, ramp: Duration, spikes: &[Spike], end: Duration) -> Self {
        let end = end.as_secs_f64();
        let ramp = ramp.as_secs_f64();
        let mut edges = vec![0.0, ramp, end];
        for spike in spikes {
            let at = spike.at.as_secs_f64();
            edges.extend([at, at + spike.length.as_secs_f64()]);
        }
        edges.retain(|edge| *edge <= end);
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        let mut stretches = Vec::new();
        let mut before = 0.0;
        for pair in edges.windows(2) {
            let (from, length) = (pair[0], pair[1] - pair[0]);
            let top = rate * factor(spikes, from + length / 2.0);
            let slope = if from < ramp { top / ramp } else { 0.0 };
            let rate = if from < ramp { slope * from } else { top };
            let count = rate * length + slope * length * length / 2.0;
            stretches.push(Stretch { from, before, rate, slope, count });
            before += count;
        }
        Self { stretches, place: 0 }
    }

    /// The due time of batch `index`, in nanoseconds from the start; `None` if the schedule ends
    /// before it. The indices of consecutive calls must not decrease.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 batches")]
    pub(crate) fn due_ns(&mut self, index: u64) -> Option<u64> {
        let index = index as f64;
        while let Some(stretch) = self.stretches.get(self.place) {
            let inside = index - stretch.before;
            if inside < stretch.count {
                let Stretch { from, rate, slope, .. } = *stretch;
                // The time, counted from the period's start, at which the integral of the rate
                // reaches `inside`. This form of the formula avoids a division by a slope of 0.
                let root = (rate * rate + 2.0 * slope * inside).sqrt();
                let sum = rate + root;
                let after = if sum > 0.0 { 2.0 * inside / sum } else { 0.0 };
                return Duration::try_from_secs_f64(from + after).ok().map(as_ns);
            }
            self.place += 1;
        }
        None
    }
}

fn factor(spikes: &[Spike], at: f64) -> f64 {
    let lasts = |spike: &&Spike| {
        let from = spike.at.as_secs_f64();
        (from..from + spike.length.as_secs_f64()).contains(&at)
    };
    spikes.iter().filter(lasts).map(|spike| spike.factor).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(rate: f64, ramp: u64, spikes: &[&str], end: u64) -> Vec<f64> {
        let spikes: Vec<Spike> = spikes.iter().map(|text| text.parse().unwrap()).collect();
        let seconds = Duration::from_secs;
        let mut schedule = Schedule::new(rate, seconds(ramp), &spikes, seconds(end));
        let all = (0..).map_while(|index| schedule.due_ns(index));
        all.map(crate::clock::as_seconds).collect()
    }

    fn within(all: &[f64], from: f64, to: f64) -> usize {
        all.iter().filter(|at| (from..to).contains(at)).count()
    }

    #[test]
    fn a_constant_rate_has_equal_distances() {
        let all = moments(4.0, 0, &[], 2);
        assert_eq!(all, [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]);
    }

    #[test]
    fn a_ramp_of_ten_seconds_sends_half_as_many_in_them() {
        let all = moments(1000.0, 10, &[], 12);
        assert_eq!(within(&all, 0.0, 10.0), 5_000);
        assert_eq!(within(&all, 10.0, 12.0), 2_000);
        assert!((240..=260).contains(&within(&all, 2.0, 3.0)), "a rate of 250 in the middle");
        assert!(all.is_sorted());
    }

    #[test]
    fn a_spike_multiplies_the_rate_and_ends() {
        let all = moments(100.0, 0, &["2s,1s,x5"], 5);
        assert_eq!(within(&all, 0.0, 2.0), 200);
        assert_eq!(within(&all, 2.0, 3.0), 500);
        assert_eq!(within(&all, 3.0, 5.0), 200);
    }

    #[test]
    fn spikes_may_overlap_pause_and_lie_in_the_ramp() {
        let all = moments(100.0, 4, &["1s,2s,x2", "2s,1s,x3", "5s,1s,x0"], 7);
        assert!(all.is_sorted());
        assert_eq!(within(&all, 5.0, 6.0), 0);
        assert_eq!(within(&all, 6.0, 7.0), 100);
        assert!((370..=380).contains(&within(&all, 2.0, 3.0)), "six times 62.5");
    }

    #[test]
    fn durations_and_rates_need_a_unit() {
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Some(Duration::from_mins(2)));
        assert!(
            ["10", "s", "-1s", "1 s", "1e99h", "5x"].iter().all(|t| parse_duration(t).is_none())
        );
        assert_eq!(parse_rate("2.5k/s"), Some(2500.0));
        assert_eq!(parse_rate("1000"), Some(1000.0));
        assert!(["0", "-1", "x", "NaN", "1e9"].iter().all(|text| parse_rate(text).is_none()));
    }

    #[test]
    fn an_unreadable_spike_is_answered_with_the_right_form() {
        for wrong in ["", "1s,2s", "1s,2s,5", "1s,2s,x-1", "1,2s,x5", "1s,2s,x5,x", "1s,2s,xNaN"] {
            let message = wrong.parse::<Spike>().unwrap_err();
            assert!(message.contains("AT,FOR,xN"), "{wrong}: {message}");
        }
    }
}
