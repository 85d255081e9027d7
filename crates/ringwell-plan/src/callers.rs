//! The delay between a visit and the visitor's call, and the effect of this delay when numbers are
//! reused.
//!
//! Owns the distribution of the delay, which is a mixture of exponential distributions. A few of
//! them are enough to fit observed calls. Independent of pools. Invariant: the shares of a mixture
//! add up to 1.

use std::time::Duration;

/// The tolerance for rounding errors in the sum of shares.
const SHARE_SLACK: f64 = 0.001;

/// The distribution of the delay between the time when a visitor sees a number and the visitor's
/// call.
#[derive(Clone, Debug, PartialEq)]
pub struct Callers {
    /// For each group of callers, its share of all callers and its mean delay in seconds.
    parts: Vec<(f64, f64)>,
}

/// The reason why a distribution is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CallersError {
    /// A share is not above 0.
    #[error("a share of callers must be above 0")]
    Share,
    /// A mean delay is 0.
    #[error("the mean delay of callers must be longer than 0")]
    Delay,
    /// The shares do not add up to 1.
    #[error("the shares of callers add up to {0:.3} instead of 1")]
    Sum(f64),
}

impl Callers {
    /// Builds the distribution from groups of callers: each group's share and mean delay.
    ///
    /// # Errors
    /// [`CallersError`] names the first rule that `parts` breaks.
    pub fn new(parts: &[(f64, Duration)]) -> Result<Self, CallersError> {
        let sum: f64 = parts.iter().map(|(share, _)| share).sum();
        if !parts.iter().all(|(share, _)| *share > 0.0) {
            return Err(CallersError::Share);
        }
        if parts.iter().any(|(_, mean)| mean.is_zero()) {
            return Err(CallersError::Delay);
        }
        if (sum - 1.0).abs() > SHARE_SLACK {
            return Err(CallersError::Sum(sum));
        }
        let parts = parts.iter().map(|(share, mean)| (share / sum, mean.as_secs_f64()));
        Ok(Self { parts: parts.collect() })
    }

    /// The distribution to assume until calls have been measured: 80 % of callers call after 3
    /// minutes on average, 15 % after 30 minutes, and 5 % after 6 hours. With these values, one
    /// caller in ten calls after more than half an hour.
    #[must_use]
    pub fn assumed() -> Self {
        Self { parts: vec![(0.8, 180.0), (0.15, 1_800.0), (0.05, 21_600.0)] }
    }

    /// For each group of callers, its share and its mean delay in seconds.
    #[must_use]
    pub fn parts(&self) -> &[(f64, f64)] {
        &self.parts
    }

    /// The share of callers whose delay is longer than `delay`.
    #[must_use]
    pub fn later_than(&self, delay: Duration) -> f64 {
        self.sum(|mean| (-delay.as_secs_f64() / mean).exp())
    }

    /// The share of callers whose number already belongs to another visitor when they call. Assumes
    /// that the number that has been free longest is always handed out next. A number is then
    /// reused only after all `numbers` have been handed out, at `rate` allocations a second. A
    /// lockout has no effect if it is shorter than the time needed to hand out all numbers once.
    pub(crate) fn misled_by_oldest(&self, numbers: f64, rate: f64) -> f64 {
        self.sum(|mean| (-numbers * (1.0 / (rate * mean)).ln_1p()).exp())
    }

    /// The same share as [`Self::misled_by_oldest`], but any free number may be handed out next. A
    /// number is not reused for `lockout` seconds. After that, it is one of `free` numbers, of
    /// which `rate` are handed out each second.
    pub(crate) fn misled_by_random(&self, lockout: f64, free: f64, rate: f64) -> f64 {
        self.sum(|mean| (-lockout / mean).exp() / (1.0 + free / (rate * mean)))
    }

    fn sum(&self, of_mean: impl Fn(f64) -> f64) -> f64 {
        self.parts.iter().map(|(share, mean)| share * of_mean(*mean)).sum()
    }
}

#[cfg(test)]
mod tests;
