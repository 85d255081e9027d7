//! Tests the ids and keys of pools on SQLite and on PostgreSQL.

use ringwell_core::PoolId;
use ringwell_store::{PoolSettings, Refusal, Scope};

use super::rig::Rig;
use super::{change, key, open, refusal, settings, two_pools};

on_both_databases! {
    an_id_of_someone_elses_choice_leaves_ids_for_others
    an_id_is_as_long_as_an_index_permits
    a_second_key_that_a_pool_has_already_is_no_change
    a_name_has_no_spaces_around_it
}

async fn an_id_of_someone_elses_choice_leaves_ids_for_others(rig: Rig) {
    let store = open(&rig).await;
    let last = u64::try_from(i64::MAX).unwrap();
    let mut first = change(&store, 0).await;
    for (name, id) in [("a", 7), ("b", last), ("c", last - 1), ("d", 1 << 53)] {
        first.create_pool(settings(name), Some(PoolId(id)), key("KEY45678")).await.unwrap();
    }
    for (name, id) in [("e", 8), ("f", 9)] {
        let given = first.create_pool(settings(name), None, key("KEY45678")).await.unwrap();
        assert_eq!(given, PoolId(id));
    }
    let too_far = first.create_pool(settings("g"), Some(PoolId(last + 1)), key("KEY45678")).await;
    let message = format!("a pool's id must be at most {last}, but is {}", last + 1);
    assert_eq!(refusal(too_far), Refusal::Unfit(message));
}

async fn an_id_is_as_long_as_an_index_permits(rig: Rig) {
    let store = open(&rig).await;
    // PostgreSQL compresses long texts before it indexes them, but these random texts cannot be
    // compressed.
    let any = |length: usize, first: u32| {
        let mut state = first;
        let next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from(state >> 24).unwrap() % 90)
        };
        std::iter::repeat_with(next).take(length).collect::<String>()
    };
    let of = |length: usize| PoolSettings {
        scope: Scope {
            network: any(length, 1),
            advertiser: any(length, 2),
            campaign: any(length, 3),
        },
        id_from_network: any(length, 4),
        ..settings("a")
    };
    let mut first = change(&store, 0).await;
    first.create_pool(of(512), None, key("KEY45678")).await.unwrap();
    first.set_ceiling(&any(512, 5), Some(1)).await.unwrap();
    first.commit().await.unwrap();
    let long = Refusal::LongId(512);
    for too_long in [
        PoolSettings { id_from_network: any(513, 4), ..settings("b") },
        PoolSettings { scope: of(5000).scope, ..settings("b") },
    ] {
        let result = change(&store, 1).await.create_pool(too_long, None, key("KEY45678")).await;
        assert_eq!(refusal(result), long);
    }
    assert_eq!(refusal(change(&store, 1).await.set_ceiling(&any(5000, 5), Some(1)).await), long);
}

async fn a_second_key_that_a_pool_has_already_is_no_change(rig: Rig) {
    let store = open(&rig).await;
    two_pools(&store).await;
    let mut second = change(&store, 1).await;
    second.replace_key(PoolId(1), key("KEY99999")).await.unwrap();
    assert_eq!(second.commit().await.unwrap(), 2);
    let mut third = change(&store, 2).await;
    third.replace_key(PoolId(1), key("KEY99999")).await.unwrap();
    third.rotate_key(PoolId(1), key("KEY99999")).await.unwrap();
    assert_eq!(third.commit().await.unwrap(), 2);
}

/// A list of pools cannot contain such spaces, so an export and import would change the name.
async fn a_name_has_no_spaces_around_it(rig: Rig) {
    let store = open(&rig).await;
    let named = |name: &str| PoolSettings { name: name.to_owned(), ..settings("a") };
    let mut first = change(&store, 0).await;
    let id = first.create_pool(named("  Spring sale\t"), None, key("KEY45678")).await.unwrap();
    assert_eq!(first.pool(id).await.unwrap().settings.name, "Spring sale");
    first.update_pool(id, named("\u{3000}Summer\n")).await.unwrap();
    assert_eq!(first.pool(id).await.unwrap().settings.name, "Summer");
}
