//! Overflow numbers that other nodes' visitors may hold when a node starts.

use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::{BucketHold, BucketHolds, Directory, PoolFields, RingPool, bucket};
use ringwell_driver::arrivals::LIST_SPREAD;
use ringwell_driver::node::Begun;
use ringwell_driver::store::ServedOverflow;
use ringwell_driver::{Platform as _, partial_change, witness};
use ringwell_engine::lockout;
use ringwell_os::OsFiles;

use crate::arrivals::{change_list, longest, passed, passed_number, two_pools};
use crate::open::{self, Data, LIFETIME, directory, reading};
use crate::pair::{Links, Pair, know};
use crate::support::Virtual;

/// Returns the list with another overflow number for the first pool.
fn with_other_overflow(list: &Directory) -> (PromoNumber, Directory) {
    let fields = list.pool(PoolId(1)).unwrap().fields().clone();
    let number = PromoNumber::parse("8885550199").unwrap();
    let pool = RingPool::new(PoolFields { overflow: Some(number), ..fields }).unwrap();
    (number, list.change(vec![pool], &[]).unwrap())
}

/// The node is restarted while a visitor may hold the number, and again once no visitor can.
#[test]
pub(crate) fn an_overflow_number_that_was_not_served_as_one_is_in_doubt_also_after_a_restart() {
    let data = Data::new(Durability::Disk);
    let first = directory(1, LIFETIME);
    let (number, other) = with_other_overflow(&first);
    let doubted = |list: &Directory, since: u64| {
        let own: &[u16] = &[0];
        let begun = data.start_as(list, reading(Millis(since)), Some((own, 1))).unwrap();
        let now = open::now(&begun, Millis(since));
        let left = |(number, until): &(PromoNumber, Millis)| (*number, until.since(now).0);
        begun.facts.doubted_overflow.iter().map(left).collect::<Vec<_>>()
    };
    assert_eq!(doubted(&first, 0), [], "nothing was served before");
    assert_eq!(doubted(&first, 1_000), []);
    let whole = lockout(LIFETIME).0 + LIST_SPREAD.0;
    assert_eq!(doubted(&other, 2_000), [(number, whole)]);
    assert_eq!(doubted(&other, 12_000), [(number, whole - 10_000)]);
    assert_eq!(doubted(&other, 2_000 + whole), []);
    assert_eq!(doubted(&other, 3_000 + whole), []);
}

/// The state of node b when node a starts with a list that makes a number of node b an overflow
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    /// Node b still has the number in a pool.
    HasIt,
    /// The number is locked for another seven seconds, and no longer in a pool.
    Locked,
    /// The number is free, and no longer in a pool.
    Free,
    /// Like `Free`, but lockouts may be missing from node a's journals.
    FreeButLost,
    /// Node b does not answer.
    Silent,
}

/// Starts node a. Returns for how many milliseconds after that the number is not an overflow
/// number. The list that node a served last had the number as an overflow number unless
/// `is_doubted`.
fn withheld_for(other: Other, is_doubted: bool) -> u64 {
    let platform = Virtual::default();
    let plain = Pair::new(&platform);
    let (pool, from) = two_pools(&plain);
    let before = plain.a.node.directory();
    let number = passed_number(&before, from);
    let fields = before.pool(pool).unwrap().fields().clone();
    let changed = PoolFields { overflow: Some(number), ..fields };
    let smaller = passed(&before, from, pool).remove(0);
    let pools = [smaller, RingPool::new(changed).unwrap()];
    let later = plain.a.shard(0).now() + longest();
    let doubted_overflow = if is_doubted { vec![(number, later)] } else { Vec::new() };
    let mut holds = BucketHolds::default();
    if other == Other::FreeButLost {
        let since = plain.a.shard(0).now();
        holds.add(bucket(pool), BucketHold { since, until: Millis::ZERO });
    }
    let begun = |_: &Directory| Begun {
        withholds_others: true,
        doubted_overflow: doubted_overflow.clone(),
        holds: holds.clone(),
        ..Begun::default()
    };
    let all = before.change(pools.into(), &[]).unwrap();
    let list = (0..4).flat_map(|shard| all.pools_of(shard)).map(|pool| (**pool).clone());
    let pair = Pair::with(&platform, list.collect(), begun);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        match other {
            Other::HasIt => {
                let former = [before.pool(pool), before.pool(from)];
                change_list(&pair, b, former.map(|it| it.unwrap().clone()).into()).await;
            }
            Other::Locked => know(b.shard(2), number, b.shard(2).now() + Millis(7_000)),
            Other::Free | Other::FreeButLost => {}
            Other::Silent => pair.a_to_b.set(Links::Gone),
        }
        witness::begin(&platform, &a.node, &a.peers).await;
        let start = platform.moment();
        let overflow = || a.node.directory().pool(pool).unwrap().overflow();
        if other == Other::HasIt {
            // As long as node b has the number, node a does not get it.
            platform.sleep_until(start + Duration::from_millis(longest().0)).await;
            partial_change::resume(&platform, &a.node, &a.peers).await.unwrap();
            assert_eq!(overflow(), None);
            change_list(&pair, b, vec![all.pool(from).unwrap().clone()]).await;
        }
        while overflow().is_none() {
            platform.sleep_until(platform.moment() + Duration::from_millis(1)).await;
            partial_change::resume(&platform, &a.node, &a.peers).await.unwrap();
        }
        assert_eq!(overflow(), Some(number));
        u64::try_from(platform.moment().since(start).as_millis()).unwrap()
    })
}

