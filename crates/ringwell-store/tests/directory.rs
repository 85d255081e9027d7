//! Tests the rules of the directory on both databases: each case runs on SQLite and on PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test program reports failures by panicking")]

#[macro_use]
mod rig;
#[path = "directory/ids.rs"]
mod ids;
#[path = "directory/overflow.rs"]
mod overflow;

use rig::Rig;
use ringwell_config::demo_pools;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{PoolFields, RingPool, RingPoolKey};
use ringwell_store::{
    Change, Leave, Location, NumberState, ONLY_NODE, Placed, PoolSettings, PoolSize, Refusal, Role,
    Scope, Store, StoreError,
};
use serde_json::Map;

on_both_databases! {
    a_pool_is_served_also_without_a_number
    what_changed_since_a_version_is_only_that
    a_change_that_is_dropped_never_was
    numbers_of_every_country_come_back
    a_number_is_in_one_place
    the_database_itself_refuses_overlapping_numbers
    a_number_enters_another_pool_after_every_lockout
    a_number_waits_for_the_slowest_node
    a_single_server_that_becomes_a_node_is_forgotten
    a_number_may_return_to_its_own_pool_at_once
    a_shorter_lifetime_does_not_shorten_lockouts_of_before
    a_removed_pool_leaves_its_numbers_and_never_its_id
    quarantine_ends_with_a_cooldown
    keys_rotate_with_an_overlap
    an_id_of_the_network_names_one_pool
    every_change_is_in_the_audit_log
    a_whole_list_moves_into_an_empty_directory
    of_two_servers_one_imports_the_list
    changes_wait_for_each_other
    a_database_of_a_newer_program_is_left_alone
    a_pool_draws_from_the_inventory_and_gives_back
    a_token_is_worth_its_role_until_it_is_revoked
    a_nul_is_the_fault_of_the_text_and_not_of_the_database
}

const LIFETIME: Millis = Millis(30 * 60_000);
/// The time at which each test begins.
const START: Millis = Millis(1_700_000_000_000);

fn at(seconds: u64) -> Millis {
    START + Millis(seconds * 1000)
}

fn number(text: &str) -> PromoNumber {
    PromoNumber::parse(text).unwrap()
}

fn range(first: &str, count: u32) -> NumberRange {
    NumberRange::new(number(first), count).unwrap()
}

fn key(text: &str) -> RingPoolKey {
    RingPoolKey::parse(text).unwrap()
}

fn settings(id: &str) -> PoolSettings {
    PoolSettings {
        scope: Scope { network: "7".into(), advertiser: "1".into(), campaign: "100".into() },
        id_from_network: id.into(),
        name: format!("Pool {id}"),
        lifetime: LIFETIME,
        max_pool_size: 10,
        preferred: false,
        fill_immediately: true,
        allow_overflow: true,
        destination: None,
        tracking_url: String::new(),
        destination_url: String::new(),
        kept: Map::new(),
    }
}

async fn open(rig: &Rig) -> Store {
    Store::open(&rig.location).await.unwrap()
}

async fn change(store: &Store, seconds: u64) -> Change {
    store.change("ann", at(seconds)).await.unwrap()
}

/// Creates pools 1 and 2, and gives ten numbers to pool 1.
async fn two_pools(store: &Store) {
    let mut change = change(store, 0).await;
    for id in ["a", "b"] {
        change.create_pool(settings(id), None, key("KEY45678")).await.unwrap();
    }
    change.add_numbers(PoolId(1), &[range("8885550100", 10)]).await.unwrap();
    change.commit().await.unwrap();
}

async fn rotation(store: &Store, pool: u64) -> Vec<NumberRange> {
    let loaded = store.load_all().await.unwrap();
    let pool = loaded.pools.into_iter().find(|found| found.id() == PoolId(pool));
    pool.map_or(Vec::new(), |pool| pool.numbers().to_vec())
}

fn refusal<T>(result: Result<T, StoreError>) -> Refusal {
    match result {
        Err(StoreError::Refused(refusal)) => refusal,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was not refused"),
    }
}

