//! Tests numbers that enter one node's pools although another node may have handed them out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::demo_pools;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{BucketHolds, Directory, Owners, PoolFields, RingPool, bucket};
use ringwell_driver::arrivals::LIST_SPREAD;
use ringwell_driver::lists::{Lists, lists};
use ringwell_driver::node::{Begun, Phase};
use ringwell_driver::store::{ServedMap, read_lifetimes};
use ringwell_driver::{Path, Platform, change, moves, suspension, witness};
use ringwell_engine::{Outcome, Refusal, lockout};
use ringwell_os::OsFiles;

use crate::pair::{self, LIFETIME, Links, Pair, Side, allocate, know};
use crate::support::Virtual;

/// The length of the hold if another node may just have handed out a number.
pub(crate) fn longest() -> Millis {
    lockout(LIFETIME) + LIST_SPREAD
}

/// Returns two pools: one of the first node's shard 0, and one of the second node's shard 2.
pub(crate) fn two_pools(pair: &Pair) -> (PoolId, PoolId) {
    let first = |side: &Side, shard| side.node.directory().pools_of(shard).next().unwrap().id();
    (first(&pair.a, 0), first(&pair.b, 2))
}

/// Returns the pools `from` and `to` after the last ten numbers of `from` have moved to `to`.
pub(crate) fn passed(before: &Directory, from: PoolId, to: PoolId) -> Vec<RingPool> {
    let fields = |pool| -> PoolFields { before.pool(pool).unwrap().fields().clone() };
    let (mut from, mut to) = (fields(from), fields(to));
    let range = from.numbers.pop().unwrap();
    let count = range.count();
    let part = |at: u32, count| {
        let first = PromoNumber::from_e164(range.first().to_e164() + u64::from(at)).unwrap();
        NumberRange::new(first, count).unwrap()
    };
    from.numbers.push(part(0, count - 10));
    to.numbers.push(part(count - 10, 10));
    [from, to].map(|fields| RingPool::new(fields).unwrap()).into()
}

/// Returns the first of the numbers that [`passed`] moves.
pub(crate) fn passed_number(before: &Directory, from: PoolId) -> PromoNumber {
    let range = *before.pool(from).unwrap().numbers().last().unwrap();
    PromoNumber::from_e164(range.last().to_e164() - 9).unwrap()
}

pub(crate) async fn change_list(pair: &Pair, side: &Side, pools: Vec<RingPool>) {
    let make = move |before: &Directory| before.change(pools, &[]);
    change::apply(&pair.platform, &side.node, &side.peers, make).await.unwrap();
}

/// Returns the remaining time of a pool's hold, if the pool's bucket was ever held. Asserts that
/// the shard agrees with the node's holds.
pub(crate) fn left(side: &Side, shard: u16, pool: PoolId) -> Option<u64> {
    let now = side.shard(shard).now();
    let hold = side.node.bucket_holds().get(bucket(pool));
    let left = hold.map(|hold| hold.until.since(now).0);
    match (allocate(side.shard(shard), pool, 77), left) {
        (Outcome::Exhausted { until }, Some(left)) => assert_eq!(until, now + Millis(left)),
        (Outcome::Kept { .. }, None | Some(0)) => {}
        (outcome, left) => panic!("{outcome:?} although it is held for {left:?}"),
    }
    left
}

/// The other node's state when a number passes from that node to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// The other node still has the number in a pool.
    HasIt,
    /// The number is free and no longer in a pool.
    Free,
    /// The number is locked for another seven seconds and no longer in a pool.
    Locked,
    /// Like `Locked`, but the lockout is on the other node's second shard.
    LockedElsewhere,
    /// One of the other node's pools is held for another nine seconds.
    Held,
    /// The other node does not answer.
    Silent,
    /// The other node cannot be reached.
    Gone,
}

pub(crate) const ALL: [Other; 7] = [
    Other::HasIt,
    Other::Free,
    Other::Locked,
    Other::LockedElsewhere,
    Other::Held,
    Other::Silent,
    Other::Gone,
];

