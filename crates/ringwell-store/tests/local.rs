//! Tests which inventory numbers a pool draws: local ones, or those from its country.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use std::sync::Arc;

use rig::Rig;
use ringwell_config::Inventory;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{AreaCode, Place, Places, Point, RingPoolKey, StateCode, ZipCode};
use ringwell_store::{PoolSettings, Resized, Scope, Store};
use serde_json::{Value, json};

const NOW: Millis = Millis(1_700_000_000_000);
const POOL: PoolId = PoolId(1);

fn range(first: &str, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::parse(first).unwrap(), count).unwrap()
}

/// Returns two area codes in southern California, one area code in Nevada, and a zip code near the
/// center of the first area code.
fn places() -> Places {
    let place = |state: &str, north, east| Place {
        point: Point::new(north, east).unwrap(),
        state: StateCode::parse(state).unwrap(),
    };
    let mut places = Places::default();
    for (area, place) in [
        (805, place("CA", 34.42, -119.70)),
        (213, place("CA", 34.05, -118.25)),
        (702, place("NV", 36.17, -115.14)),
    ] {
        places.add_area(AreaCode::new(area).unwrap(), place);
    }
    places.add_zip(ZipCode::parse("93101").unwrap(), place("CA", 34.42, -119.71));
    places
}

/// Opens a directory with `stock` in its inventory.
async fn open(rig: &Rig, stock: &[NumberRange]) -> Store {
    let inventory = Inventory { places: Arc::new(places()), ..Inventory::default() };
    let store = Store::open(&rig.location).await.unwrap().with_inventory(inventory);
    add(&store, stock).await;
    store
}

async fn add(store: &Store, stock: &[NumberRange]) {
    let mut change = store.change("ann", NOW).await.unwrap();
    change.add_to_inventory(stock, None).await.unwrap();
    change.commit().await.unwrap();
}

fn settings(size: u32, kept: Value) -> PoolSettings {
    let Value::Object(kept) = kept else { panic!("members are an object") };
    PoolSettings {
        scope: Scope::of_file(),
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
        kept,
    }
}

/// Creates a pool of `size` numbers with the preferences in `kept`, and fills it with suitable
/// numbers from the inventory.
async fn make(store: &Store, size: u32, kept: Value) {
    let mut change = store.change("ann", NOW).await.unwrap();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    change.create_pool(settings(size, kept), Some(POOL), key).await.unwrap();
    change.fill(POOL, size.into()).await.unwrap();
    change.commit().await.unwrap();
}

async fn has(store: &Store) -> Vec<String> {
    let runs = store.numbers_of(POOL).await.unwrap();
    runs.iter().map(|run| format!("{}+{}", run.range.first(), run.range.count())).collect()
}

/// Returns two toll-free numbers, and two numbers each from New York, Nevada, Los Angeles and Santa
/// Barbara.
fn two_of_each() -> [NumberRange; 5] {
    ["8885550100", "2125550100", "7025550100", "2135550100", "8055550100"].map(|it| range(it, 2))
}

async fn a_pool_draws_the_nearest_numbers_within_its_radius_and_state(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    make(&store, 3, json!({ "local_center": { "zipcode": "93101" } })).await;
    assert_eq!(has(&store).await, ["2135550100+1", "8055550100+2"]);
    let line = &store.audit_log(None, 9).await.unwrap()[1];
    assert_eq!((line.action.as_str(), line.object.as_str()), ("draw local numbers", "ring_pool 1"));
    assert_eq!(line.after, Some(json!({ "local": 3, "toll_free": 0, "missing": 0 })));
}

async fn numbers_across_the_border_are_local_only_if_the_pool_allows_it(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    let wants = json!({
        "local_center": { "tn_prefix": 213 },
        "local_number_preferences": {
            "search_radius_miles": 240, "restrict_search_to_state": false,
            "allocation_fallback_strategy": "Wait",
        },
    });
    make(&store, 9, wants).await;
    assert_eq!(has(&store).await, ["2135550100+2", "7025550100+2", "8055550100+2"]);
}

async fn toll_free_numbers_come_when_local_ones_are_gone_and_go_first(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    let center = json!({ "latitude": "34.4", "longitude": -119.7 });
    make(&store, 6, json!({ "local_center": center })).await;
    assert_eq!(has(&store).await, ["2135550100+2", "8055550100+2", "8885550100+2"]);
    let mut change = store.change("ann", NOW).await.unwrap();
    change.shrink(POOL, 3).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(has(&store).await, ["2135550100+1", "8055550100+2"]);
}