async fn a_pool_is_served_also_without_a_number(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let loaded = store.load_all().await.unwrap();
    assert_eq!(loaded.version, 1);
    let expected = RingPool::new(PoolFields {
        id: PoolId(1),
        name: Some("Pool a".into()),
        key: key("KEY45678"),
        next_key: None,
        lifetime: LIFETIME,
        numbers: vec![range("8885550100", 10)],
        overflow: None,
        tracking: None,
    });
    let (with, without) = (&loaded.pools[0], &loaded.pools[1]);
    assert_eq!(*with, expected.unwrap());
    assert_eq!((without.id(), without.number_count()), (PoolId(2), 0));
}

async fn what_changed_since_a_version_is_only_that(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    second.add_numbers(PoolId(2), &[range("8885550200", 1)]).await.unwrap();
    assert_eq!(second.commit().await.unwrap(), 2);
    let delta = store.changed_since(1).await.unwrap();
    assert_eq!(delta.version, 2);
    let ids: Vec<_> = delta.changed.iter().map(RingPool::id).collect();
    assert_eq!((ids, delta.removed), (vec![PoolId(2)], vec![]));

    let mut third = change(&store, 2).await;
    third.take_out(&[range("8885550200", 1)], Leave::Retire).await.unwrap();
    third.remove_pool(PoolId(1)).await.unwrap();
    third.commit().await.unwrap();
    let delta = store.changed_since(2).await.unwrap();
    let left: Vec<_> = delta.changed.iter().map(|pool| (pool.id(), pool.number_count())).collect();
    assert_eq!((left, delta.removed), (vec![(PoolId(2), 0)], vec![PoolId(1)]));
    let delta = store.changed_since(3).await.unwrap();
    assert!(delta.changed.is_empty() && delta.removed.is_empty() && delta.version == 3);
}

async fn a_change_that_is_dropped_never_was(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut dropped = change(&store, 1).await;
    dropped.remove_pool(PoolId(1)).await.unwrap();
    drop(dropped);
    assert_eq!(rotation(&store, 1).await, [range("8885550100", 10)]);
    // A change without effect creates no version.
    assert_eq!(change(&store, 2).await.commit().await.unwrap(), 1);
    assert_eq!(store.version().await.unwrap(), 1);
    // Part of a change can be undone too.
    let mut third = change(&store, 3).await;
    third.save_point().await.unwrap();
    third.remove_pool(PoolId(1)).await.unwrap();
    third.back_to_save_point().await.unwrap();
    third.add_numbers(PoolId(1), &[range("8885550110", 1)]).await.unwrap();
    third.commit().await.unwrap();
    assert_eq!(rotation(&store, 1).await, [range("8885550100", 11)]);
}

async fn numbers_of_every_country_come_back(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut all = ["+493012345678", "+6581234567", "+2000000", "+999999999999999", "2125550100"];
    let mut add = change(&store, 1).await;
    for text in all {
        add.add_numbers(PoolId(2), &[range(text, 1)]).await.unwrap();
    }
    add.commit().await.unwrap();
    all.sort_by_key(|text| number(text));
    let found = rotation(&store, 2).await;
    let found: Vec<_> = found.iter().flat_map(|range| range.iter()).collect();
    assert_eq!(found, all.map(number));
    for text in all {
        let held = store.number(number(text)).await.unwrap().unwrap();
        assert_eq!((held.range.first(), held.pool), (number(text), Some(PoolId(2))));
    }
    // A Singapore number is not mistaken for the number in area code 658 with the same digits.
    assert!(store.number(number("6581234567")).await.unwrap().is_none());
}

