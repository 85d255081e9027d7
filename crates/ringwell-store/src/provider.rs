//! Sellers of numbers: a small interface, and an implementation with two files.
//!
//! Owns offers and purchases. `purchase.rs` owns the limits and the buyers. Invariant: a purchase
//! is recorded before a pool gets its numbers. Source: docs/spec/directory.md, "Buying numbers".

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
    /// Its monthly price, in hundredths of the provider's currency.
    pub price_cents: u64,
}

/// A number that was bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The number, and its price.
    pub offer: Offer,
    /// The network that it was bought for.
    pub network: String,
    /// The time, in milliseconds since 1970.
    pub at: Millis,
}

/// The reason why the provider did not carry out a request, for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("number provider: {0}")]
pub struct ProviderError(pub String);

/// A seller of numbers. Its methods may block for a few seconds; they run on threads other than
/// those that hand out numbers, while other changes of the directory wait.
pub trait Provider: fmt::Debug + Send + Sync {
    /// At most `limit` numbers of `numbers` that can be bought, the cheapest first.
    ///
    /// # Errors
    /// If the provider cannot be reached.
    fn offers(
        &self,
        numbers: RangeInclusive<PromoNumber>,
        limit: usize,
    ) -> Result<Vec<Offer>, ProviderError>;

    /// Buys all of `purchases`, or none. A number that was bought before is not bought again.
    ///
    /// # Errors
    /// If one of them is no longer available, or the provider cannot be reached.
    fn buy(&self, purchases: &[Purchase]) -> Result<(), ProviderError>;

    /// The bought numbers, in order of purchase.
    ///
    /// # Errors
    /// If the provider cannot be reached.
    fn bought(&self) -> Result<Vec<Purchase>, ProviderError>;
}