async fn a_list_of_area_codes_bounds_what_a_pool_draws(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    let wait = json!({ "allocation_fallback_strategy": "Wait" });
    let wants = json!({
        "tn_prefix_whitelist": ["702", "212"], "local_number_preferences": wait,
    });
    make(&store, 3, wants).await;
    assert_eq!(has(&store).await, ["2125550100+1", "7025550100+2"]);
}

async fn a_range_over_two_area_codes_is_cut_between_them(rig: Rig) {
    let store = open(&rig, &[range("2129999998", 4)]).await;
    make(&store, 4, json!({ "local_center": { "tn_prefix": "213" } })).await;
    assert_eq!(has(&store).await, ["2130000000+2"]);
}

async fn a_pool_that_waits_for_local_numbers_gets_them_when_there_are_some(rig: Rig) {
    let store = open(&rig, &[range("8885550100", 2)]).await;
    let wants = json!({
        "local_center": { "tn_prefix": "213" },
        "local_number_preferences": { "allocation_fallback_strategy": "Wait" },
    });
    make(&store, 3, wants).await;
    assert_eq!(has(&store).await, [""; 0]);
    assert_eq!(store.fill_short(NOW, false).await.unwrap(), (2, vec![]));
    add(&store, &[range("2135550100", 2)]).await;
    let grown = vec![Resized { pool: POOL, before: 0, after: 2 }];
    assert_eq!(store.fill_short(NOW, true).await.unwrap(), (3, grown.clone()));
    assert_eq!(has(&store).await, [""; 0]);
    assert_eq!(store.fill_short(NOW, false).await.unwrap(), (4, grown));
    assert_eq!(has(&store).await, ["2135550100+2"]);
    assert_eq!(store.audit_log(None, 1).await.unwrap()[0].who, "ringwell: filling");
    // One number is still missing, because the inventory contains no more suitable numbers.
    assert_eq!(store.fill_short(NOW, false).await.unwrap(), (4, vec![]));
}

async fn a_center_that_nobody_knows_leaves_the_fall_back(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    make(&store, 9, json!({ "local_center": { "zipcode": "00501" } })).await;
    assert_eq!(has(&store).await, ["8885550100+2"]);
}

async fn unused_numbers_that_are_not_local_go_back_before_local_ones(rig: Rig) {
    let store = open(&rig, &two_of_each()).await;
    make(&store, 6, json!({ "local_center": { "zipcode": "93101" } })).await;
    let mut change = store.change("ann", NOW).await.unwrap();
    let mut settings = change.pool(POOL).await.unwrap().settings;
    settings.fill_immediately = false;
    settings.max_pool_size = 30;
    change.update_pool(POOL, settings).await.unwrap();
    change.commit().await.unwrap();
    // With these settings, the initial size of the pool is three, and the pool keeps that many
    // numbers.
    let unused = two_of_each();
    let (_, resized) =
        store.give_back_unused("month end", NOW, POOL, &unused, false).await.unwrap();
    assert_eq!(resized, Resized { pool: POOL, before: 6, after: 3 });
    assert_eq!(has(&store).await, ["2135550100+1", "8055550100+2"]);
}

async fn a_pool_draws_numbers_of_its_own_country(rig: Rig) {
    // A country's numbers may have different lengths.
    let vienna = [range("+43720880100", 2), range("+437208802000", 2)];
    let store = open(&rig, &[range("+447700900100", 5), range("8885550100", 2)]).await;
    add(&store, &vienna).await;
    make(&store, 0, json!({})).await;
    let mut change = store.change("ann", NOW).await.unwrap();
    change.add_numbers(POOL, &[range("+43720880000", 1)]).await.unwrap();
    assert_eq!(change.fill(POOL, 50).await.unwrap(), 4);
    change.commit().await.unwrap();
    assert_eq!(has(&store).await, ["+43720880000+1", "+43720880100+2", "+437208802000+2"]);
}

async fn a_pool_without_numbers_draws_numbers_with_country_code_1(rig: Rig) {
    let store = open(&rig, &[range("+447700900100", 5), range("8885550100", 2)]).await;
    make(&store, 50, json!({})).await;
    assert_eq!(has(&store).await, ["8885550100+2"]);
}

on_both_databases! {
    a_pool_draws_numbers_of_its_own_country
    a_pool_without_numbers_draws_numbers_with_country_code_1
    a_pool_draws_the_nearest_numbers_within_its_radius_and_state
    numbers_across_the_border_are_local_only_if_the_pool_allows_it
    toll_free_numbers_come_when_local_ones_are_gone_and_go_first
    a_list_of_area_codes_bounds_what_a_pool_draws
    a_range_over_two_area_codes_is_cut_between_them
    a_pool_that_waits_for_local_numbers_gets_them_when_there_are_some
    a_center_that_nobody_knows_leaves_the_fall_back
    unused_numbers_that_are_not_local_go_back_before_local_ones
}
