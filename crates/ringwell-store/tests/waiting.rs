//! A change that waits for another one, with SQLite and PostgreSQL.

#![allow(clippy::unwrap_used, reason = "also the helpers of tests end a test by failing")]

#[macro_use]
mod rig;

use rig::Rig;
use ringwell_core::Millis;
use ringwell_store::Store;

on_both_databases! {
    a_change_that_waits_too_long_finds_the_directory_busy
}

async fn a_change_that_waits_too_long_finds_the_directory_busy(rig: Rig) {
    let store = Store::open(&rig.location).await.unwrap();
    let first = store.change("an import", Millis(1)).await.unwrap();
    let second = store.change("another", Millis(2)).await.err().unwrap();
    assert!(second.is_busy(), "{second}");
    drop(first);
    assert!(store.change("another", Millis(3)).await.is_ok());
    assert!(!store.is_read_only().await.unwrap());
}
