//! Tests that databases with earlier schemas can be opened without losing data.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
mod rig;

use std::fs;
use std::path::Path;

use rig::Rig;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::RingPoolKey;
use ringwell_store::{Location, Refusal, Store, StoreError};

const NOW: Millis = Millis(1_700_000_100_000);

async fn a_database_of_schema_1_opens_and_works(rig: Rig) {
    make(&rig, "v1").await;
    opens(&rig, None).await;
}

async fn a_database_of_schema_2_opens_and_works(rig: Rig) {
    make(&rig, "v2").await;
    opens(&rig, Some(20)).await;
}

async fn a_database_of_schema_3_opens_and_works(rig: Rig) {
    make(&rig, "v3").await;
    let store = Store::open(&rig.location).await.unwrap();
    let site = store.site("pk_shop").await.unwrap().unwrap();
    assert_eq!((site.leases_per_minute, site.swaps[0].pool), (5, PoolId(1)));
    assert_eq!(store.changed_since(8).await.unwrap().sites, Some(vec![site]));
    store.close().await;
    opens(&rig, Some(20)).await;
}

async fn a_database_of_schema_4_opens_and_works(rig: Rig) {
    make(&rig, "v4").await;
    opens(&rig, Some(20)).await;
    let store = Store::open(&rig.location).await.unwrap();
    let german = PromoNumber::parse("+493012345005").unwrap();
    assert!(store.number(german).await.unwrap().is_some());
}

async fn a_database_of_schema_5_opens_and_works(rig: Rig) {
    make(&rig, "v5").await;
    opens(&rig, Some(20)).await;
    let store = Store::open(&rig.location).await.unwrap();
    let name = "00112233445566778899aabbccddeeff";
    assert_eq!(store.journal("n1").await.unwrap().as_deref(), Some(name));
    store.confirm("n2", 9, NOW).await.unwrap();
    assert_eq!(store.journal("n2").await.unwrap(), None);
    store.note_journal("n2", "another").await.unwrap();
    store.confirm("n2", 9, NOW).await.unwrap();
    assert_eq!(store.journal("n2").await.unwrap().as_deref(), Some("another"));
    assert_eq!(store.journal("n1").await.unwrap().as_deref(), Some(name));
    // If an earlier version removed a pool, the pool's network is unknown.
    assert!(!takes_id_2(&store, Some("7")).await);
    assert!(takes_id_2(&store, None).await);
}

async fn a_database_of_schema_6_opens_and_works(rig: Rig) {
    make(&rig, "v6").await;
    opens(&rig, Some(20)).await;
    let store = Store::open(&rig.location).await.unwrap();
    assert_eq!(store.network_of(PoolId(2)).await.unwrap().as_deref(), Some("7"));
    assert!(takes_id_2(&store, Some("7")).await);
    assert!(!takes_id_2(&store, Some("8")).await);
    assert!(takes_id_2(&store, None).await);
}

/// Whether a change that is limited to `network` may create a pool of network 7 with the id of the
/// removed pool 2.
async fn takes_id_2(store: &Store, network: Option<&str>) -> bool {
    let mut change = store.change("ann", NOW).await.unwrap().limited_to(network);
    let mut settings = change.pool(PoolId(1)).await.unwrap().settings;
    settings.id_from_network = "18".into();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    match change.create_pool(settings, Some(PoolId(2)), key).await {
        Ok(_) => true,
        Err(StoreError::Refused(Refusal::PoolIdUnusable(PoolId(2)))) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Creates the database with the scripts in the fixture of `version`.
async fn make(rig: &Rig, version: &str) {
    sqlx::any::install_default_drivers();
    let (url, own) = match &rig.location {
        // The name of the rig's file contains a character that has a special meaning in URLs.
        Location::File(path) => {
            let path = path.display().to_string().replace('%', "%25");
            (format!("sqlite://{path}?mode=rwc"), "sqlite.sql")
        }
        Location::Url(url) => (url.clone(), "postgres.sql"),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/directory");
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    for file in ["tables.sql", own, "rows.sql"] {
        let script = fs::read_to_string(folder.join(version).join(file)).unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

/// Asserts that the upgrade loses no data, that pending work continues, and that all current kinds
/// of changes work. After the upgrade, the ceiling of network 7 must be `ceiling`.
async fn opens(rig: &Rig, ceiling: Option<u64>) {
    let store = Store::open(&rig.location).await.unwrap();
    let loaded = store.load_all().await.unwrap();
    assert_eq!(loaded.version, 9);
    let pool = &loaded.pools[0];
    assert_eq!((pool.id(), pool.number_count()), (PoolId(1), 10));
    assert_eq!(pool.overflow(), PromoNumber::parse("8885550199").ok());
    let settings = store.pool(PoolId(1)).await.unwrap().unwrap().settings;
    assert_eq!(settings.kept["pool_type"], "Custom");
    assert_eq!(store.changed_since(7).await.unwrap().removed, [PoolId(2)]);
    assert_eq!(store.audit_log(None, 9).await.unwrap()[0].before.as_ref().unwrap()["name"], "Cars");
    // Numbers that were waiting for a pool before the upgrade still wait, and enter it when they
    // are due.
    store.confirm("n1", 9, NOW).await.unwrap();
    assert_eq!(store.due(NOW + Millis(1_859_999)).await.unwrap(), None);
    assert_eq!(store.due(NOW + Millis(1_860_000)).await.unwrap(), Some(10));
    assert_eq!(store.load_all().await.unwrap().pools[0].number_count(), 11);
    let network = store.network("7").await.unwrap().unwrap();
    assert_eq!((network.numbers, network.ceiling), (12, ceiling));
    works(&store).await;
    store.close().await;
    // The second startup has nothing to upgrade.
    assert_eq!(Store::open(&rig.location).await.unwrap().version().await.unwrap(), 11);
}

async fn works(store: &Store) {
    let mut change = store.change("ann", NOW + Millis(1_860_000)).await.unwrap();
    let mut settings = change.pool(PoolId(1)).await.unwrap().settings;
    settings.id_from_network = "17".into();
    let key = RingPoolKey::parse("KEY45678").unwrap();
    let id = change.create_pool(settings, None, key).await.unwrap();
    assert_eq!(id, PoolId(3));
    let stock = NumberRange::new(PromoNumber::parse("2125550100").unwrap(), 20).unwrap();
    change.add_to_inventory(&[stock], None).await.unwrap();
    change.set_ceiling("7", Some(15)).await.unwrap();
    assert_eq!(change.fill(id, 9).await.unwrap(), 3);
    assert_eq!(change.commit().await.unwrap(), 11);
    let delta = store.changed_since(10).await.unwrap();
    assert_eq!((delta.changed[0].id(), delta.changed[0].number_count()), (id, 2));
}

on_both_databases! {
    a_database_of_schema_1_opens_and_works
    a_database_of_schema_2_opens_and_works
    a_database_of_schema_3_opens_and_works
    a_database_of_schema_4_opens_and_works
    a_database_of_schema_5_opens_and_works
    a_database_of_schema_6_opens_and_works
}
