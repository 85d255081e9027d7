//! A shard's part of a change of the list.

use std::rc::Rc;

use ringwell_core::{Millis, PoolId};
use ringwell_driver::change;
use ringwell_driver::message::Step;
use ringwell_journal::{Durability, Record};

use crate::support::{Virtual, shards};

#[test]
fn holds_are_recorded_where_their_pools_enter_even_if_they_are_over() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, Millis(60_000), Durability::Disk).remove(0);
    let now = shard.now();
    let pools = shard.directory().pools_of(0).map(|pool| pool.id()).collect::<Vec<_>>();
    let ends = [now.0 - 1, now.0, now.0 + 1, now.0 + 30_000].map(Millis);
    let holds: Vec<(PoolId, Millis)> = pools.iter().copied().zip(ends).collect();
    let (known, answers, put) = (Vec::new(), Vec::new(), Vec::new());
    let enter = Step::Enter { known, answers, holds: holds.clone(), put };
    platform.run(change::take(Rc::clone(&shard), enter));
    let group = shard.seal(Vec::new()).unwrap();
    let hold = |record| match record {
        Record::Hold { pool, until, .. } => Some((pool.unwrap(), until)),
        _ => None,
    };
    let recorded: Vec<_> = group.records().filter_map(|it| hold(it.unwrap().1)).collect();
    assert_eq!(recorded, holds);
}