/// If the list has not changed, only an answer shows that a visitor may hold the number.
#[test]
pub(crate) fn a_starting_node_withholds_overflow_numbers_that_other_nodes_have() {
    for is_doubted in [true, false] {
        assert_eq!(withheld_for(Other::HasIt, is_doubted), 2 * longest().0);
        assert_eq!(withheld_for(Other::Locked, is_doubted), 7_001);
        assert_eq!(withheld_for(Other::Free, is_doubted), 0);
    }
    // Such a node waits before it serves, because another node may have a newer cluster file.
    assert_eq!(withheld_for(Other::Silent, true), longest().0 - 2_500);
    assert_eq!(withheld_for(Other::Silent, false), 0);
    assert_eq!(withheld_for(Other::FreeButLost, true), longest().0);
    assert_eq!(withheld_for(Other::FreeButLost, false), 0);
}

/// The list has gone back to a state in which the number is an overflow number of node a. In the
/// meantime, node b handed the number out, and the number then left node b's pools.
#[test]
pub(crate) fn a_running_node_asks_the_others_about_new_overflow_numbers() {
    let withheld_for = |is_locked: bool, links: Links| {
        let platform = Virtual::default();
        let begun = |_: &Directory| Begun { withholds_others: true, ..Begun::default() };
        let pair = Pair::with(&platform, crate::pair::pools(), begun);
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            let (pool, _) = two_pools(&pair);
            let number = PromoNumber::parse("8885550199").unwrap();
            if is_locked {
                know(b.shard(2), number, b.shard(2).now() + Millis(7_000));
            }
            if is_locked && links == Links::Up {
                // The node that passed the number on still has a record of a lockout, too.
                know(a.shard(0), number, a.shard(0).now() + Millis(3_000));
            }
            pair.a_to_b.set(links);
            let fields = a.node.directory().pool(pool).unwrap().fields().clone();
            let changed = RingPool::new(PoolFields { overflow: Some(number), ..fields }).unwrap();
            let make = move |list: &Directory| list.change(vec![changed], &[]);
            let start = platform.moment();
            partial_change::apply(&platform, &a.node, &a.peers, make).await.unwrap();
            while a.node.directory().pool(pool).unwrap().overflow() != Some(number) {
                platform.sleep_until(platform.moment() + Duration::from_millis(1)).await;
                partial_change::resume(&platform, &a.node, &a.peers).await.unwrap();
            }
            u64::try_from(platform.moment().since(start).as_millis()).unwrap()
        })
    };
    assert_eq!(withheld_for(true, Links::Up), 7_001);
    assert_eq!(withheld_for(false, Links::Up), 0);
    // A node that is down does not hold up changes of the list.
    assert_eq!(withheld_for(true, Links::Gone), 0);
}

/// Node b was stopped when node a started. Node a must ask it once it answers.
#[test]
fn a_node_that_answers_later_is_asked_too() {
    let platform = Virtual::default();
    let begun = |_: &Directory| Begun { withholds_others: true, ..Begun::default() };
    let pair = Pair::with(&platform, crate::pair::pools(), begun);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let (pool, _) = two_pools(&pair);
        let number = a.node.directory().pool(pool).unwrap().overflow().unwrap();
        know(b.shard(2), number, b.shard(2).now() + Millis(20_000));
        pair.a_to_b.set(Links::Gone);
        let away = witness::begin(&platform, &a.node, &a.peers).await;
        let overflow = || a.node.directory().pool(pool).unwrap().overflow();
        assert_eq!(overflow(), Some(number));
        platform.spawn(witness::go_on(platform.clone(), a.node.clone(), a.peers.clone(), away));
        pair.a_to_b.set(Links::Up);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert_eq!(overflow(), None);
    });
}

#[test]
fn the_record_of_overflow_numbers_follows_the_list() {
    let platform = Virtual::default();
    let begun = |_: &Directory| Begun { withholds_others: true, ..Begun::default() };
    let pair = Pair::with(&platform, crate::pair::pools(), begun);
    platform.run(async {
        let a = &pair.a;
        let (pool, from) = two_pools(&pair);
        let before = a.node.directory();
        let old = before.pool(pool).unwrap().overflow().unwrap();
        let new = passed_number(&before, from);
        let doubted = |number| {
            let read = ServedOverflow::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
            read.doubted_until(number, Millis::ZERO)
        };
        let fields = before.pool(pool).unwrap().fields().clone();
        let changed = PoolFields { overflow: Some(new), ..fields };
        let pools = vec![passed(&before, from, pool).remove(0), RingPool::new(changed).unwrap()];
        change_list(&pair, &pair.b, vec![pools[0].clone()]).await;
        let at = a.shard(0).now();
        let make = move |list: &Directory| list.change(pools, &[]);
        partial_change::apply(&platform, &a.node, &a.peers, make).await.unwrap();
        assert_eq!(doubted(old), Some(Millis::ZERO));
        assert!(doubted(new).unwrap() >= at + longest());
        let other = before.pool(from).unwrap().overflow().unwrap();
        assert_eq!(doubted(other), None);
        platform.sleep_until(platform.moment() + Duration::from_millis(longest().0 + 1)).await;
        partial_change::resume(&platform, &a.node, &a.peers).await.unwrap();
        assert_eq!(doubted(new), None);
    });
}
