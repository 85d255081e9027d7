//! The demand for one pool, and the result of meeting it with a given count of numbers.
//!
//! Owns the load, including the effects of bots and of batches. Independent of where the load was
//! measured. Invariant: a demand is finite, and none of its parts is negative.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::callers::Callers;
use crate::erlang::{blocking, numbers_for};

/// The greatest accepted load.
const LOAD_MAX: f64 = 1e7;

/// Additional overflow targets for which sizes are shown.
const TARGETS: [f64; 6] = [0.1, 0.05, 0.02, 0.01, 0.001, 0.0001];

/// The demand for one pool from its visitors, including bots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The mean count of numbers that would be locked out if the pool never ran out.
    load: f64,
    lifetime: Duration,
    /// The count of rows in one batch that request a number from this pool.
    together: f64,
}

/// The pool sizes that are relevant to a [`Demand`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The smallest count of numbers that meets the overflow target.
    pub numbers: u32,
    /// The results for that size and for other sizes, the smallest size first.
    pub forecasts: Vec<Forecast>,
}

/// The reason why a demand is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DemandError {
    /// A load is below 0, above ten million, or not a number.
    #[error("the load of a pool must be from 0 to 10,000,000 numbers, not {0}")]
    Load(f64),
    /// A lifetime of 0.
    #[error("a lifetime must be longer than 0")]
    Lifetime,
    /// The share of bots is below 0, or is 1 or more.
    #[error("the share of bots must be at least 0 and less than 1, not {0}")]
    Bots(f64),
    /// The count of rows in a batch is zero.
    #[error("a batch must request at least one number from a pool")]
    Together,
}

/// The result of a [`Demand`] for a pool with a given count of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The count of the pool's numbers, without the overflow number.
    pub numbers: u32,
    /// Share of allocations that get the overflow number.
    pub overflow: f64,
    /// The mean count of numbers that are locked out.
    pub locked: f64,
    /// The mean time from one allocation of a number to the next; `None` if there is no demand, or
    /// if the time does not fit into a [`Duration`].
    pub reuse: Option<Duration>,
    /// Among callers who got a number of their own, the share whose number belongs to another
    /// visitor by the time they call. Assumes Ringwell's order: the number that has been free
    /// longest is handed out next.
    pub misattributed: f64,
    /// The same share as `misattributed`, but assuming that the next number is drawn at random from
    /// the free numbers.
    pub misattributed_random: f64,
}

impl Forecast {
    /// The share of visitors whose call is not attributed to them, because they got the overflow
    /// number or because their number belongs to another visitor by the time they call.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.overflow + (1.0 - self.overflow) * self.misattributed
    }
}

impl Demand {
    /// The demand for a measured load. The load is the count of allocations, including overflow,
    /// that were requested from the pool in the last `lifetime`. If possible, use the mean over the
    /// busiest hour.
    ///
    /// # Errors
    /// [`DemandError`] names the argument that is out of bounds.
    pub fn of_load(load: f64, lifetime: Duration) -> Result<Self, DemandError> {
        if !(0.0..=LOAD_MAX).contains(&load) {
            return Err(DemandError::Load(load));
        }
        if lifetime.is_zero() {
            return Err(DemandError::Lifetime);
        }
        Ok(Self { load, lifetime, together: 1.0 })
    }

    /// The demand from `per_hour` visitors an hour, each of whom locks out a number for `lifetime`.
    ///
    /// # Errors
    /// As for [`Demand::of_load`].
    pub fn of_visitors(per_hour: f64, lifetime: Duration) -> Result<Self, DemandError> {
        Self::of_load(per_hour / 3_600.0 * lifetime.as_secs_f64(), lifetime)
    }

    /// Adds bots to the visitors. `share` is the bots' share of all allocations. A measured load
    /// already includes its bots.
    ///
    /// # Errors
    /// [`DemandError::Bots`] if no visitor would be left; [`DemandError::Load`] if the load becomes
    /// too large.
    pub fn with_bots(self, share: f64) -> Result<Self, DemandError> {
        if !(0.0..1.0).contains(&share) {
            return Err(DemandError::Bots(share));
        }
        let with = Self::of_load(self.load / (1.0 - share), self.lifetime)?;
        Ok(Self { together: self.together, ..with })
    }

    /// The same load, arriving in batches that each request `rows` numbers from this pool.
    ///
    /// Rows that arrive together increase overflow: the load's variance is `rows` times its mean.
    /// Hayward's approximation treats each batch as a single visitor to a pool that is `rows` times
    /// smaller.
    ///
    /// # Errors
    /// [`DemandError::Together`] if `rows` is zero.
    pub fn in_batches_of(self, rows: u32) -> Result<Self, DemandError> {
        if rows == 0 {
            return Err(DemandError::Together);
        }
        Ok(Self { together: f64::from(rows), ..self })
    }

    /// The mean count of numbers that would be locked out if the pool never ran out.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load
    }

    /// The lockout after an allocation.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Allocations a second, bots and overflow included.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.load / self.lifetime.as_secs_f64()
    }

    /// The smallest count of numbers that keeps overflow at or below the share `target` of
    /// allocations; `None` if that is more than [`crate::NUMBERS_MAX`].
    #[must_use]
    pub fn numbers_for(&self, target: f64) -> Option<u32> {
        numbers_for(self.load, self.together, target)
    }

    /// The share of allocations that overflow if the pool has this count of numbers.
    #[must_use]
    pub fn overflow(&self, numbers: u32) -> f64 {
        blocking(f64::from(numbers) / self.together, self.load / self.together)
    }

    /// The results for the size `asked`, and for the smallest counts of numbers that meet `target`
    /// and some other overflow targets. Call delays are assumed to have the distribution `callers`.
    /// Returns `None` if no pool is large enough for `target`.
    #[must_use]
    pub fn sizes(&self, target: f64, asked: Option<u32>, callers: &Callers) -> Option<Sizes> {
        let numbers = self.numbers_for(target)?;
        let beside = TARGETS.into_iter().filter_map(|target| self.numbers_for(target));
        let sizes = beside.chain(asked).chain([numbers]).collect::<BTreeSet<_>>();
        let forecasts = sizes.into_iter().map(|size| self.forecast(size, callers)).collect();
        Some(Sizes { numbers, forecasts })
    }

    /// The result for this count of numbers, if call delays have the distribution `callers`.
    #[must_use]
    pub fn forecast(&self, numbers: u32, callers: &Callers) -> Forecast {
        let overflow = self.overflow(numbers);
        let count = f64::from(numbers);
        // Because of rounding, the product could exceed the count of numbers.
        let locked = (self.load * (1.0 - overflow)).min(count);
        let lockout = self.lifetime.as_secs_f64();
        let rate = locked / lockout;
        let free = count - locked;
        let reuse = if rate > 0.0 { Duration::try_from_secs_f64(count / rate).ok() } else { None };
        Forecast {
            numbers,
            overflow,
            locked,
            reuse,
            misattributed: if rate > 0.0 { callers.misled_by_oldest(count, rate) } else { 0.0 },
            misattributed_random: if rate > 0.0 {
                callers.misled_by_random(lockout, free, rate)
            } else {
                0.0
            },
        }
    }
}

#[cfg(test)]
mod tests;
