//! Tests purchases of numbers.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use std::fs;
use std::path::PathBuf;

use rig::Rig;
use ringwell_config::{Buying, Inventory};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPoolKey;
use ringwell_store::{
    FileProvider, Offer, PoolSettings, Provider, Purchase, Refusal, Scope, Store, StoreError,
};
use serde_json::json;
use tempfile::TempDir;

const NOW: Millis = Millis(1_700_000_000_000);
const POOL: PoolId = PoolId(1);

fn number(text: &str) -> PromoNumber {
    PromoNumber::parse(text).unwrap()
}

fn all() -> std::ops::RangeInclusive<PromoNumber> {
    number("2000000000")..=number("9999999999")
}

/// An empty directory and a provider. The provider sells ten New York numbers at a price of 100,
/// and ten toll-free numbers at prices from 150 to 159.
struct Shop {
    folder: TempDir,
    store: Store,
}

impl Shop {
    async fn open(rig: &Rig, buy: Buying) -> Self {
        let folder = TempDir::new().unwrap();
        let new_york = (0..10).map(|place| format!("212555010{place},100\n"));
        let toll_free = (0..10).map(|place| format!("888555010{place},15{place}\n"));
        let offers: String = new_york.chain(toll_free).collect();
        fs::write(folder.path().join("offers.csv"), format!("number,price_cents\n{offers}"))
            .unwrap();
        let inventory = Inventory {
            offers: Some(folder.path().join("offers.csv")),
            purchases: Some(folder.path().join("purchases.csv")),
            price_cents_max: Some(155),
            buy,
            ..Inventory::default()
        };
        let store = Store::open(&rig.location).await.unwrap().with_inventory(inventory);
        Self { folder, store }
    }

    fn purchases(&self) -> PathBuf {
        self.folder.path().join("purchases.csv")
    }

    async fn buy(&self, count: u64) -> Vec<Offer> {
        let mut change = self.store.change("ann", NOW).await.unwrap();
        let bought = change.buy("7", all(), count).await.unwrap();
        change.commit().await.unwrap();
        bought
    }

    async fn set_ceiling(&self, most: u64) {
        let mut change = self.store.change("ann", NOW).await.unwrap();
        change.set_ceiling("7", Some(most)).await.unwrap();
        change.commit().await.unwrap();
    }

    /// Creates a pool of `size` New York numbers, and fills it.
    async fn make_pool(&self, size: u32) -> u64 {
        let kept = json!({
            "tn_prefix_whitelist": ["212"],
            "local_number_preferences": { "allocation_fallback_strategy": "Wait" },
        });
        let settings = PoolSettings {
            scope: Scope { network: "7".into(), advertiser: "1".into(), campaign: "1".into() },
            id_from_network: "a".into(),
            name: "A".into(),
            lifetime: Millis(1000),
            max_pool_size: size,
            preferred: false,
            fill_immediately: true,
            allow_overflow: false,
            destination: None,
            tracking_url: String::new(),
            destination_url: String::new(),
            kept: kept.as_object().unwrap().clone(),
        };
        let mut change = self.store.change("ann", NOW).await.unwrap();
        let key = RingPoolKey::parse("KEY45678").unwrap();
        change.create_pool(settings, Some(POOL), key).await.unwrap();
        let filled = change.fill(POOL, size.into()).await.unwrap();
        change.commit().await.unwrap();
        filled
    }

    /// Returns the count of numbers in the inventory that only network 7 may use.
    async fn stock(&self) -> u64 {
        let numbers = self.store.numbers(None, 100, None).await.unwrap();
        let own = numbers.iter().filter(|run| run.network.as_deref() == Some("7"));
        own.map(|run| u64::from(run.range.count())).sum()
    }
}

async fn the_cheapest_numbers_are_bought_and_written_down(rig: Rig) {
    let shop = Shop::open(&rig, Buying::Off).await;
    let bought = shop.buy(11).await;
    assert_eq!(bought.len(), 11);
    assert_eq!(bought[10], Offer { number: number("8885550100"), price_cents: 150 });
    assert_eq!((shop.stock().await, shop.store.purchases().await.unwrap().len()), (11, 11));
    // No number is bought twice or for more than the price limit.
    assert_eq!(shop.buy(99).await.len(), 5);
    assert_eq!(shop.buy(99).await, []);
    let line = &shop.store.audit_log(None, 1).await.unwrap()[0];
    assert_eq!((line.action.as_str(), line.object.as_str()), ("buy numbers", "network 7"));
    assert_eq!(line.after.as_ref().unwrap()["price_cents"], 151 + 152 + 153 + 154 + 155);
}

async fn a_trial_run_buys_nothing(rig: Rig) {
    let shop = Shop::open(&rig, Buying::Off).await;
    let mut change = shop.store.change("ann", NOW).await.unwrap();
    assert_eq!(change.buy("7", all(), 3).await.unwrap().len(), 3);
    drop(change);
    assert!(!shop.purchases().exists());
    assert_eq!(shop.stock().await, 0);
}

