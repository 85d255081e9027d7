//! A limit on the rate of requests.
//!
//! Clients do not have limits of their own, because management has few clients. Each guess at a
//! management token costs a database query, so the limit keeps a flood of guesses from reaching the
//! store. The caller passes the current time.

use std::sync::{Mutex, PoisonError};

use ringwell_core::Millis;

/// A token bucket: admits a burst of `rate` requests, and after that `rate` requests a second.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Requests a second.
    rate: u32,
    /// The remaining capacity in thousandths of a request, and the time at which it was computed.
    state: Mutex<(u64, Millis)>,
}

impl Limit {
    /// Returns a full bucket, which admits one second's requests at once.
    pub(crate) const fn new(rate: u32) -> Self {
        Self { rate, state: Mutex::new((rate as u64 * 1000, Millis::ZERO)) }
    }

    /// Takes one request from the bucket, or returns the seconds until one is available.
    pub(crate) fn take(&self, now: Millis) -> Result<(), u64> {
        let full = u64::from(self.rate) * 1000;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, then) = *state;
        let grown = now.since(then).0.saturating_mul(u64::from(self.rate));
        let left = left.saturating_add(grown).min(full);
        *state = (left.saturating_sub(1000), now.max(then));
        if left >= 1000 {
            return Ok(());
        }
        state.0 = left;
        Err((1000 - left).div_ceil(u64::from(self.rate).max(1)).div_ceil(1000).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_passes_at_once_and_the_rest_at_the_rate() {
        let limit = Limit::new(2);
        let start = Millis(1_000_000);
        assert_eq!([limit.take(start), limit.take(start)], [Ok(()), Ok(())]);
        assert_eq!(limit.take(start), Err(1));
        assert_eq!(limit.take(start + Millis(499)), Err(1));
        assert_eq!(limit.take(start + Millis(500)), Ok(()));
        assert_eq!(limit.take(start + Millis(501)), Err(1));
        // Even after a long pause, the bucket admits at most one second's requests at once.
        let later = start + Millis(3_600_000);
        assert_eq!([limit.take(later), limit.take(later)], [Ok(()), Ok(())]);
        assert!(limit.take(later).is_err());
    }
}
