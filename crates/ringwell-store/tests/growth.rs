//! Tests pools that grow and shrink automatically.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use rig::Rig;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPoolKey;
use ringwell_store::{Growth, PoolSettings, Resized, Scope, Store, first_size};

const NOW: Millis = Millis(1_700_000_000_000);
const POOL: PoolId = PoolId(1);

fn range(first: &str, count: u32) -> NumberRange {
    NumberRange::new(PromoNumber::parse(first).unwrap(), count).unwrap()
}

/// Opens a store with one pool of at most `size` numbers, filled to its initial size. Together, the
/// inventory and the pool have `stock` numbers.
async fn store(rig: &Rig, size: u32, stock: u32) -> Store {
    let store = Store::open(&rig.location).await.unwrap();
    let settings = PoolSettings {
        scope: Scope::of_file(),
        id_from_network: "a".into(),
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
    };
    let first = first_size(&settings);
    let mut change = store.change("ann", NOW).await.unwrap();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    change.add_to_inventory(&[range("8885550000", stock)], None).await.unwrap();
    change.create_pool(settings, Some(POOL), key).await.unwrap();
    change.fill(POOL, first).await.unwrap();
    change.commit().await.unwrap();
    store
}

async fn sizes(store: &Store, growth: Growth, steps: usize) -> Vec<u64> {
    let mut sizes = Vec::new();
    for _ in 0..steps {
        let (_, resized) = store.grow(NOW, growth, &[POOL, PoolId(99)]).await.unwrap();
        sizes.extend(resized.iter().map(|it| it.after));
    }
    sizes
}

async fn a_busy_pool_grows_by_a_share_up_to_a_step_and_its_ceiling(rig: Rig) {
    let store = store(&rig, 1000, 2000).await;
    let growth = Growth { percent: 20, step_max: 50, dry_run: false };
    // The pool starts with a tenth of its maximum size. Each step then adds 20 %, but at most 50
    // numbers.
    let grown = sizes(&store, growth, 12).await;
    assert_eq!(grown, [120, 144, 173, 208, 250, 300, 350, 400, 450, 500, 550, 600]);
    assert_eq!(sizes(&store, growth, 9).await, [650, 700, 750, 800, 850, 900, 950, 1000]);
    let log = store.audit_log(None, 1).await.unwrap();
    assert_eq!(log[0].who, "ringwell: growth");
}

async fn growth_ends_with_the_inventory(rig: Rig) {
    let store = store(&rig, 100, 13).await;
    let growth = Growth { percent: 20, step_max: 50, dry_run: false };
    assert_eq!(sizes(&store, growth, 4).await, [12, 13, 13, 13]);
    // Steps without effect do not count as changes.
    assert_eq!(store.version().await.unwrap(), 3);
}

async fn a_dry_run_says_what_it_would_do(rig: Rig) {
    let store = store(&rig, 100, 100).await;
    let growth = Growth { percent: 20, step_max: 50, dry_run: true };
    assert_eq!(sizes(&store, growth, 2).await, [12, 12]);
    assert_eq!(store.version().await.unwrap(), 1);
    let unused = [range("8885550000", 100)];
    let (version, _) = store.give_back_unused("month end", NOW, POOL, &unused, true).await.unwrap();
    assert_eq!(version, 1);
}

async fn unused_numbers_go_back_but_for_those_of_the_beginning(rig: Rig) {
    let store = store(&rig, 100, 100).await;
    let growth = Growth { percent: 100, step_max: 50, dry_run: false };
    assert_eq!(sizes(&store, growth, 2).await, [20, 40]);
    let unused = [range("8885550030", 5)];
    let (_, resized) =
        store.give_back_unused("month end", NOW, POOL, &unused, false).await.unwrap();
    assert_eq!(resized, Resized { pool: POOL, before: 40, after: 35 });
    let all = [range("8885550000", 100)];
    let (_, resized) = store.give_back_unused("month end", NOW, POOL, &all, false).await.unwrap();
    assert_eq!(resized, Resized { pool: POOL, before: 35, after: 10 });
    assert_eq!(store.load_all().await.unwrap().pools[0].number_count(), 9);
}

on_both_databases! {
    a_busy_pool_grows_by_a_share_up_to_a_step_and_its_ceiling
    growth_ends_with_the_inventory
    a_dry_run_says_what_it_would_do
    unused_numbers_go_back_but_for_those_of_the_beginning
}