async fn a_network_buys_no_more_than_its_ceiling_with_what_it_has(rig: Rig) {
    let shop = Shop::open(&rig, Buying::Off).await;
    shop.set_ceiling(5).await;
    assert_eq!(shop.buy(3).await.len(), 3);
    assert_eq!(shop.buy(3).await.len(), 2);
    assert_eq!(shop.buy(3).await.len(), 0);
}

async fn what_was_sold_in_a_change_that_was_lost_arrives_with_the_next(rig: Rig) {
    let shop = Shop::open(&rig, Buying::Off).await;
    let provider = FileProvider::new(shop.folder.path().join("offers.csv"), shop.purchases());
    let offer = Offer { number: number("8885550109"), price_cents: 159 };
    provider.buy(&[Purchase { offer, network: "7".into(), at: NOW }]).unwrap();
    assert_eq!(shop.stock().await, 0);
    shop.buy(1).await;
    assert_eq!(shop.stock().await, 2);
}

async fn a_change_that_cannot_be_paid_for_does_not_last(rig: Rig) {
    let shop = Shop::open(&rig, Buying::Off).await;
    let mut change = shop.store.change("ann", NOW).await.unwrap();
    change.buy("7", all(), 3).await.unwrap();
    fs::write(shop.folder.path().join("offers.csv"), "number,price_cents\n").unwrap();
    assert!(matches!(change.commit().await, Err(StoreError::Provider(_))));
    assert_eq!((shop.store.version().await.unwrap(), shop.stock().await), (0, 0));
    let store = Store::open(&rig.location).await.unwrap();
    let mut change = store.change("ann", NOW).await.unwrap();
    let refused = change.buy("7", all(), 3).await;
    assert!(matches!(refused, Err(StoreError::Refused(Refusal::NoProvider))), "{refused:?}");
}

async fn a_pool_that_is_short_buys_up_to_its_network_s_ceiling(rig: Rig) {
    let shop = Shop::open(&rig, Buying::On).await;
    // Without a ceiling, nothing is bought, because the cost would be unlimited.
    assert_eq!(shop.make_pool(8).await, 0);
    shop.set_ceiling(6).await;
    let (_, resized) = shop.store.fill_short(NOW, true).await.unwrap();
    assert_eq!((resized[0].before, resized[0].after), (0, 6));
    assert!(!shop.purchases().exists(), "that was a trial run");
    shop.store.fill_short(NOW, false).await.unwrap();
    let runs = shop.store.numbers_of(POOL).await.unwrap();
    assert_eq!(runs[0].range, NumberRange::new(number("2125550100"), 6).unwrap());
    assert_eq!(shop.store.purchases().await.unwrap().len(), 6);
    let log = shop.store.audit_log(None, 9).await.unwrap();
    let buying = log.iter().find(|line| line.action == "buy numbers").unwrap();
    assert_eq!(buying.who, "ringwell: filling");
}

async fn buying_can_be_tried_without_being_done(rig: Rig) {
    let shop = Shop::open(&rig, Buying::DryRun).await;
    shop.set_ceiling(6).await;
    assert_eq!(shop.make_pool(8).await, 0);
    assert!(!shop.purchases().exists());
    let log = shop.store.audit_log(None, 9).await.unwrap();
    let trial = log.iter().find(|line| line.action == "would buy numbers").unwrap();
    assert_eq!(trial.after.as_ref().unwrap()["numbers"].as_array().unwrap().len(), 6);
    assert_eq!(shop.stock().await, 0);
}

async fn a_provider_that_fails_costs_a_pool_nothing_else(rig: Rig) {
    let shop = Shop::open(&rig, Buying::On).await;
    shop.set_ceiling(6).await;
    let mut change = shop.store.change("ann", NOW).await.unwrap();
    let stock = NumberRange::new(number("2125550200"), 2).unwrap();
    change.add_to_inventory(&[stock], None).await.unwrap();
    change.commit().await.unwrap();
    fs::write(shop.folder.path().join("offers.csv"), "number,price_cents\nx,1\n").unwrap();
    assert_eq!(shop.make_pool(8).await, 2);
    let log = shop.store.audit_log(None, 9).await.unwrap();
    assert!(log.iter().any(|line| line.action == "buying failed"), "{log:?}");
}

on_both_databases! {
    the_cheapest_numbers_are_bought_and_written_down
    a_trial_run_buys_nothing
    a_network_buys_no_more_than_its_ceiling_with_what_it_has
    what_was_sold_in_a_change_that_was_lost_arrives_with_the_next
    a_change_that_cannot_be_paid_for_does_not_last
    a_pool_that_is_short_buys_up_to_its_network_s_ceiling
    buying_can_be_tried_without_being_done
    a_provider_that_fails_costs_a_pool_nothing_else
}
