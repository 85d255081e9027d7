//! Rows of a batch whose pools belong to several shards and move between them.

use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{BODY_BYTES_MAX, DEADLINE_MAX, ROWS_MAX, demo_pools};
use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::batch::{self, Answered};
use ringwell_driver::message::{Message, PeerRow, PeerRows};
use ringwell_driver::node::Begun;
use ringwell_driver::stats::Kind;
use ringwell_driver::{Path, Platform, moves, rows};
use ringwell_engine::{ANSWER_DELAY_MAX, BATCH_BYTES_MAX, Outcome};
use ringwell_journal::RECORD_OVERHEAD_MAX;
use ringwell_wire::{RequestError, Span};
use tokio::sync::oneshot;

use crate::pair::{Links, Pair, ROWS_TAKE, Side};
use crate::support::{Virtual, body};

const POOLS: usize = 40;

/// Asks the shard `shard` for a number from each pool. Returns each number with the reported
/// allocation time.
async fn ask(side: &Side, shard: u16) -> Vec<Option<(PromoNumber, Millis)>> {
    let shard = side.shard(shard);
    let body = body(shard, POOLS);
    let terms = shard.platform.terms(500);
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &shard.node.wire_limits);
    let render = |answered: &Answered<'_>| -> Vec<_> {
        (0..POOLS).map(|row| answered.given_number(row)).collect()
    };
    let answer: Result<_, RequestError> =
        batch::answer(shard, Kind::Bulk, &terms, read, render).await;
    answer.unwrap()
}

/// Moves all buckets from one of the second node's shards to the other, without informing the first
/// node.
async fn move_silently(pair: &Pair, from: u16, to: u16) {
    let b = &pair.b;
    pair.b_to_a.set(Links::Gone);
    let buckets = b.node.directory().placement().buckets_of(from).collect();
    moves::give(&pair.platform, &b.node, &b.peers, buckets, to).await.unwrap();
}

/// The engine does not depend on the configuration, so it cannot refer to the bounds of settings.
#[test]
fn the_engine_has_room_and_time_for_the_longest_batch_that_can_be_configured() {
    // A row may need two records.
    let overhead = ROWS_MAX * 2 * RECORD_OVERHEAD_MAX as u64;
    assert!(BODY_BYTES_MAX + overhead <= BATCH_BYTES_MAX as u64);
    assert!(DEADLINE_MAX + Duration::from_secs(1) <= Duration::from_millis(ANSWER_DELAY_MAX.0));
}

#[test]
fn each_number_comes_with_the_time_of_its_owner() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let begun = pair.a.shard(0).now();
        let given = ask(&pair.a, 0).await;
        let there = begun + Millis(u64::try_from(ROWS_TAKE.as_millis()).unwrap());
        let pools = pair.a.node.directory();
        for (pool, given) in pools.pools().zip(given) {
            let (number, at) = given.unwrap();
            assert_eq!(pools.pool_by_number(number), Some(pool.id()));
            let shard = pools.placement().shard(pool.id());
            let (side, wanted) = if shard < 2 { (&pair.a, begun) } else { (&pair.b, there) };
            assert_eq!(at, wanted, "shard {shard}");
            let slot = side.shard(shard).engine.borrow().shard().newest(number).unwrap();
            assert_eq!(slot.allocated_at, at);
        }
    });
}

/// Repeating a row adds no record as long as enough of the number's lockout is left.
#[test]
fn rows_that_are_repeated_for_another_shard_are_answered_at_once() {
    let platform = Virtual::default();
    let pools = demo_pools(40, 300, Millis(600_000)).unwrap();
    let pair = Pair::with(&platform, pools, |_| Begun::default());
    platform.run(async {
        let (at, peers) = (&platform, &pair.b.peers);
        let directory = pair.b.node.directory();
        let id = directory.pools_of(2).next().unwrap().id();
        let pool = directory.lookup(id).unwrap().index();
        let ask = async || {
            let (reply, answer) = oneshot::channel();
            let params = [Span::new(0, 0); 2];
            let rows = vec![PeerRow { pool, id, row: 0, params, visitor: None }];
            let (text, retry) = (Bytes::new(), Some([5; 16]));
            let deadline = at.moment() + Duration::from_secs(1);
            let rows = PeerRows { text, rows, retry, deadline, traced: None, reply };
            assert!(peers.send(2, Message::Rows(rows)));
            at.within(Duration::from_millis(10), answer).await.unwrap().unwrap().outcomes
        };
        let first = ask().await;
        assert!(matches!(first[..], [Outcome::Kept { .. }]), "{first:?}");
        assert_eq!(ask().await, first);
    });
}

#[test]
fn rows_of_pools_that_have_moved_are_asked_again_but_owners_only_now_and_then() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let owners = || pair.all_sent(Path::Owners).len();
        let count = |given: Vec<Option<_>>| given.into_iter().flatten().count();
        let moved = b.node.directory().pools_of(2).count();
        assert_eq!((count(ask(a, 0).await), owners()), (POOLS, 0));
        move_silently(&pair, 2, 3).await;
        assert_eq!((count(ask(a, 0).await), owners()), (POOLS, 1));
        assert_eq!(a.node.directory().pools_of(2).count(), 0);
        assert_eq!((count(ask(a, 0).await), owners()), (POOLS, 1));
        // The first node does not request the owners after every refused batch. A batch may be
        // refused merely because the buckets have not arrived at the other node yet.
        move_silently(&pair, 3, 2).await;
        let all = b.node.directory().pools_of(2).count();
        assert!(all > moved);
        assert_eq!((count(ask(a, 0).await), owners()), (POOLS - all, 1));
        platform.sleep_until(platform.moment() + Duration::from_secs(2)).await;
        assert_eq!((count(ask(a, 0).await), owners()), (POOLS, 2));
    });
}

#[test]
fn a_retry_key_has_up_to_256_bytes() {
    for (bytes, is_accepted) in [(1, true), (256, true), (257, false)] {
        let key = vec![b'k'; bytes];
        let digest = rows::batch_digest(&key, b"body");
        assert_eq!(digest.is_ok_and(|digest| digest.is_some()), is_accepted, "{bytes}");
        assert_eq!(rows::single_digest(&key, "path", "query").is_ok(), is_accepted, "{bytes}");
    }
}