/// Brings the other node into the state `other`; `pools` is that node's next list.
async fn prepare(pair: &Pair, other: Other, number: PromoNumber, pools: Vec<RingPool>) {
    let (b, shard) = (&pair.b, pair.b.shard(2));
    let now = shard.now();
    if other != Other::HasIt {
        change_list(pair, b, pools).await;
    }
    match other {
        Other::HasIt | Other::Free => {}
        Other::Locked => know(shard, number, now + Millis(7_000)),
        Other::LockedElsewhere => {
            know(b.shard(3), number, now + Millis(7_000));
            know(shard, number, now + Millis(3_000));
        }
        Other::Held => {
            let held = b.node.directory().pools_of(3).last().unwrap().id();
            let until = now + Millis(9_000);
            assert!(b.shard(3).engine.borrow_mut().hold_pool(now, held, until));
        }
        Other::Silent => pair.a_to_b.set(Links::Silent),
        Other::Gone => pair.a_to_b.set(Links::Gone),
    }
}

#[test]
fn pools_that_get_numbers_are_held_while_those_may_be_locked_elsewhere() {
    for other in ALL {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (to, from) = two_pools(&pair);
            let before = a.node.directory();
            let number = passed_number(&before, from);
            prepare(&pair, other, number, passed(&before, from, to)).await;
            let begun = platform.moment();
            change_list(&pair, a, passed(&before, from, to)).await;
            let took = platform.moment().since(begun);
            let wanted = match other {
                Other::Free => None,
                Other::Locked | Other::LockedElsewhere => Some(7_001),
                Other::Held => Some(9_001),
                Other::HasIt | Other::Silent | Other::Gone => Some(longest().0),
            };
            assert_eq!(left(a, 0, to), wanted, "{other:?}");
            let silent = Duration::from_secs(u64::from(other == Other::Silent));
            assert!(took >= silent && took < silent + Duration::from_millis(100), "{took:?}");
            for pool in a.node.directory().pools_of(0).map(|pool| pool.id()).skip(1) {
                assert_eq!(left(a, 0, pool), None);
            }
            // The holds are recorded for the next startup.
            let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
            assert_eq!(served.holds, a.node.bucket_holds());
            assert_eq!(served.lists, Some(lists(&a.node.directory())));
        });
    }
}

/// Moves a number back from one of the other node's pools to one of this node's pools. Each node
/// has a lockout of this number (`here` and `there`, in ms); the lockouts began `apart` ms apart.
/// Returns the pool, the number, and the shard time at the start of this function.
async fn comes_back(
    pair: &Pair,
    here: u64,
    there: u64,
    apart: u64,
) -> (PoolId, PromoNumber, Millis) {
    let (a, now) = (&pair.a, pair.a.shard(0).now());
    let (to, from) = two_pools(pair);
    let before = a.node.directory();
    let number = passed_number(&before, from);
    know(a.shard(1), number, now + Millis(here));
    pair.platform.sleep_until(pair.platform.moment() + Duration::from_millis(apart)).await;
    prepare(pair, Other::Free, number, passed(&before, from, to)).await;
    know(pair.b.shard(2), number, now + Millis(there));
    change_list(pair, a, passed(&before, from, to)).await;
    (to, number, now)
}

/// An operator ended a number's lockout on the other node, where the number then went to another
/// visitor. So this node must not treat its own visitor as the newest.
#[test]
pub(crate) fn a_number_that_is_locked_here_for_a_former_visitor_is_in_doubt() {
    for (here, there) in [(7_000, 3_000), (3_000, 7_000)] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (to, number, _) = comes_back(&pair, here, there, 100).await;
            let locked = pair::locked(a.shard(0))[&number];
            assert_eq!(left(a, 0, to), Some(locked.since(a.shard(0).now()).0));
            assert!(a.shard(0).engine.borrow().is_doubted(number));
        });
    }
}

/// Both nodes have a lockout of the same allocation, so no other visitor has the number. A node
/// that received the number's bucket may have lengthened the lockout.
#[test]
fn a_lockout_that_is_known_here_holds_no_pool_and_is_lengthened() {
    for (here, there) in [(7_000, 0), (7_000, 3_000), (3_000, 7_000)] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (to, number, now) = comes_back(&pair, here, there, 0).await;
            assert_eq!(left(a, 0, to), None);
            let locked = pair::locked(a.shard(0))[&number];
            let end = now + Millis(here.max(there));
            assert!((end..=end + Millis(1)).contains(&locked), "{locked:?} instead of {end:?}");
        });
    }
}

