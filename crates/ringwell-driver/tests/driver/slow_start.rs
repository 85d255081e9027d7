//! A startup that takes long, during which numbers may have moved to pools of other nodes.

use std::time::Duration;

use ringwell_driver::node::Begun;
use ringwell_driver::{Platform, standstill};
use ringwell_engine::{Outcome, Refusal};

use crate::pair::{self, Pair, allocate};
use crate::support::Virtual;

#[test]
pub fn a_shard_whose_start_took_long_waits_for_the_newest_list() {
    for (took, is_confirmed) in [(4, false), (6, true)] {
        let platform = Virtual::default();
        let listed_at = Some(platform.boot_time());
        platform.0.advance(platform.moment() + Duration::from_secs(took));
        let begun = |_: &_| Begun { listed_at, ..Begun::default() };
        let pair = Pair::with(&platform, pair::pools(), begun);
        platform.run(async {
            let shard = pair.a.shard(0);
            let pool = pair.a.node.directory().pools_of(0).next().unwrap().id();
            platform.spawn(standstill::run(shard.clone()));
            platform.turn().await;
            let is_late = |outcome| matches!(outcome, Outcome::Refused(Refusal::Late));
            assert_eq!(is_late(allocate(shard, pool, 1)), is_confirmed);
            // No task reloads the list of pools here, so the shard waits until its time limit.
            platform.sleep_until(platform.moment() + Duration::from_millis(5_200)).await;
            assert!(matches!(allocate(shard, pool, 2), Outcome::Kept { .. }));
        });
    }
}
