//! Buys numbers for a network. Decides which numbers are bought, how many, and when they are paid
//! for.
//!
//! Owns the order of the steps of a purchase. A change first only records its purchases. They are
//! ordered from the provider just before the change commits, so that a trial run buys nothing. If
//! the database fails after the numbers were ordered, the next purchase finds them in the
//! provider's list of sales and adds them to the inventory. Source: docs/spec/directory.md, "Buying
//! numbers".

use std::ops::RangeInclusive;
use std::sync::Arc;

use ringwell_config::Buying;
use ringwell_core::{NumberRange, PromoNumber};
use serde_json::json;
use sqlx::Row;

use crate::change::{Change, object};
use crate::numbers::Span;
use crate::orders::apart;
use crate::pools::Pool;
use crate::provider::{Offer, Provider, Purchase};
use crate::row::from_db;
use crate::store::Store;
use crate::{Refusal, StoreError};

/// The maximum count of numbers that are bought at once, and of offers that are read at once.
const OFFERS_MAX: usize = 10_000;

impl Change {
    /// Buys at most `count` of `numbers` for `network`: the cheapest, within the network's ceiling
    /// and the maximum price. The numbers are added to the network's inventory. They are paid for
    /// when the change is committed.
    ///
    /// # Errors
    /// [`Refusal::NoProvider`] or [`StoreError::Provider`].
    pub async fn buy(
        &mut self,
        network: &str,
        numbers: RangeInclusive<PromoNumber>,
        count: u64,
    ) -> Result<Vec<Offer>, StoreError> {
        let Some(provider) = self.orders.provider.clone() else {
            return Err(Refusal::NoProvider.into());
        };
        self.take_what_was_sold(&provider).await?;
        let room = self.room_to_buy(network).await?.unwrap_or(u64::MAX);
        let count = usize::try_from(count.min(room)).unwrap_or(usize::MAX).min(OFFERS_MAX);
        let offers = apart(provider, move |it| it.offers(numbers, OFFERS_MAX)).await?;
        let dearest = self.inventory.price_cents_max.unwrap_or(u64::MAX);
        let (mut bought, mut ranges) = (Vec::new(), Vec::new());
        for offer in offers.into_iter().filter(|offer| offer.price_cents <= dearest) {
            if bought.len() == count {
                break;
            }
            let range: Vec<_> = NumberRange::new(offer.number, 1).into_iter().collect();
            // Numbers that are already in the directory are not bought.
            if self.unknown(&range).await?.is_empty() {
                continue;
            }
            ranges.extend(range);
            let purchase = Purchase { offer, network: network.to_owned(), at: self.now };
            self.orders.purchases.push(purchase);
            bought.push(offer);
        }
        if !bought.is_empty() {
            self.add_to_inventory(&ranges, Some(network)).await?;
            let after = audit_entry(&bought);
            self.log("buy numbers", &format!("network {network}"), None, Some(after)).await?;
        }
        Ok(bought)
    }

    /// Buys numbers that `pool` lacks, if automatic purchases are on. Returns whether any number
    /// was bought.
    pub(crate) async fn buy_short(
        &mut self,
        pool: &Pool,
        span: Span,
        count: u32,
    ) -> Result<bool, StoreError> {
        let network = pool.settings.scope.network.clone();
        let is_trial = match self.inventory.buy {
            Buying::Off => return Ok(false),
            Buying::DryRun => true,
            Buying::On => false,
        };
        // Without a ceiling, the cost would not be limited.
        if self.room_to_buy(&network).await?.is_none_or(|room| room == 0) {
            return Ok(false);
        }
        if is_trial {
            self.save_point().await?;
        }
        let (ordered, bought) =
            (self.orders.purchases.len(), self.buy(&network, span.0..=span.1, count.into()).await);
        if is_trial {
            self.back_to_save_point().await?;
            self.orders.purchases.truncate(ordered);
            self.orders.has_looked = false;
        }
        let (action, after) = match bought {
            Ok(bought) if bought.is_empty() => return Ok(false),
            Ok(_) if !is_trial => return Ok(true),
            Ok(bought) => ("would buy numbers", audit_entry(&bought)),
            Err(StoreError::Provider(error)) => ("buying failed", json!({ "error": error.0 })),
            Err(error) => return Err(error),
        };
        self.log(action, &object(pool.id), None, Some(after)).await?;
        Ok(false)
    }

    /// Adds to the inventory the numbers that were bought for a change that was not committed.
    async fn take_what_was_sold(&mut self, provider: &Arc<dyn Provider>) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.orders.has_looked, true) {
            return Ok(());
        }
        for purchase in apart(Arc::clone(provider), |it| it.bought()).await? {
            let range: Vec<_> = NumberRange::new(purchase.offer.number, 1).into_iter().collect();
            self.add_to_inventory(&range, Some(&purchase.network)).await?;
        }
        Ok(())
    }

    /// Like [`Change::room`], but counts the free numbers of the network's own inventory as if they
    /// were in its pools.
    async fn room_to_buy(&mut self, network: &str) -> Result<Option<u64>, StoreError> {
        let Some(room) = self.room(network).await? else { return Ok(None) };
        let query = sqlx::query(
            "SELECT CAST(COALESCE(SUM(last_number - first_number + 1), 0) AS BIGINT) \
             FROM numbers WHERE state = 'free' AND network = $1",
        );
        let row = query.bind(network.to_owned()).fetch_one(&mut *self.tx).await?;
        Ok(Some(room.saturating_sub(from_db(row.try_get(0)?, "a count of numbers")?)))
    }
}

impl Store {
    /// Returns at most `limit` offers of numbers in the range `numbers`, cheapest first.
    ///
    /// # Errors
    /// [`Refusal::NoProvider`] or [`StoreError::Provider`].
    pub async fn offers(
        &self,
        numbers: RangeInclusive<PromoNumber>,
        limit: usize,
    ) -> Result<Vec<Offer>, StoreError> {
        let provider = self.provider.clone().ok_or(Refusal::NoProvider)?;
        apart(provider, move |it| it.offers(numbers, limit)).await
    }

    /// Returns all bought numbers, in the order of purchase.
    ///
    /// # Errors
    /// [`Refusal::NoProvider`] or [`StoreError::Provider`].
    pub async fn purchases(&self) -> Result<Vec<Purchase>, StoreError> {
        let provider = self.provider.clone().ok_or(Refusal::NoProvider)?;
        apart(provider, |it| it.bought()).await
    }
}

/// Returns the audit log entry for the purchase of `bought`.
fn audit_entry(bought: &[Offer]) -> serde_json::Value {
    let numbers: Vec<_> = bought.iter().map(|offer| offer.number.to_string()).collect();
    let price: u64 = bought.iter().map(|offer| offer.price_cents).sum();
    json!({ "numbers": numbers, "price_cents": price })
}