async fn a_number_is_in_one_place(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let taken = "8885550105 is in the rotation of ring pool 1";
    let result = change(&store, 1).await.add_numbers(PoolId(2), &[range("8885550105", 9)]).await;
    assert_eq!(refusal(result).to_string(), taken);
    let result = change(&store, 1).await.set_overflow(PoolId(2), Some(number("8885550105"))).await;
    assert_eq!(refusal(result).to_string(), taken);
    let mut given = change(&store, 1).await;
    assert!(given.set_overflow(PoolId(2), Some(number("8885550199"))).await.unwrap());
    given.commit().await.unwrap();
    let result = change(&store, 2).await.add_numbers(PoolId(1), &[range("8885550199", 1)]).await;
    assert_eq!(refusal(result).to_string(), "8885550199 is an overflow number");
    // A number for one network is not available to another network.
    let mut stock = change(&store, 3).await;
    assert_eq!(stock.add_to_inventory(&[range("8885550098", 4)], Some("8")).await.unwrap(), 2);
    let result = stock.add_numbers(PoolId(1), &[range("8885550098", 1)]).await;
    let taken = "8885550098 is in the inventory, for network 8 only";
    assert_eq!(refusal(result).to_string(), taken);
}

async fn the_database_itself_refuses_overlapping_numbers(rig: Rig) {
    let store = open(&rig).await;
    let pool = |id, first: &str, count| {
        RingPool::new(PoolFields {
            id: PoolId(id),
            name: None,
            key: key("KEY45678"),
            next_key: None,
            lifetime: LIFETIME,
            numbers: vec![range(first, count)],
            overflow: None,
            tracking: None,
        })
        .unwrap()
    };
    // `import` itself does not check whether a number is in two pools: the database does.
    let twice = [pool(1, "8885550100", 10), pool(2, "8885550109", 3)];
    let result = change(&store, 0).await.import(&twice, &Scope::of_file()).await;
    let message = result.unwrap_err().to_string();
    assert!(message.contains("numbers_do_not_overlap"), "{message}");
}

async fn a_number_enters_another_pool_after_every_lockout(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    store.confirm("n1", 1, at(0)).await.unwrap();
    let moved = [range("8885550103", 2)];
    let mut second = change(&store, 10).await;
    second.take_out(&moved, Leave::Inventory).await.unwrap();
    let placed = second.add_numbers(PoolId(2), &moved).await.unwrap();
    assert_eq!(placed, Placed { entered: 0, waiting: 2 });
    second.commit().await.unwrap();
    let rest = [range("8885550100", 3), range("8885550105", 5)];
    assert_eq!(rotation(&store, 1).await, rest);

    // The node has not confirmed the second version, so the two numbers still wait a year later.
    assert_eq!(store.due(at(400 * 86_400)).await.unwrap(), None);
    assert_eq!(store.numbers_of(PoolId(2)).await.unwrap()[0].ready, None);
    store.confirm("n1", 2, at(20)).await.unwrap();
    let ready = at(20) + LIFETIME + Store::MARGIN;
    assert_eq!(store.numbers_of(PoolId(2)).await.unwrap()[0].ready, Some(ready));
    assert_eq!(store.due(ready - Millis(1)).await.unwrap(), None);
    assert_eq!(store.due(ready).await.unwrap(), Some(3));
    assert_eq!(rotation(&store, 2).await, moved);
    let delta = store.changed_since(2).await.unwrap();
    assert_eq!(delta.changed.len(), 1);
}

async fn a_number_waits_for_the_slowest_node(rig: Rig) {
    // The clocks of two nodes may differ by ten minutes.
    let store = open(&rig).await.with_clocks(std::time::Duration::from_mins(5));
    two_pools(&store).await;
    for node in ["n1", "n2", "n3"] {
        store.confirm(node, 1, at(0)).await.unwrap();
    }
    let moved = [range("8885550109", 1)];
    let mut second = change(&store, 10).await;
    second.take_out(&moved, Leave::Inventory).await.unwrap();
    second.add_numbers(PoolId(2), &moved).await.unwrap();
    second.commit().await.unwrap();
    store.confirm("n1", 2, at(11)).await.unwrap();
    store.confirm("n2", 2, at(500)).await.unwrap();
    assert_eq!(store.due(at(1_000_000)).await.unwrap(), None);
    // The operator then declares the third node permanently gone.
    assert!(store.forget_node("n3", "tests", at(600)).await.unwrap());
    assert!(!store.forget_node("n3", "tests", at(700)).await.unwrap());
    let known: Vec<String> = store.nodes().await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(known, ["n1", "n2"]);
    let ready = at(600) + LIFETIME + Millis(600_000);
    assert_eq!(store.due(ready - Millis(1)).await.unwrap(), None);
    assert!(store.due(ready).await.unwrap().is_some());
    assert_eq!(rotation(&store, 2).await, moved);
}