/// A number that was in a pool here before may have been handed out elsewhere since. Its pool must
/// be held at least until now.
#[test]
fn a_number_that_was_here_before_is_held_at_least_until_now() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let (to, from) = two_pools(&pair);
        let before = a.node.directory();
        let number = passed_number(&before, from);
        know(a.shard(0), number, a.shard(0).now());
        prepare(&pair, Other::Free, number, passed(&before, from, to)).await;
        change_list(&pair, a, passed(&before, from, to)).await;
        assert_eq!(left(a, 0, to), Some(0));
    });
}

/// Returns the data found at startup, including the lists that were served before.
pub(crate) fn begun(served: Option<impl Fn(&Directory) -> Lists>) -> impl Fn(&Directory) -> Begun {
    move |directory| Begun {
        served_lists: served.as_ref().map(|served| served(directory)),
        ..Begun::default()
    }
}

/// Returns the digests of the lists, as if the first pool of shard 0 had different numbers.
fn other_lists(directory: &Directory) -> Lists {
    let pool = directory.pools_of(0).next().unwrap().id();
    let mut lists = lists(directory);
    *lists.get_mut(&bucket(pool)).unwrap() += 1;
    lists
}

/// Prepares the other node and starts this one. Returns the hold of the pool whose list has
/// changed, the hold of the other pools, and the nodes that must be asked again.
pub(crate) async fn start(pair: &Pair, other: Other) -> (Option<u64>, Option<u64>, Vec<u16>) {
    let (a, b) = (&pair.a, &pair.b);
    let directory = a.node.directory();
    let pools: Vec<_> = directory.pools_of(0).map(|pool| pool.id()).collect();
    let number = directory.pool(pools[0]).unwrap().numbers()[0].first();
    if other == Other::HasIt {
        let fields = |pool| -> PoolFields { directory.pool(pool).unwrap().fields().clone() };
        let mut with = fields(directory.pools_of(2).next().unwrap().id());
        with.numbers.extend(fields(pools[0]).numbers);
        change_removed(pair, b, vec![RingPool::new(with).unwrap()], pools[0]).await;
    } else {
        prepare(pair, other, number, Vec::new()).await;
    }
    a.node.enter(Phase::Starting);
    let away = witness::begin(&pair.platform, &a.node, &a.peers).await;
    a.node.enter(Phase::Serving);
    (left(a, 0, pools[0]), left(a, 0, pools[1]), away)
}

async fn change_removed(pair: &Pair, side: &Side, pools: Vec<RingPool>, removed: PoolId) {
    let make = move |before: &Directory| before.change(pools, &[removed]);
    change::apply(&pair.platform, &side.node, &side.peers, make).await.unwrap();
}

#[test]
fn a_start_holds_pools_whose_lists_have_changed_while_it_was_down() {
    for other in ALL {
        let platform = Virtual::default();
        let pools = pair::pools();
        let pair = Pair::with(&platform, pools, begun(Some(other_lists)));
        platform.run(async {
            let (changed, unchanged, away) = start(&pair, other).await;
            let wanted = match other {
                Other::Free => 0,
                Other::Locked | Other::LockedElsewhere => 7_001,
                Other::Held => 9_001,
                Other::HasIt | Other::Silent | Other::Gone => longest().0,
            };
            assert_eq!((changed, unchanged), (Some(wanted), None), "{other:?}");
            let is_away = matches!(other, Other::Silent | Other::Gone);
            assert_eq!(away, if is_away { vec![2] } else { Vec::new() }, "{other:?}");
        });
    }
}

#[test]
fn a_start_with_unchanged_lists_holds_nothing() {
    for other in ALL {
        let platform = Virtual::default();
        let pair = Pair::with(&platform, pair::pools(), begun(Some(lists)));
        platform.run(async {
            let (first, second, _) = start(&pair, other).await;
            assert_eq!((first, second), (None, None), "{other:?}");
        });
    }
}

