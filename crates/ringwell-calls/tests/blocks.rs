//! The ids of entries in the list of blocked callers. Calls are stored with these ids.

#![expect(clippy::unwrap_used, reason = "a test program")]

#[macro_use]
#[path = "../../ringwell-store/tests/rig/mod.rs"]
mod rig;

use rig::Rig;
use ringwell_calls::Log;
use ringwell_calls::block::{Block, BlockRow, Pattern};
use ringwell_calls::log::{Blocked, SCHEMA};
use ringwell_calls::provider::Refusal;
use ringwell_core::Millis;
use ringwell_store::Database;
use sqlx::Row;

fn block(caller: &str, pool: Option<u64>) -> Block {
    let caller = Pattern::parse(caller).unwrap();
    Block { caller, pool, answer: Refusal::Rejected, note: None }
}

async fn add(log: &Log, block: &Block) -> String {
    let Blocked::Stored(row) = log.block(block, Millis(1)).await.unwrap() else {
        panic!("the list is full")
    };
    row.id
}

/// If the id were derived from the number, readers of calls could compute the number.
async fn an_id_is_random_and_stays_as_long_as_the_entry(rig: Rig) {
    let log = Log::open(&rig.location).await.unwrap();
    let robot = block("+14155551234", None);
    let id = add(&log, &robot).await;
    let busy = Block { answer: Refusal::Busy, ..robot.clone() };
    assert_eq!(add(&log, &busy).await, id);
    assert_ne!(add(&log, &block("+14155551234", Some(16))).await, id);
    let rows = log.blocks().await.unwrap();
    assert_eq!((rows.len(), rows.iter().filter(|row| row.block == busy).count()), (2, 1));
    assert!(log.unblock(&id).await.unwrap());
    assert_ne!(add(&log, &robot).await, id);
    log.close().await;
}

/// If a server of an earlier release still uses the same database, such ids reappear.
async fn ids_of_an_earlier_release_are_replaced(rig: Rig) {
    let log = Log::open(&rig.location).await.unwrap();
    let kept = add(&log, &block("+1800*", None)).await;
    log.close().await;
    let database = Database::open(&rig.location, &SCHEMA).await.unwrap();
    let script = "INSERT INTO call_blocks (id, caller, pool, answer, created_ms) VALUES \
                  ('b_0000000000000001', '+14155551234', -1, 'reject', 5), \
                  ('b_0000000000000002', '+1900*', 7, 'busy', 6), \
                  ('b_0000000000000003', '+1800*', -1, 'reject', 7); \
                  INSERT INTO calls (id, account, provider, provider_call_id, sequence, \
                  started_ms, state, attributed, facts, published, blocked) \
                  SELECT 'c_' || id, 'main', 'twilio', id, 1, 1000, 'ringing', 'none', '[]', '[]', \
                  CASE id WHEN 'b_0000000000000002' THEN 'b_0000000000000009' ELSE id END \
                  FROM call_blocks";
    let mut tx = database.write().await.unwrap();
    sqlx::raw_sql(script).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    database.close().await;
    let log = Log::open(&rig.location).await.unwrap();
    log.replace_derived_ids().await.unwrap();
    let rows = log.blocks().await.unwrap();
    assert!(rows.iter().all(|row| row.id.len() == 34), "{rows:?}");
    let id_of = |caller: &str| {
        let of = |row: &&BlockRow| row.block.caller.text() == caller;
        rows.iter().find(of).unwrap().id.clone()
    };
    assert_eq!((rows.len(), id_of("+1800*")), (3, kept.clone()));
    assert_eq!(add(&log, &block("+1900*", Some(7))).await, id_of("+1900*"));
    log.close().await;
    let database = Database::open(&rig.location, &SCHEMA).await.unwrap();
    let query = sqlx::query("SELECT blocked FROM calls ORDER BY id");
    let calls = database.read_rows(query).await.unwrap();
    let mut blocked: Vec<String> = calls.iter().map(|call| call.get(0)).collect();
    blocked.sort();
    let mut wanted = [id_of("+14155551234"), "b_removed".to_owned(), kept.clone(), kept];
    wanted.sort();
    assert_eq!(blocked, wanted);
    database.close().await;
}

on_both_databases! {
    an_id_is_random_and_stays_as_long_as_the_entry
    ids_of_an_earlier_release_are_replaced
}
