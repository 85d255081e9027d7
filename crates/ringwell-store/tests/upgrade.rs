//! Databases of earlier schemas open, and lose nothing.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test program")]

mod rig;

use std::fs;
use std::path::Path;

use rig::Rig;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_store::{Location, Store};

#[tokio::test]
async fn a_database_of_schema_1_opens_in_sqlite() {
    let rig = Rig::sqlite();
    let Location::File(path) = &rig.location else { panic!("SQLite is a file") };
    // The rig puts a sign into the name that URLs know otherwise.
    let path = path.display().to_string().replace('%', "%25");
    make(&format!("sqlite://{path}?mode=rwc"), "sqlite.sql").await;
    opens(&rig).await;
}

#[tokio::test]
async fn a_database_of_schema_1_opens_in_postgresql() {
    let rig = Rig::postgres();
    let Location::Url(url) = &rig.location else { panic!("PostgreSQL has a URL") };
    make(url, "postgres.sql").await;
    opens(&rig).await;
}

async fn make(url: &str, own: &str) {
    sqlx::any::install_default_drivers();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/directory/v1");
    let pool = sqlx::AnyPool::connect(url).await.unwrap();
    for file in ["tables.sql", own, "rows.sql"] {
        let script = fs::read_to_string(folder.join(file)).unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

async fn opens(rig: &Rig) {
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
    // What waited then goes on waiting, and comes when its time has come.
    let at = Millis(1_700_000_100_000);
    store.confirm("n1", 9, at).await.unwrap();
    assert_eq!(store.due(at + Millis(1_859_999)).await.unwrap(), None);
    assert_eq!(store.due(at + Millis(1_860_000)).await.unwrap(), Some(10));
    assert_eq!(store.load_all().await.unwrap().pools[0].number_count(), 11);
}