async fn a_single_server_that_becomes_a_node_is_forgotten(rig: Rig) {
    let store = open(&rig).await;
    for (node, journal) in [(ONLY_NODE, "data"), ("a", "data"), ("b", "other")] {
        store.confirm(node, 1, at(0)).await.unwrap();
        store.note_journal(node, journal).await.unwrap();
    }
    assert!(!store.forget_former("b", "other", at(1)).await.unwrap());
    assert!(store.forget_former("a", "data", at(1)).await.unwrap());
    let known: Vec<String> = store.nodes().await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(known, ["a", "b"]);
    store.confirm(ONLY_NODE, 1, at(2)).await.unwrap();
    assert!(store.forget_former(ONLY_NODE, "data", at(2)).await.unwrap());
    let known: Vec<String> = store.nodes().await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(known, ["b", ONLY_NODE]);
}

async fn a_number_may_return_to_its_own_pool_at_once(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 10).await;
    second.take_out(&[range("8885550100", 1)], Leave::Inventory).await.unwrap();
    second.commit().await.unwrap();
    let mut third = change(&store, 11).await;
    let placed = third.add_numbers(PoolId(1), &[range("8885550100", 1)]).await.unwrap();
    assert_eq!(placed, Placed { entered: 1, waiting: 0 });
    third.commit().await.unwrap();
    // All ten numbers are in a single row again.
    assert_eq!(rotation(&store, 1).await, [range("8885550100", 10)]);
}

async fn a_shorter_lifetime_does_not_shorten_lockouts_of_before(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let shorter = PoolSettings { lifetime: Millis(1000), ..settings("a") };
    let mut second = change(&store, 10).await;
    second.update_pool(PoolId(1), shorter).await.unwrap();
    second.commit().await.unwrap();
    let moved = [range("8885550100", 1)];
    let mut third = change(&store, 20).await;
    third.take_out(&moved, Leave::Inventory).await.unwrap();
    third.add_numbers(PoolId(2), &moved).await.unwrap();
    third.commit().await.unwrap();
    let ready = store.numbers_of(PoolId(2)).await.unwrap()[0].ready;
    assert_eq!(ready, Some(at(20) + LIFETIME + Store::MARGIN));
    // The shorter lifetime applies once all lockouts that began under the longer lifetime have
    // ended.
    let later = 20 + 2 * 30 * 60;
    let moved = [range("8885550101", 1)];
    let mut fourth = change(&store, later).await;
    fourth.take_out(&moved, Leave::Inventory).await.unwrap();
    fourth.commit().await.unwrap();
    let ready = store.number(number("8885550101")).await.unwrap().unwrap().ready;
    assert_eq!(ready, Some(at(later + 1) + Store::MARGIN));
}

async fn a_removed_pool_leaves_its_numbers_and_never_its_id(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    second.set_overflow(PoolId(2), Some(number("8885550199"))).await.unwrap();
    assert!(second.remove_pool(PoolId(1)).await.unwrap());
    assert!(second.remove_pool(PoolId(2)).await.unwrap());
    assert!(!second.remove_pool(PoolId(2)).await.unwrap());
    let id = second.create_pool(settings("a"), None, key("KEY45678")).await.unwrap();
    assert_eq!(id, PoolId(3));
    let all = [range("8885550100", 10), range("8885550199", 1)];
    let placed = second.add_numbers(id, &all).await.unwrap();
    assert_eq!(placed, Placed { entered: 0, waiting: 11 });
    second.commit().await.unwrap();
}

