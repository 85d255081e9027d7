//! Computes the probability that the last visitor who was shown a number is the caller.
//!
//! Uses only the number's allocations before the call. Each allocation has a score: the probability
//! density of the delay before the call, multiplied by the weight of other evidence, such as a
//! recent tap. The delay is counted from the allocation or, if the visitor tapped the number, from
//! the last tap. An allocation's probability is proportional to its score. Source:
//! docs/spec/calls.md, "Confidence".

use ringwell_core::Millis;
use serde::{Deserialize, Serialize};

/// The delay between seeing a number and dialing it, as a mixture of exponential distributions.
/// Each entry is a distribution's share and its mean in seconds. Most callers dial immediately,
/// some dial after a while, and a few keep the number for hours.
const DELAYS: [(f64, f64); 3] = [(0.80, 180.0), (0.15, 1_800.0), (0.05, 21_600.0)];

/// The maximum number of allocations to examine, newest first.
pub const CANDIDATES_MAX: usize = 4;

/// The number of allocations to look up. It exceeds [`CANDIDATES_MAX`] by one, to show whether
/// there are earlier allocations.
pub const LOOKED_UP_MAX: usize = CANDIDATES_MAX + 1;

/// The confidence below which an attribution counts as uncertain.
pub const ABSTAIN_BELOW: f64 = 0.5;

/// The period before a call in which a visitor's tap counts as strong evidence that this visitor is
/// the caller.
const TAP_COUNTS: Millis = Millis(120_000);
/// The weight of a tap within the period [`TAP_COUNTS`] before a call.
const TAP_WEIGHT: f64 = 50.0;

/// An allocation whose visitor may be the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The time at which the number was handed out.
    pub allocated_at: Millis,
    /// The time of the visitor's last tap on the number, if any.
    pub tapped_at: Option<Millis>,
}

/// The confidence in a call's attribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confidence {
    /// The probability of the newest allocation, from 0 to 1, rounded to three decimals.
    pub value: f64,
    /// An explanation for people.
    pub reason: String,
}

/// The probability density of a delay before dialing, in 1/s.
#[must_use]
pub fn density(delay_s: f64) -> f64 {
    DELAYS.iter().map(|(share, mean)| share / mean * (-delay_s / mean).exp()).sum()
}

/// The probabilities of the first [`CANDIDATES_MAX`] allocations in `looked_up`, in the same order,
/// for a call at `at`. If `looked_up` contains more allocations, the sum is less than 1, because an
/// earlier visitor may have called. The sum is also less than 1 if `unknown` is given: the time of
/// an allocation that may be missing from the history.
#[must_use]
pub fn probabilities(at: Millis, looked_up: &[Candidate], unknown: Option<Millis>) -> Vec<f64> {
    let candidates = &looked_up[..looked_up.len().min(CANDIDATES_MAX)];
    let have_earlier = looked_up.len() > candidates.len();
    let score = |it: &Candidate| {
        let weight = if it.has_just_tapped(at) { TAP_WEIGHT } else { 1.0 };
        weight * density(delay_s(at, it.tapped_at.unwrap_or(it.allocated_at)))
    };
    let scores: Vec<f64> = candidates.iter().map(score).collect();
    let before = if have_earlier { before(at, candidates) } else { 0.0 };
    let missing = unknown.map_or(0.0, |since| density(delay_s(at, since)));
    let sum = scores.iter().sum::<f64>() + before + missing;
    scores.iter().map(|score| if sum > 0.0 { score / sum } else { 0.0 }).collect()
}

/// The total score of all allocations before `candidates`. Assumes that they were made at the same
/// rate as the candidates. Without this score, the confidence would be too high for numbers that
/// are handed out often.
fn before(at: Millis, candidates: &[Candidate]) -> f64 {
    let (Some(newest), Some(oldest)) = (candidates.first(), candidates.last()) else { return 0.0 };
    if candidates.len() < 2 {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "four")]
    let gap = delay_s(newest.allocated_at, oldest.allocated_at) / (candidates.len() - 1) as f64;
    let delay = delay_s(at, oldest.allocated_at);
    let of = |(share, mean): &(f64, f64)| {
        let fall = (-gap / mean).exp();
        // If all candidates have the same allocation time, the rate is unknown.
        if fall < 1.0 { share / mean * (-delay / mean).exp() * fall / (1.0 - fall) } else { 0.0 }
    };
    DELAYS.iter().map(of).sum()
}

