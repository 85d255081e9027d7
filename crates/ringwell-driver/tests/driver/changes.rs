//! A shard's part of a change to the list of pools.

use std::rc::Rc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId};
use ringwell_directory::{BucketHold, BucketHolds, bucket};
use ringwell_driver::message::Step;
use ringwell_driver::open::hold_buckets;
use ringwell_driver::{Path, Platform as _, change, moves};
use ringwell_journal::Record;

use crate::arrivals::{LONGEST, change_list, left, passed, passed_number, two_pools};
use crate::pair::{Links, Pair, know};
use crate::support::{Virtual, shards};

/// The change waits until the holds are stored, which does not happen here.
#[test]
pub fn holds_are_recorded_where_their_pools_enter_even_if_they_are_over() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, Millis(60_000), Durability::Disk).remove(0);
    let now = shard.now();
    let pools = shard.directory().pools_of(0).map(|pool| pool.id()).collect::<Vec<_>>();
    let ends = [now.0 - 1, now.0, now.0 + 1, now.0 + 30_000].map(Millis);
    let holds: Vec<(PoolId, Millis)> = pools.iter().copied().zip(ends).collect();
    let (known, answers, put) = (Vec::new(), Vec::new(), Vec::new());
    let enter = Step::Enter { known, answers, holds: holds.clone(), put };
    platform.run(async {
        let taken = change::take(Rc::clone(&shard), enter);
        assert!(platform.within(Duration::from_millis(1), taken).await.is_none());
    });
    let group = shard.seal(Vec::new()).unwrap();
    let hold = |record| match record {
        Record::Hold { pool, until, .. } => Some((pool.unwrap(), until)),
        _ => None,
    };
    let recorded: Vec<_> = group.records().filter_map(|it| hold(it.unwrap().1)).collect();
    assert_eq!(recorded, holds);
}

/// The number is in a pool that is in transit from node b. No shard hands the number out now, but
/// the pool's next owner may still have the old list.
#[test]
pub(crate) fn a_number_of_a_pool_in_transit_is_not_free_for_another_pool() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let (to, from) = two_pools(&pair);
        let before = a.node.directory();
        pair.b_to_a.set(Links::Without(Path::Take));
        let of = [bucket(from)].into();
        moves::give(&platform, &b.node, &b.peers, of, 1).await.unwrap_err();
        change_list(&pair, a, passed(&before, from, to)).await;
        assert_eq!(left(a, 0, to), Some(LONGEST.0));
    });
}

/// The bucket was on another node, so another visitor may have got the number, no matter how long
/// its lockout here lasts.
#[test]
pub(crate) fn a_lockout_that_outlasts_the_hold_of_its_bucket_is_in_doubt() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let shard = pair.a.shard(0);
        let (pool, _) = two_pools(&pair);
        let directory = shard.directory();
        let number = passed_number(&directory, pool);
        know(shard, number, shard.now() + Millis(400_000));
        let mut holds = BucketHolds::default();
        let since = shard.now() + Millis(1);
        holds.add(bucket(pool), BucketHold { since, until: Millis::ZERO });
        let mut engine = shard.engine.borrow_mut();
        assert!(!engine.is_doubted(number));
        hold_buckets(&mut engine, 0, &directory, &holds, since);
        assert!(engine.is_doubted(number));
    });
}
