//! Tests the overflow numbers of pools on SQLite and on PostgreSQL.

use ringwell_core::{Millis, PoolId};
use ringwell_store::{NumberState, Placed, PoolSettings, Scope, Store};

use super::rig::Rig;
use super::{
    LIFETIME, at, change, key, number, open, range, refusal, rotation, settings, two_pools,
};

on_both_databases! {
    an_overflow_number_waits_like_any_other
    a_promised_overflow_number_is_not_one_of_the_rotation
    the_last_change_of_an_overflow_number_counts
    pools_of_a_network_share_an_overflow_number
    a_shared_overflow_number_waits_for_every_pool_that_showed_it
}

async fn an_overflow_number_waits_like_any_other(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    assert!(second.set_overflow(PoolId(1), Some(number("8885550199"))).await.unwrap());
    // The number comes from the pool's own rotation, so a visitor may hold it.
    assert!(!second.set_overflow(PoolId(1), Some(number("8885550100"))).await.unwrap());
    second.commit().await.unwrap();
    let pool = store.pool(PoolId(1)).await.unwrap().unwrap();
    assert_eq!(pool.overflow, Some(number("8885550199")));
    let ready = at(1) + LIFETIME + Store::MARGIN;
    store.due(ready).await.unwrap();
    let pool = store.pool(PoolId(1)).await.unwrap().unwrap();
    assert_eq!(pool.overflow, Some(number("8885550100")));
    // The previous overflow number is in the inventory, but many visitors may still hold it.
    let before = store.number(number("8885550199")).await.unwrap().unwrap();
    assert_eq!(before.state, NumberState::Free);
    assert_eq!(before.ready, Some(ready + LIFETIME + Store::MARGIN));
}

async fn a_promised_overflow_number_is_not_one_of_the_rotation(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let promised = number("8885550100");
    let mut second = change(&store, 1).await;
    assert!(!second.set_overflow(PoolId(1), Some(promised)).await.unwrap());
    // Setting the same number again does not count as a change.
    let modifications = second.modifications();
    assert!(!second.set_overflow(PoolId(1), Some(promised)).await.unwrap());
    assert_eq!(second.modifications(), modifications);
    second.commit().await.unwrap();
    let result = change(&store, 2).await.add_numbers(PoolId(1), &[range("8885550099", 3)]).await;
    let holder = "promised to ring pool 1 as its overflow number";
    assert_eq!(refusal(result).to_string(), format!("8885550100 is {holder}"));
    store.due(at(1) + LIFETIME + Store::MARGIN).await.unwrap();
    assert_eq!(store.pool(PoolId(1)).await.unwrap().unwrap().overflow, Some(promised));
    assert_eq!(rotation(&store, 1).await, [range("8885550101", 9)]);
}

async fn the_last_change_of_an_overflow_number_counts(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let ready = at(5) + LIFETIME + Store::MARGIN;
    for (last, is_there) in [(None, true), (Some(number("8885550199")), true)] {
        let mut second = change(&store, 1).await;
        assert!(!second.set_overflow(PoolId(1), Some(number("8885550100"))).await.unwrap());
        second.commit().await.unwrap();
        let mut third = change(&store, 2).await;
        assert_eq!(third.set_overflow(PoolId(1), last).await.unwrap(), is_there);
        third.commit().await.unwrap();
        store.due(ready).await.unwrap();
        assert_eq!(store.pool(PoolId(1)).await.unwrap().unwrap().overflow, last);
        let released = store.number(number("8885550100")).await.unwrap().unwrap();
        assert_eq!((released.state, released.pool), (NumberState::Free, None));
        // The pool keeps the lockouts of a number that has left it, so the number may return at
        // once.
        let mut back = change(&store, 3).await;
        let placed = back.add_numbers(PoolId(1), &[range("8885550100", 1)]).await.unwrap();
        assert_eq!(placed, Placed { entered: 1, waiting: 0 });
        back.commit().await.unwrap();
    }
}

/// Pools in a configuration file may share an overflow number, so a database must accept this too.
async fn pools_of_a_network_share_an_overflow_number(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let shared = number("8885550199");
    let mut second = change(&store, 1).await;
    for pool in [1, 2] {
        assert!(second.set_overflow(PoolId(pool), Some(shared)).await.unwrap());
    }
    let scope = Scope { network: "8".into(), ..settings("c").scope };
    let other = PoolSettings { scope, ..settings("c") };
    let other = second.create_pool(other, None, key("KEY45678")).await.unwrap();
    let result = second.set_overflow(other, Some(shared)).await;
    assert_eq!(refusal(result).to_string(), "8885550199 is an overflow number");
    drop(second);
    let mut third = change(&store, 1).await;
    for pool in [1, 2] {
        third.set_overflow(PoolId(pool), Some(shared)).await.unwrap();
    }
    third.commit().await.unwrap();
    for (pool, state) in [(1, NumberState::Overflow), (2, NumberState::Free)] {
        let mut change = change(&store, 2).await;
        change.set_overflow(PoolId(pool), None).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(store.number(shared).await.unwrap().unwrap().state, state);
    }
}

async fn a_shared_overflow_number_waits_for_every_pool_that_showed_it(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let short = PoolSettings { lifetime: Millis(2_000), ..settings("b") };
    let shared = number("8885550199");
    let node = ["a", "b"];
    let mut first = change(&store, 1).await;
    first.update_pool(PoolId(2), short).await.unwrap();
    for pool in [1, 2] {
        assert!(first.set_overflow(PoolId(pool), Some(shared)).await.unwrap());
    }
    let version = first.commit().await.unwrap();
    for name in node {
        store.confirm(name, version, at(1)).await.unwrap();
    }
    // In the first round, the nodes confirm each change before the next one. In the second round,
    // they confirm both changes at once. In the third round, the pool with the longer lifetime is
    // removed.
    for (begin, pause) in [(10_000, true), (20_000, false), (30_000, true)] {
        let mut back = change(&store, begin).await;
        for pool in [1, 2] {
            assert!(back.set_overflow(PoolId(pool), Some(shared)).await.unwrap());
        }
        back.commit().await.unwrap();
        for (pool, seconds) in [(1, begin + 1), (2, begin + 2)] {
            let mut change = change(&store, seconds).await;
            if pool == 1 && begin == 30_000 {
                change.remove_pool(PoolId(pool)).await.unwrap();
            } else {
                change.set_overflow(PoolId(pool), None).await.unwrap();
            }
            let version = change.commit().await.unwrap();
            if pause || pool == 2 {
                for name in node {
                    store.confirm(name, version, at(seconds)).await.unwrap();
                }
            }
        }
        let released = store.number(shared).await.unwrap().unwrap();
        let last_shown = at(if pause { begin + 1 } else { begin + 2 });
        assert_eq!(released.state, NumberState::Free);
        assert_eq!(released.ready, Some(last_shown + LIFETIME + Store::MARGIN), "{begin}");
    }
}
