//! Tests the limits on the count of numbers in one pool, and in all pools of a network together.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use rig::Rig;
use ringwell_config::Inventory;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPoolKey;
use ringwell_store::{
    Growth, Leave, Network, Placed, PoolSettings, Refusal, Scope, Store, StoreError,
};

const NOW: Millis = Millis(1_700_000_000_000);

fn number(text: &str) -> PromoNumber {
    PromoNumber::parse(text).unwrap()
}

fn range(first: &str, count: u32) -> NumberRange {
    NumberRange::new(number(first), count).unwrap()
}

fn settings(network: &str, id: u64, size: u32) -> PoolSettings {
    PoolSettings {
        scope: Scope { network: network.into(), advertiser: "1".into(), campaign: "1".into() },
        id_from_network: id.to_string(),
        name: "A".into(),
        lifetime: Millis(1000),
        max_pool_size: size,
        preferred: false,
        fill_immediately: false,
        allow_overflow: true,
        destination: None,
        tracking_url: String::new(),
        destination_url: String::new(),
        kept: serde_json::Map::new(),
    }
}

/// Opens a store with 100 numbers in its inventory. A pool may have at most 50 numbers, and a
/// network at most `network`.
async fn open(rig: &Rig, network: Option<u64>) -> Store {
    let inventory =
        Inventory { pool_numbers_max: 50, network_numbers_max: network, ..Inventory::default() };
    let store = Store::open(&rig.location).await.unwrap().with_inventory(inventory);
    let mut change = store.change("ann", NOW).await.unwrap();
    change.add_to_inventory(&[range("8885550100", 100)], None).await.unwrap();
    change.commit().await.unwrap();
    store
}

/// Creates a pool of at most `size` numbers, and fills it to its initial size.
async fn make(store: &Store, network: &str, id: u64, size: u32) {
    let mut change = store.change("ann", NOW).await.unwrap();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    change.create_pool(settings(network, id, size), Some(PoolId(id)), key).await.unwrap();
    change.fill(PoolId(id), size.div_ceil(10).into()).await.unwrap();
    change.commit().await.unwrap();
}

async fn set_ceiling(store: &Store, network: &str, most: Option<u64>) {
    let mut change = store.change("ann", NOW).await.unwrap();
    change.set_ceiling(network, most).await.unwrap();
    change.commit().await.unwrap();
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, StoreError>, refusal: &Refusal) {
    let Err(StoreError::Refused(found)) = result else { panic!("{result:?}") };
    assert_eq!(&found, refusal);
}

async fn a_pool_is_given_no_greater_size_than_its_ceiling(rig: Rig) {
    let store = open(&rig, None).await;
    make(&store, "7", 1, 50).await;
    let mut change = store.change("ann", NOW).await.unwrap();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    let made = change.create_pool(settings("7", 2, 51), None, key).await;
    is_refused(made, &Refusal::PoolCeiling(50));
    let raised = change.update_pool(PoolId(1), settings("7", 1, 51)).await;
    is_refused(raised, &Refusal::PoolCeiling(50));
    change.add_numbers(PoolId(1), &[range("8885550110", 50)]).await.unwrap();
    is_refused(change.raise_size(PoolId(1)).await, &Refusal::PoolCeiling(50));
}

async fn pools_of_a_network_grow_up_to_its_ceiling_together(rig: Rig) {
    let store = open(&rig, Some(20)).await;
    make(&store, "7", 1, 50).await;
    make(&store, "7", 2, 50).await;
    make(&store, "8", 3, 50).await;
    let growth = Growth { percent: 100, step_max: 50, dry_run: false };
    for _ in 0..6 {
        store.grow(NOW, growth, &[1, 2, 3].map(PoolId)).await.unwrap();
    }
    let first = store.network("7").await.unwrap().unwrap();
    assert_eq!(first, Network { id: "7".into(), numbers: 20, ceiling: Some(20), is_own: false });
    set_ceiling(&store, "7", Some(23)).await;
    assert_eq!(store.audit_log(None, 1).await.unwrap()[0].action, "set limit");
    store.grow(NOW, growth, &[PoolId(2)]).await.unwrap();
    let networks = store.networks("", 9).await.unwrap();
    let seen: Vec<_> = networks.iter().map(|it| (it.id.as_str(), it.numbers, it.ceiling)).collect();
    assert_eq!(seen, [("7", 23, Some(23)), ("8", 20, Some(20))]);
}

