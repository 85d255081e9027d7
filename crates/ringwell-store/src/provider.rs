//! Sellers of numbers: a small interface, and an implementation that uses two files.
//!
//! Owns offers and purchases. `purchase.rs` owns the limits, and decides for whom numbers are
//! bought. Invariant: a purchase is recorded before a pool gets the purchased numbers. Source:
//! docs/spec/directory.md, "Buying numbers".

mod file;

use std::fmt;
use std::ops::RangeInclusive;

use ringwell_core::{Millis, PromoNumber};

pub use file::FileProvider;

/// A number that can be bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The number.
    pub number: PromoNumber,
    /// The monthly price of the number, in hundredths of the provider's currency.
    pub price_cents: u64,
}

/// A number that was bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The number and its price.
    pub offer: Offer,
    /// The network for which the number was bought.
    pub network: String,
    /// The time of the purchase, in milliseconds since 1970.
    pub at: Millis,
}

/// The reason why the provider did not carry out a request, written for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("number provider: {0}")]
pub struct ProviderError(pub String);

/// A seller of numbers. The methods may block for a few seconds. They do not run on threads that
/// hand out numbers, but other changes to the directory wait for them.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Returns at most `limit` offers of numbers in the range `numbers`, cheapest first.
    ///
    /// # Errors
    /// If the provider cannot be reached.
    fn offers(
        &self,
        numbers: RangeInclusive<PromoNumber>,
        limit: usize,
    ) -> Result<Vec<Offer>, ProviderError>;

    /// Buys all of `purchases` or none of them. A number that was already bought is not bought
    /// again.
    ///
    /// # Errors
    /// If one of the numbers is no longer available, or if the provider cannot be reached.
    fn buy(&self, purchases: &[Purchase]) -> Result<(), ProviderError>;

    /// Returns all bought numbers, in the order of purchase.
    ///
    /// # Errors
    /// If the provider cannot be reached.
    fn bought(&self) -> Result<Vec<Purchase>, ProviderError>;
}