/// The directory's database went back to an older list while the node was down, and has the newer
/// list again now. In the meantime, another node may have handed the numbers out.
#[test]
fn a_list_that_was_served_before_the_start_holds_its_pools_like_any_other() {
    for (doubt, other, wanted) in [
        (0, Other::Free, None),
        (0, Other::Locked, Some(7_001)),
        (0, Other::Silent, Some(longest().0)),
        (20_000, Other::Free, Some(20_000)),
        (20_000, Other::Silent, Some(longest().0)),
    ] {
        let platform = Virtual::default();
        let now = ringwell_driver::clock::reading(1, platform.boot_time(), platform.wall()).wall;
        let begun = |directory: &Directory| {
            let first = |shard| directory.pools_of(shard).next().unwrap().id();
            let next = passed(directory, first(2), first(0));
            let served_lists = Some(lists(&directory.change(next, &[]).unwrap()));
            Begun { served_lists, unknown_until: now + Millis(doubt), ..Begun::default() }
        };
        let pair = Pair::with(&platform, pair::pools(), begun);
        platform.run(async {
            let a = &pair.a;
            assert_eq!(a.shard(0).now(), now);
            let (to, from) = two_pools(&pair);
            let before = a.node.directory();
            let number = passed_number(&before, from);
            prepare(&pair, other, number, passed(&before, from, to)).await;
            change_list(&pair, a, passed(&before, from, to)).await;
            assert_eq!(left(a, 0, to), wanted, "{doubt} {other:?}");
        });
    }
}

/// While a machine was asleep, its node's numbers may have moved to other nodes' pools. The node's
/// shards must ask the other nodes before they hand out a number.
#[test]
fn a_suspended_shard_hands_out_nothing_until_other_nodes_were_asked() {
    for (suspended, other, wanted) in [
        (4, Other::Locked, None),
        (60, Other::Free, None),
        (60, Other::Locked, Some(7_001)),
        (60, Other::Silent, None),
    ] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let shard = a.shard(0);
            let pool = a.node.directory().pools_of(0).next().unwrap().id();
            let number = a.node.directory().pool(pool).unwrap().numbers()[0].first();
            for shard in [0, 1] {
                platform.spawn(suspension::run(a.shard(shard).clone()));
            }
            platform.sleep_until(platform.moment() + Duration::from_secs(30)).await;
            assert!(matches!(allocate(shard, pool, 1), Outcome::Kept { .. }), "it is not idle");
            let woken = platform.moment() + Duration::from_secs(suspended);
            platform.0.advance(woken);
            prepare(&pair, other, number, Vec::new()).await;
            let is_late = |outcome| matches!(outcome, Outcome::Refused(Refusal::Late));
            assert_eq!(is_late(allocate(shard, pool, 2)), suspended > 5);
            // No task reloads the list of pools here, so the shard waits until its time limit.
            let patience = if suspended > 5 { 4_900 } else { 0 };
            platform.sleep_until(woken + Duration::from_millis(patience)).await;
            assert_eq!(is_late(allocate(shard, pool, 3)), suspended > 5);
            let silent = if other == Other::Silent { 2_000 } else { 200 };
            platform.sleep_until(woken + Duration::from_millis(patience + silent)).await;
            let held = a.node.bucket_holds().get(bucket(pool)).map(|hold| hold.until);
            assert_eq!(held.is_some(), wanted.is_some(), "{suspended} {other:?}");
            match (allocate(shard, pool, 4), held) {
                (Outcome::Exhausted { until }, Some(held)) => assert_eq!(until, held),
                (Outcome::Kept { .. }, None) => {}
                (outcome, _) => panic!("{outcome:?}"),
            }
            if held.is_some() {
                let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
                assert_eq!(served.holds, a.node.bucket_holds());
            }
        });
    }
}