/// The confidence in the newest allocation, which is the first in `looked_up`. `late` must be true
/// if this allocation's lockout was over at the time of the call. For `unknown`, see
/// [`probabilities`]. `None` if `looked_up` is empty.
#[must_use]
pub fn confidence(
    at: Millis,
    looked_up: &[Candidate],
    late: bool,
    unknown: Option<Millis>,
) -> Option<Confidence> {
    let first = looked_up.first()?;
    let value = probabilities(at, looked_up, unknown).first().copied().unwrap_or_default();
    let value = (value * 1000.0).round() / 1000.0;
    let delay = delay_s(at, first.allocated_at);
    let tapped = match first.tapped_at {
        None => String::new(),
        Some(tap) => format!(", {} after the visitor tapped it", span(delay_s(at, tap))),
    };
    let shown = format!("called {} after the number was shown{tapped}", span(delay));
    let others = match looked_up.len() - 1 {
        0 if unknown.is_some() => "no earlier visitor is known".to_owned(),
        0 => "no other visitor had it before".to_owned(),
        1 => "1 earlier visitor who had the number may be the caller".to_owned(),
        CANDIDATES_MAX => {
            format!(
                "one of {CANDIDATES_MAX} or more earlier visitors who had the number may be the \
                 caller"
            )
        }
        more => format!("one of {more} earlier visitors who had the number may be the caller"),
    };
    let over = if late {
        "; the lockout had ended, but no other visitor had received the number since then"
    } else {
        ""
    };
    let gap = match unknown {
        None => "",
        Some(_) => {
            "; earlier visitors may be missing, because part of the number's history is lost"
        }
    };
    let reason = format!("{shown}; {others}{gap}{over}");
    Some(Confidence { value, reason })
}

impl Candidate {
    /// Whether the visitor tapped the number shortly before a call at `at`.
    fn has_just_tapped(&self, at: Millis) -> bool {
        self.tapped_at.is_some_and(|tap| at.0.saturating_sub(tap.0) <= TAP_COUNTS.0)
    }
}

fn delay_s(at: Millis, allocated_at: Millis) -> f64 {
    // An `f64` can hold centuries of milliseconds without rounding.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let ms = at.0.saturating_sub(allocated_at.0) as f64;
    ms / 1000.0
}