async fn quarantine_ends_with_a_cooldown(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let bad = [range("8885550104", 1)];
    let mut second = change(&store, 1).await;
    second.take_out(&bad, Leave::Quarantine).await.unwrap();
    second.commit().await.unwrap();
    let found = store.number(bad[0].first()).await.unwrap().unwrap();
    assert_eq!((found.state, found.pool), (NumberState::Quarantined, Some(PoolId(1))));
    let mut third = change(&store, 2).await;
    third.end_quarantine(&bad, Millis(86_400_000)).await.unwrap();
    third.commit().await.unwrap();
    assert_eq!(store.due(at(86_401)).await.unwrap(), None);
    assert!(store.due(at(86_402)).await.unwrap().is_some());
    assert_eq!(rotation(&store, 1).await, [range("8885550100", 10)]);
    let result = change(&store, 90_000).await.end_quarantine(&bad, Millis::ZERO).await;
    assert_eq!(refusal(result).to_string(), "8885550104 is in the rotation of ring pool 1");
    let unknown = [range("9995550000", 1)];
    let result = change(&store, 90_000).await.take_out(&unknown, Leave::Retire).await;
    assert_eq!(refusal(result), Refusal::UnknownNumber(number("9995550000")));
}

async fn keys_rotate_with_an_overlap(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    second.rotate_key(PoolId(1), key("NEWKEY78")).await.unwrap();
    second.commit().await.unwrap();
    let pool = store.load_all().await.unwrap().pools.remove(0);
    assert_eq!((pool.key(), pool.next_key()), (&key("KEY45678"), Some(&key("NEWKEY78"))));
    let result = change(&store, 2).await.rotate_key(PoolId(1), key("THIRD789")).await;
    assert_eq!(refusal(result), Refusal::TwoKeys(PoolId(1)));
    change(&store, 2).await.replace_key(PoolId(1), key("THIRD789")).await.unwrap();
    let mut third = change(&store, 2).await;
    assert!(third.end_key_overlap(PoolId(1)).await.unwrap());
    assert!(!third.end_key_overlap(PoolId(1)).await.unwrap());
    third.commit().await.unwrap();
    let pool = store.load_all().await.unwrap().pools.remove(0);
    assert_eq!((pool.key(), pool.next_key()), (&key("NEWKEY78"), None));
    let mut same = change(&store, 3).await;
    same.rotate_key(PoolId(1), key("NEWKEY78")).await.unwrap();
    let fault = refusal(same.commit().await).to_string();
    assert_eq!(fault, "next_ring_pool_key: is the same as ring_pool_key");
}

async fn an_id_of_the_network_names_one_pool(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let result = change(&store, 1).await.create_pool(settings("a"), None, key("KEY45678")).await;
    assert_eq!(refusal(result), Refusal::IdTaken("a".into()));
    let result = change(&store, 1).await.update_pool(PoolId(2), settings("a")).await;
    assert_eq!(refusal(result), Refusal::IdTaken("a".into()));
    let mut other = settings("a");
    other.scope.network = "8".into();
    let mut second = change(&store, 1).await;
    second.create_pool(other.clone(), Some(PoolId(50)), key("KEY45678")).await.unwrap();
    second.commit().await.unwrap();
    assert_eq!(store.pools_of(&other.scope).await.unwrap().len(), 1);
    let found = store.pool_of_network("8", "a").await.unwrap().unwrap();
    assert_eq!(found.id, PoolId(50));
    let no_overflow = PoolSettings { allow_overflow: false, ..other };
    let result = change(&store, 2).await.update_pool(PoolId(50), no_overflow).await;
    assert_eq!(refusal(result), Refusal::OverflowIsFixed);
    let ids = store.pools(None, Some(PoolId(1)), 10).await.unwrap();
    assert_eq!(ids.iter().map(|pool| pool.id.0).collect::<Vec<_>>(), [2, 50]);
    assert_eq!(store.pools(Some("7"), None, 10).await.unwrap().len(), 2);
}