async fn numbers_given_by_hand_keep_the_ceiling_too(rig: Rig) {
    let store = open(&rig, None).await;
    make(&store, "7", 1, 50).await;
    set_ceiling(&store, "7", Some(6)).await;
    let refusal = Refusal::NetworkCeiling { network: "7".into(), most: 6 };
    let mut change = store.change("ann", NOW).await.unwrap();
    let added = change.add_numbers(PoolId(1), &[range("8885550150", 1)]).await.unwrap();
    assert_eq!(added, Placed { entered: 1, waiting: 0 });
    // Numbers that the pool already has do not count toward the ceiling again.
    change.add_numbers(PoolId(1), &[range("8885550150", 1)]).await.unwrap();
    is_refused(change.add_numbers(PoolId(1), &[range("8885550160", 1)]).await, &refusal);
    drop(change);
    let mut change = store.change("ann", NOW).await.unwrap();
    change.set_overflow(PoolId(1), None).await.unwrap();
    change.add_numbers(PoolId(1), &[range("8885550170", 2)]).await.unwrap();
    is_refused(change.set_overflow(PoolId(1), Some(number("8885550180"))).await, &refusal);
}

async fn what_a_line_was_refused_for_is_there_for_the_next(rig: Rig) {
    let store = open(&rig, None).await;
    make(&store, "7", 1, 50).await;
    set_ceiling(&store, "7", Some(10)).await;
    let refusal = Refusal::NetworkCeiling { network: "7".into(), most: 10 };
    // The network has five numbers, and its ceiling is ten. After the pool's overflow number is
    // removed, six more numbers are accepted, and a seventh is refused.
    let mut change = store.change("ann", NOW).await.unwrap();
    change.set_overflow(PoolId(1), None).await.unwrap();
    change.add_numbers(PoolId(1), &[range("8885550150", 4)]).await.unwrap();
    for (first, count, fits) in [("8885550160", 2, true), ("8885550170", 1, false)] {
        change.save_point().await.unwrap();
        let added = change.add_numbers(PoolId(1), &[range(first, count)]).await;
        assert_eq!(added.is_ok(), fits, "{first}");
        if fits {
            change.release_save_point().await.unwrap();
        } else {
            is_refused(added, &refusal);
            change.back_to_save_point().await.unwrap();
        }
    }
    change.take_out(&[range("8885550160", 1)], Leave::Inventory).await.unwrap();
    change.save_point().await.unwrap();
    is_refused(change.add_numbers(PoolId(1), &[range("8885550180", 2)]).await, &refusal);
    change.back_to_save_point().await.unwrap();
    change.set_overflow(PoolId(1), Some(number("8885550190"))).await.unwrap();
    is_refused(change.add_numbers(PoolId(1), &[range("8885550180", 1)]).await, &refusal);
    drop(change);
    assert_eq!(store.network("7").await.unwrap().unwrap().numbers, 5);
}

async fn what_was_promised_before_a_ceiling_came_down_still_comes(rig: Rig) {
    let store = open(&rig, None).await;
    make(&store, "7", 1, 50).await;
    make(&store, "7", 2, 50).await;
    let mut change = store.change("ann", NOW).await.unwrap();
    let ranges: Vec<_> = store.numbers_of(PoolId(1)).await.unwrap();
    let moved: Vec<_> = ranges.iter().map(|it| it.range).collect();
    change.take_out(&moved, Leave::Inventory).await.unwrap();
    let placed = change.add_numbers(PoolId(2), &moved).await.unwrap();
    assert_eq!(placed, Placed { entered: 0, waiting: 4 });
    change.commit().await.unwrap();
    set_ceiling(&store, "7", Some(1)).await;
    store.due(NOW + Millis(61_000)).await.unwrap().unwrap();
    assert_eq!(store.network("7").await.unwrap().unwrap().numbers, 10);
}

on_both_databases! {
    a_pool_is_given_no_greater_size_than_its_ceiling
    pools_of_a_network_grow_up_to_its_ceiling_together
    numbers_given_by_hand_keep_the_ceiling_too
    what_a_line_was_refused_for_is_there_for_the_next
    what_was_promised_before_a_ceiling_came_down_still_comes
}