fn span(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7_200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3_600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(ages_s: &[u64], at: Millis) -> Vec<Candidate> {
        let of = |age: &u64| Candidate { allocated_at: Millis(at.0 - age * 1000), tapped_at: None };
        ages_s.iter().map(of).collect()
    }

    #[test]
    fn the_density_integrates_to_one() {
        let sum: f64 = (0..2_000_000).map(|tenth| density(f64::from(tenth) / 10.0) / 10.0).sum();
        assert!((sum - 1.0).abs() < 0.001, "{sum}");
    }

    #[test]
    fn the_newest_visitor_is_likelier_the_sooner_the_call() {
        let at = Millis(100_000_000);
        let p = probabilities(at, &candidates(&[60, 3_600], at), None);
        // f(60) = .8/180 e^(-1/3) + .15/1800 e^(-1/30) + .05/21600 e^(-1/360) = 0.0032674
        // f(3600) = .8/180 e^-20 + .15/1800 e^-2 + .05/21600 e^(-1/6) = 0.0000132375
        assert!((p[0] - 0.003_267_4 / (0.003_267_4 + 0.000_013_237)).abs() < 1e-4, "{p:?}");
        let later = probabilities(at, &candidates(&[1_800, 3_600], at), None);
        assert!(later[0] < p[0] && later[0] > 0.5, "{later:?}");
        let one = confidence(at, &candidates(&[30], at), false, None).unwrap();
        assert_eq!(
            one.reason,
            "called 30 s after the number was shown; no other visitor had it before"
        );
        assert!((one.value - 1.0).abs() < 1e-9);
        assert_eq!(confidence(at, &[], false, None), None);
    }

    /// Tests a number that is handed out every twenty minutes. For a call to it, four visitors are
    /// candidates, and many others were shown the number earlier.
    #[test]
    fn visitors_before_the_oldest_candidate_count_too() {
        let at = Millis(100_000_000);
        let ages = |count: u64| (0..count).map(|it| 600 + it * 1_200).collect::<Vec<_>>();
        let four = probabilities(at, &candidates(&ages(5), at), None);
        assert_eq!(four.len(), CANDIDATES_MAX);
        // The exact sum of the scores of all allocations, for comparison with the approximation.
        let all: f64 = (0..200_u32).map(|it| density(600.0 + f64::from(it) * 1_200.0)).sum();
        assert!((four[0] - density(600.0) / all).abs() < 1e-4, "{four:?}");
        assert!(four.iter().sum::<f64>() < 0.99);
        for only in [3, 4] {
            let all = probabilities(at, &candidates(&ages(only), at), None);
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{all:?}");
        }
        // All allocations have the same time.
        assert!(
            probabilities(at, &candidates(&[60; 5], at), None)
                .iter()
                .all(|it| (it - 0.25).abs() < 1e-9)
        );
        let reason =
            |count| confidence(at, &candidates(&ages(count), at), false, None).unwrap().reason;
        let three = "; one of 3 earlier visitors who had the number may be the caller";
        assert!(reason(4).ends_with(three), "{}", reason(4));
        assert!(reason(5).contains("; one of 4 or more earlier visitors"), "{}", reason(5));
    }

    /// After a restore, the allocations since the backup are unknown, which lowers the confidence.
    #[test]
    fn a_visitor_whose_allocation_is_lost_may_have_called() {
        let at = Millis(100_000_000);
        let unknown = Some(Millis(at.0 - 60_000));
        let alone = confidence(at, &candidates(&[30], at), false, unknown).unwrap();
        let share = density(30.0) / (density(30.0) + density(60.0));
        assert!((alone.value - share).abs() < 1e-3, "{alone:?}");
        assert_eq!(
            alone.reason,
            "called 30 s after the number was shown; no earlier visitor is known; earlier visitors \
             may be missing, because part of the number's history is lost"
        );
        let two = confidence(at, &candidates(&[30, 90], at), false, unknown).unwrap();
        assert!(two.value < alone.value, "{two:?}");
        assert!(two.reason.contains("; 1 earlier visitor who had the number"), "{two:?}");
        assert!(two.reason.contains("; earlier visitors may be missing, because"), "{two:?}");
    }

    #[test]
    fn a_tap_before_the_call_makes_its_visitor_more_likely() {
        let at = Millis(100_000_000);
        let mut all = candidates(&[1_800, 3_600], at);
        let before = confidence(at, &all, false, None).unwrap();
        all[0].tapped_at = Some(Millis(at.0 - 10_000));
        let after = confidence(at, &all, false, None).unwrap();
        assert!(after.value > 0.999 && before.value < 0.95, "{before:?} {after:?}");
        let said = "called 30 min after the number was shown, 10 s after the visitor tapped it; ";
        assert!(after.reason.starts_with(said), "{}", after.reason);
        // A tap an hour before the call has no extra weight. An old tap proves only that the
        // visitor looked at the number at that time.
        all[0].tapped_at = None;
        all[1].tapped_at = Some(Millis(at.0 - 3_500_000));
        let old = confidence(at, &all, false, None).unwrap();
        assert!((old.value - before.value).abs() < 0.05, "{old:?}");
        // The tap may be later than the call, because the provider's clock may be behind the
        // server's.
        all[1].tapped_at = Some(Millis(at.0 + 3_000));
        assert!(confidence(at, &all, false, None).unwrap().value < 0.05);
    }

    #[test]
    fn probabilities_sum_to_one_also_for_an_allocation_after_the_call() {
        let at = Millis(1_000);
        let all = [
            Candidate { allocated_at: Millis(5_000), tapped_at: None },
            Candidate { allocated_at: Millis(0), tapped_at: None },
        ];
        let sum: f64 = probabilities(at, &all, None).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