async fn every_change_is_in_the_audit_log(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let renamed = PoolSettings { name: "New".into(), ..settings("a") };
    let mut second = change(&store, 5).await;
    second.update_pool(PoolId(1), renamed).await.unwrap();
    second.commit().await.unwrap();
    let log = store.audit_log(None, 10).await.unwrap();
    let logged: Vec<_> =
        log.iter().map(|line| (line.version, line.action.as_str(), line.object.as_str())).collect();
    assert_eq!(
        logged,
        [
            (2, "update", "ring_pool 1"),
            (1, "add numbers", "ring_pool 1"),
            (1, "create", "ring_pool 2"),
            (1, "create", "ring_pool 1"),
        ]
    );
    let line = &log[0];
    assert_eq!((line.who.as_str(), line.at), ("ann", at(5)));
    assert_eq!(line.before.as_ref().unwrap()["name"], "Pool a");
    assert_eq!(line.after.as_ref().unwrap()["name"], "New");
    assert!(!format!("{log:?}").contains("KEY45678"), "a key is in the audit log");
    for (before, place) in [((2, None), 2), ((1, Some(2)), 1)] {
        assert_eq!(store.audit_log(Some(before), 1).await.unwrap()[0].place, place);
    }
}

async fn a_whole_list_moves_into_an_empty_directory(rig: Rig) {
    let store = open(&rig).await;
    let pools = demo_pools(1000, 100, LIFETIME).unwrap();
    let mut first = change(&store, 0).await;
    first.import(&pools, &Scope::of_file()).await.unwrap();
    first.commit().await.unwrap();
    let loaded = store.load_all().await.unwrap();
    assert_eq!((loaded.version, loaded.pools), (1, pools.clone()));
    let result = change(&store, 1).await.import(&pools, &Scope::of_file()).await;
    assert_eq!(refusal(result), Refusal::NotEmpty);
    let mut own = settings("new");
    own.scope = Scope::of_file();
    let mut second = change(&store, 2).await;
    let id = second.create_pool(own, None, key("KEY45678")).await.unwrap();
    assert_eq!(id, PoolId(1001));
}

async fn of_two_servers_one_imports_the_list(rig: Rig) {
    let store = open(&rig).await;
    let pools = demo_pools(10, 3, LIFETIME).unwrap();
    let import = async || {
        let store = Store::open(&rig.location).await.unwrap();
        store.import_once("a server", at(0), &pools, &Scope::of_file()).await.unwrap()
    };
    let (a, b, c) = tokio::join!(import(), import(), import());
    assert_eq!([a, b, c].iter().filter(|imported| **imported).count(), 1, "{a} {b} {c}");
    assert_eq!(store.load_all().await.unwrap().pools, pools);
    assert_eq!(store.version().await.unwrap(), 1, "the others have changed nothing");
}

async fn changes_wait_for_each_other(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let add = async |place: u32| {
        let mut one = store.change("ann", at(1)).await.unwrap();
        let first = format!("88855602{place:02}");
        one.add_numbers(PoolId(2), &[range(&first, 1)]).await.unwrap();
        one.commit().await.unwrap()
    };
    let (a, b, c, d) = tokio::join!(add(0), add(2), add(4), add(6));
    let mut versions = [a, b, c, d];
    versions.sort_unstable();
    assert_eq!(versions, [2, 3, 4, 5]);
    assert_eq!(rotation(&store, 2).await.len(), 4);
}

async fn a_database_of_a_newer_program_is_left_alone(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    store.close().await;
    // A database that is opened again needs no upgrade, and no data is missing.
    let store = open(&rig).await;
    assert_eq!(store.version().await.unwrap(), 1);
    store.close().await;
    sqlx::any::install_default_drivers();
    let url = match &rig.location {
        ringwell_store::Location::Url(url) => url.clone(),
        ringwell_store::Location::File(path) => {
            format!("sqlite://{}", path.display().to_string().replace('%', "%25"))
        }
    };
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE schema_version SET version = 99").execute(&pool).await.unwrap();
    let error = Store::open(&rig.location).await.unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 99, .. }), "{error}");
    sqlx::query("UPDATE schema_version SET version = -1").execute(&pool).await.unwrap();
    pool.close().await;
    let error = Store::open(&rig.location).await.unwrap_err();
    assert!(error.to_string().contains("schema_version has the version -1"), "{error}");
}

