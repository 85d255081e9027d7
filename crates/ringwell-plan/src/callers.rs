//! The delay of visitors before they call, and its effect when numbers are reused.
//!
//! Owns the distribution of the delay: a mixture of exponentials; a few of them fit observed calls.
//! Knows nothing of pools. Invariant: its shares add up to 1.

use std::time::Duration;

/// The tolerance for the sum of shares, because of rounding.
const SHARE_SLACK: f64 = 0.001;

/// The delay between a visitor's seeing a number and calling it.
#[derive(Clone, Debug, PartialEq)]
pub struct Callers {
    /// Each group's share of all callers, and its mean delay in seconds.
    parts: Vec<(f64, f64)>,
}

/// The reason why a distribution is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CallersError {
    /// A share that is not above 0.
    #[error("a share of callers must be above 0")]
    Share,
    /// A mean delay of 0.
    #[error("the mean delay of callers must be longer than 0")]
    Delay,
    /// The shares do not add up to 1.
    #[error("the shares of callers add up to {0:.3} instead of 1")]
    Sum(f64),
}

impl Callers {
    /// Groups of callers: the share of each, and the mean delay of its callers.
    ///
    /// # Errors
    /// [`CallersError`] names the first rule that `parts` break.
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

    /// The assumption until calls have been measured: 80 % call after 3 minutes on average, 15 %
    /// after 30 minutes, 5 % after 6 hours. One caller in ten then takes longer than half an hour.
    #[must_use]
    pub fn assumed() -> Self {
        Self { parts: vec![(0.8, 180.0), (0.15, 1_800.0), (0.05, 21_600.0)] }
    }

    /// The share of each group of callers, and their mean delay in seconds.
    #[must_use]
    pub fn parts(&self) -> &[(f64, f64)] {
        &self.parts
    }

    /// The share of callers who call later than `delay`.
    #[must_use]
    pub fn later_than(&self, delay: Duration) -> f64 {
        self.sum(|mean| (-delay.as_secs_f64() / mean).exp())
    }

    /// The share of callers who call a number after it has gone to another visitor, if the number
    /// that has been free longest is handed out next: a number is reused after all `numbers` have
    /// gone out at `rate` allocations a second. The lockout does not matter if it is shorter.
    pub(crate) fn misled_by_oldest(&self, numbers: f64, rate: f64) -> f64 {
        self.sum(|mean| (-numbers * (1.0 / (rate * mean)).ln_1p()).exp())
    }

    /// The same share if any free number may be handed out next: a number is safe during its
    /// `lockout` in seconds; then it is one of `free` numbers, of which `rate` go out each second.
    pub(crate) fn misled_by_random(&self, lockout: f64, free: f64, rate: f64) -> f64 {
        self.sum(|mean| (-lockout / mean).exp() / (1.0 + free / (rate * mean)))
    }

    fn sum(&self, of_mean: impl Fn(f64) -> f64) -> f64 {
        self.parts.iter().map(|(share, mean)| share * of_mean(*mean)).sum()
    }
}

#[cfg(test)]
mod tests;
