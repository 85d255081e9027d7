//! Tests a node that continues with an old list of pools after a suspension or a restart.

use std::time::Duration;

use ringwell_core::{NumberRange, PoolId};
use ringwell_directory::{Directory, RingPool};
use ringwell_driver::{Platform, suspension};
use ringwell_engine::Outcome;

use crate::arrivals::change_list;
use crate::pair::{LIFETIME_AND_MORE, Links, Pair, allocate};
use crate::support::Virtual;

/// Moves a number of node a's first pool to a pool of node b. Node a does not get the new list.
/// Returns the pool that lost its number.
async fn move_a_number(pair: &Pair) -> PoolId {
    let before = pair.a.node.directory();
    let from = before.pools_of(0).next().unwrap();
    let to = before.pools_of(2).next().unwrap();
    let (mut old, mut new) = (from.fields().clone(), to.fields().clone());
    let number = old.numbers[0].first();
    assert!(old.numbers[0].count() > 1);
    old.numbers = vec![NumberRange::new(old.numbers[0].last(), 1).unwrap()];
    new.numbers.push(NumberRange::new(number, 1).unwrap());
    let next = [old, new].map(|fields| RingPool::new(fields).unwrap());
    change_list(pair, &pair.b, next.to_vec()).await;
    from.id()
}

/// Checks that the pool hands out nothing for the duration of several holds.
async fn hands_out_nothing(pair: &Pair, pool: PoolId) {
    for round in 0..3 {
        pair.platform.sleep_until(pair.platform.moment() + LIFETIME_AND_MORE).await;
        let outcome = allocate(pair.a.shard(0), pool, round);
        assert!(matches!(outcome, Outcome::Exhausted { .. }), "{round} {outcome:?}");
    }
}

/// Suspends node a while one of its numbers moves. Once node a has detected that its list is
/// outdated, the links between the nodes become `links`. Checks that this does not end the hold.
fn resumes_with_an_old_list(links: Links) {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        platform.spawn(suspension::run(pair.a.shard(0).clone()));
        platform.sleep_until(platform.moment() + Duration::from_secs(2)).await;
        platform.0.advance(platform.moment() + Duration::from_mins(1));
        let pool = move_a_number(&pair).await;
        platform.sleep_until(platform.moment() + Duration::from_secs(8)).await;
        pair.a_to_b.set(links);
        hands_out_nothing(&pair, pool).await;
        pair.a_to_b.set(Links::Up);
        hands_out_nothing(&pair, pool).await;
    });
}

/// Node a's list goes back to an older state, in which a number is in a pool of node a. Node b
/// cannot read the older list, and continues to hand the number out. Node a must ask whether the
/// other nodes use the older list.
#[test]
pub fn a_node_whose_list_goes_back_asks_whether_the_others_have_followed() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        platform.spawn(suspension::run(pair.a.shard(0).clone()));
        let older = pair.a.node.directory();
        let pool = move_a_number(&pair).await;
        let newer = pair.b.node.directory();
        let now = |list: &Directory| list.pools_of(0).map(|it| (**it).clone()).collect();
        change_list(&pair, &pair.a, now(&newer)).await;
        platform.sleep_until(platform.moment() + LIFETIME_AND_MORE).await;
        change_list(&pair, &pair.a, now(&older)).await;
        hands_out_nothing(&pair, pool).await;
    });
}

#[test]
pub fn numbers_in_pools_of_another_nodes_list_are_not_handed_out() {
    resumes_with_an_old_list(Links::Up);
}

#[test]
pub fn a_node_that_falls_silent_has_not_corrected_its_list() {
    for links in [Links::Gone, Links::Silent] {
        resumes_with_an_old_list(links);
    }
}

#[test]
pub fn a_node_that_starts_with_an_old_list_does_not_hand_out_numbers_of_other_nodes() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let pool = move_a_number(&pair).await;
        platform.spawn(suspension::run(pair.a.shard(0).clone()));
        platform.sleep_until(platform.moment() + Duration::from_millis(50)).await;
        let outcome = allocate(pair.a.shard(0), pool, 9);
        assert!(matches!(outcome, Outcome::Exhausted { .. }), "{outcome:?}");
        hands_out_nothing(&pair, pool).await;
    });
}