/// Other pools have the same lifetime, so the longest lifetime in the list does not change.
#[test]
fn lockouts_of_numbers_that_left_are_remembered_with_their_lifetime() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let pool = a.node.directory().pools_of(0).next().unwrap().id();
        let mut fields = a.node.directory().pool(pool).unwrap().fields().clone();
        fields.numbers = vec![NumberRange::new(fields.numbers[0].first(), 9).unwrap()];
        let now = a.shard(0).now();
        let before = a.node.lifetimes();
        assert_eq!(before.earlier(now), Millis::ZERO);
        change_list(&pair, a, vec![RingPool::new(fields).unwrap()]).await;
        let lifetimes = a.node.lifetimes();
        assert_eq!(lifetimes.earlier(now + longest() - Millis(1)), lockout(LIFETIME));
        assert_eq!(lifetimes.earlier(now + longest()), Millis::ZERO);
        let stored = read_lifetimes(&OsFiles, &a.node.config.data).unwrap();
        assert_eq!(stored, Some(lifetimes));
    });
}

#[test]
fn a_number_becomes_an_overflow_number_when_no_visitor_holds_it() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let shard = a.shard(0);
        let mut pools = a.node.directory().pools_of(0).map(|pool| pool.id()).collect::<Vec<_>>();
        let other = pools.remove(1);
        let outcome = allocate(shard, pools[0], 1);
        let Outcome::Kept { number } = outcome else { panic!("{outcome:?}") };
        let fields = |pool| a.node.directory().pool(pool).unwrap().fields().clone();
        let try_it = async || {
            let next = PoolFields { overflow: Some(number), ..fields(other) };
            let next = vec![RingPool::new(next).unwrap()];
            let make = move |before: &Directory| before.change(next, &[]);
            let changed = change::apply(&platform, &a.node, &a.peers, make).await;
            changed.map_err(|error| error.to_string())
        };
        assert!(try_it().await.is_err(), "it is in rotation");
        let mut rest = fields(pools[0]);
        let first = PromoNumber::from_e164(number.to_e164() + 1).unwrap();
        rest.numbers = vec![NumberRange::new(first, 9).unwrap()];
        change_list(&pair, a, vec![RingPool::new(rest).unwrap()]).await;
        assert!(try_it().await.unwrap_err().contains("a visitor holds it"));
        platform.sleep_until(platform.moment() + Duration::from_secs(55)).await;
        assert!(try_it().await.is_err());
        platform.sleep_until(platform.moment() + Duration::from_secs(10)).await;
        try_it().await.unwrap();
    });
}

/// New owners are recorded in `cluster-map.json` before they take effect.
#[test]
pub(crate) fn a_change_of_the_list_is_recorded_without_losing_newer_owners_and_not_during_a_start()
{
    for (version, is_kept) in [(1, true), (2, false)] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (to, from) = two_pools(&pair);
            let before = a.node.directory();
            let mut owners = serde_json::to_value(a.node.owners().unwrap()).unwrap();
            owners["version"] = version.into();
            owners["buckets"][usize::from(bucket(to))] = serde_json::json!([5, 1]);
            let owners: Owners = serde_json::from_value(owners).unwrap();
            let is_own = |shard| shard < 2;
            let (holds, stale) = (BucketHolds::default(), BTreeSet::new());
            let map = ServedMap::of(owners.clone(), is_own, Vec::new(), holds, stale);
            let data = &a.node.config.data;
            map.write(&OsFiles, data).unwrap();
            a.node.enter(Phase::Starting);
            let mut fewer = before.pool(from).unwrap().fields().clone();
            fewer.numbers = vec![NumberRange::new(fewer.numbers[0].first(), 9).unwrap()];
            change_list(&pair, a, vec![RingPool::new(fewer).unwrap()]).await;
            assert_eq!(ServedMap::read(&OsFiles, data).unwrap(), Some(map));
            a.node.enter(Phase::Serving);
            let mut pool = before.pool(to).unwrap().fields().clone();
            let free = PromoNumber::from_e164(18_885_550_000).unwrap();
            pool.numbers.push(NumberRange::new(free, 3).unwrap());
            change_list(&pair, a, vec![RingPool::new(pool).unwrap()]).await;
            let served = ServedMap::read(&OsFiles, data).unwrap().unwrap();
            assert_eq!(served.lists, Some(lists(&a.node.directory())));
            assert_eq!(served.owners == Some(owners), is_kept);
            assert_eq!(served.owners == a.node.owners(), !is_kept);
        });
    }
}

