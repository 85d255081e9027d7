//! A node that resumes with an old list of pools after a suspension.

use std::time::Duration;

use ringwell_core::NumberRange;
use ringwell_directory::RingPool;
use ringwell_driver::{Platform, standstill};
use ringwell_engine::Outcome;

use crate::arrivals::change_list;
use crate::pair::{LIFETIME_AND_MORE, Pair, allocate};
use crate::support::Virtual;

/// While node a is suspended, a number of its first pool moves to a pool of node b. Node a does not
/// get the new list.
#[test]
pub fn numbers_in_pools_of_another_nodes_list_are_not_handed_out() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let shard = a.shard(0);
        let before = a.node.directory();
        let from = before.pools_of(0).next().unwrap();
        let to = before.pools_of(2).next().unwrap();
        platform.spawn(standstill::run(shard.clone()));
        platform.sleep_until(platform.moment() + Duration::from_secs(2)).await;
        platform.0.advance(platform.moment() + Duration::from_mins(1));
        let (mut old, mut new) = (from.fields().clone(), to.fields().clone());
        let number = old.numbers[0].first();
        let rest = old.numbers[0].count() - 1;
        old.numbers = vec![NumberRange::new(old.numbers[0].last(), 1).unwrap()];
        assert!(rest > 0);
        new.numbers.push(NumberRange::new(number, 1).unwrap());
        let next = [old, new].map(|fields| RingPool::new(fields).unwrap());
        change_list(&pair, b, next.to_vec()).await;
        for round in 0..3 {
            platform.sleep_until(platform.moment() + LIFETIME_AND_MORE).await;
            let outcome = allocate(shard, from.id(), round);
            assert!(matches!(outcome, Outcome::Exhausted { .. }), "{round} {outcome:?}");
        }
    });
}