async fn a_pool_draws_from_the_inventory_and_gives_back(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    second.add_to_inventory(&[range("8885550200", 3)], None).await.unwrap();
    second.add_to_inventory(&[range("8885550300", 9)], Some("7")).await.unwrap();
    second.add_to_inventory(&[range("8885550400", 9)], Some("8")).await.unwrap();
    // If a pool has only one number, the number goes into rotation and does not become the overflow
    // number.
    assert_eq!(second.fill(PoolId(2), 1).await.unwrap(), 1);
    assert_eq!(second.fill(PoolId(2), 5).await.unwrap(), 4);
    let size = second.size(PoolId(2)).await.unwrap();
    assert_eq!(size, PoolSize { rotation: 4, overflow: 1, ..PoolSize::default() });
    // A number that only another network may use is not drawn.
    assert_eq!(second.fill(PoolId(2), 50).await.unwrap(), 7);
    assert_eq!(second.shrink(PoolId(2), 3).await.unwrap(), 9);
    assert_eq!(second.shrink(PoolId(2), 0).await.unwrap(), 1);
    assert_eq!(second.size(PoolId(2)).await.unwrap().total(), 2);
    // Visitors may still hold the numbers that pool 2 returned, so pool 1 cannot have them yet.
    assert_eq!(second.fill(PoolId(1), 50).await.unwrap(), 0);
    second.commit().await.unwrap();
    let pool = store.pool(PoolId(2)).await.unwrap().unwrap();
    assert_eq!(pool.overflow, Some(number("8885550301")));
    assert_eq!(rotation(&store, 2).await, [range("8885550200", 1)]);
}

async fn a_token_is_worth_its_role_until_it_is_revoked(rig: Rig) {
    let store = open(&rig).await;
    let mut first = change(&store, 1).await;
    let random = std::array::from_fn(|place| u8::try_from(place).unwrap());
    let made = first.create_token("importer", Role::Write, Some("7"), random).await.unwrap();
    first.commit().await.unwrap();
    let (grant, token) = made;
    assert_eq!((grant.role, grant.network.as_deref()), (Role::Write, Some("7")));
    for _ in 0..2 {
        let found = store.verify_token(token.reveal()).await.unwrap();
        assert_eq!(found.as_ref(), Some(&grant));
    }
    let mut wrong = token.reveal().to_owned();
    wrong.replace_range(30..31, "f");
    assert_ne!(wrong, token.reveal());
    assert_eq!(store.verify_token(&wrong).await.unwrap(), None);
    assert_eq!(store.verify_token("rw_").await.unwrap(), None);
    // PostgreSQL does not accept U+0000 in text values.
    let nul = format!("rw_{}\0_x", &grant.id[1..]);
    assert_eq!(store.verify_token(&nul).await.unwrap(), None);
    assert_eq!(store.tokens().await.unwrap(), std::slice::from_ref(&grant));
    let mut second = change(&store, 2).await;
    assert!(second.revoke_token(&grant.id).await.unwrap());
    assert!(!second.revoke_token(&grant.id).await.unwrap());
    second.commit().await.unwrap();
    assert_eq!(store.verify_token(token.reveal()).await.unwrap(), None);
}

async fn a_nul_is_the_fault_of_the_text_and_not_of_the_database(rig: Rig) {
    let store = open(&rig).await;
    let mut first = change(&store, 1).await;
    let made = first.create_token("a\0b", Role::Read, None, [7; 40]).await;
    match rig.location {
        // SQLite stores it.
        Location::File(_) => assert!(made.is_ok()),
        Location::Url(_) => {
            assert!(matches!(made, Err(StoreError::Refused(Refusal::Nul))), "{made:?}");
        }
    }
}