/// The pool's bucket was released but not accepted yet. Numbers that enter the pool must be held.
#[test]
fn numbers_that_enter_a_pool_in_transit_are_held_there_too() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let a = &pair.a;
        let (to, from) = two_pools(&pair);
        let before = a.node.directory();
        pair.a_to_b.set(Links::Without(Path::Take));
        let of = [bucket(to)].into();
        moves::give(&platform, &a.node, &a.peers, of, 3).await.unwrap_err();
        pair.a_to_b.set(Links::Up);
        let hold = || a.node.bucket_holds().get(bucket(to)).map(|hold| hold.until);
        let mut other = before.pool(from).unwrap().fields().clone();
        other.name = Some("another name".to_owned());
        change_list(&pair, a, vec![RingPool::new(other).unwrap()]).await;
        assert_eq!(hold(), None);
        change_list(&pair, a, passed(&before, from, to)).await;
        assert_eq!(hold(), Some(a.shard(0).now() + longest()));
    });
}

/// A number stays in doubt in its next pool if another node may have handed it out during a hold.
#[test]
fn a_number_stays_in_doubt_in_its_next_pool_after_the_hold_of_its_former_one() {
    for is_over in [false, true] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let before = a.node.directory();
            let [from, to] = [0, 1].map(|shard| before.pools_of(shard).next().unwrap().id());
            let number = passed_number(&before, from);
            let now = a.shard(0).now();
            assert!(a.shard(0).engine.borrow_mut().hold_pool(now, from, now + Millis(2_000)));
            if is_over {
                platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
            }
            change_list(&pair, a, passed(&before, from, to)).await;
            assert!(a.shard(1).engine.borrow().is_doubted(number), "is_over: {is_over}");
        });
    }
}

/// A number entered a pool in transit and may have been handed out elsewhere since. The giver must
/// not send its allocation as the newest, because the next owner may have a newer one.
#[test]
pub(crate) fn an_old_allocation_of_a_number_that_enters_a_pool_in_transit_is_not_sent_as_the_newest()
 {
    for is_known in [false, true] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (to, from) = two_pools(&pair);
            let before = a.node.directory();
            let number = passed_number(&before, from);
            pair.a_to_b.set(Links::Without(Path::Take));
            let of = [bucket(to)].into();
            moves::give(&platform, &a.node, &a.peers, of, 3).await.unwrap_err();
            pair.a_to_b.set(Links::Up);
            if is_known {
                know(a.shard(0), number, a.shard(0).now());
            }
            prepare(&pair, Other::Free, number, passed(&before, from, to)).await;
            change_list(&pair, a, passed(&before, from, to)).await;
            let hold = a.node.bucket_holds().get(bucket(to)).map(|hold| hold.until);
            assert_eq!(hold, is_known.then(|| a.shard(0).now()));
            let resumed = moves::resume(platform.clone(), Arc::clone(&a.node), a.peers.clone());
            platform.within(Duration::from_secs(3), resumed).await;
            assert!(
                ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap().leaving.is_empty()
            );
            let sent = pair.all_sent(Path::Adopt);
            let pieces = sent.iter().flat_map(|body| body["numbers"].as_array().unwrap());
            assert_eq!(pieces.filter(|word| word[0] == number.to_code()).count(), 0);
            let mut doubts = sent.iter().flat_map(|body| body["holds"].as_array().unwrap());
            assert_eq!(doubts.any(|hold| hold[0] == to.0), is_known);
        });
    }
}

#[test]
fn a_list_that_takes_several_queries_is_believed_free_if_all_are_answered() {
    let platform = Virtual::default();
    let few = || demo_pools(40, 20, LIFETIME).unwrap();
    let pair = Pair::with(&platform, few(), |_| Begun::default());
    platform.run(async {
        let a = &pair.a;
        let many = |before: &Directory| {
            before.change(demo_pools(12_000, 20, LIFETIME).unwrap().split_off(40), &[])
        };
        change::apply(&platform, &a.node, &a.peers, many).await.unwrap();
        assert!(pair.all_sent(Path::Locked).len() > 2);
        assert_eq!(a.node.bucket_holds(), BucketHolds::default());
    });
}
