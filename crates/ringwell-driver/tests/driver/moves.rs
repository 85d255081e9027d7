//! Two nodes that answer each other's requests. Buckets move between them, and moves are
//! interrupted, repeated or taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{BucketHold, BucketHolds, Directory, PoolFields, RingPool, bucket};
use ringwell_driver::change;
use ringwell_driver::message::Message;
use ringwell_driver::moves::{self, MoveError};
use ringwell_driver::node::{JournalState, Phase};
use ringwell_driver::store::{Gaps, ServedMap};
use ringwell_driver::{Path, Platform, suspension};
use ringwell_engine::{Moment, Outcome};
use ringwell_os::OsFiles;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::pair::{self, Links, Pair, Side, allocate, locked};
use crate::support::Virtual;

/// Returns all buckets of shard 0, which is on the first node.
pub fn buckets(pair: &Pair) -> BTreeSet<u16> {
    pair.a.node.directory().placement().buckets_of(0).collect()
}

pub fn pools(side: &Side, shard: u16) -> Vec<PoolId> {
    side.node.directory().pools_of(shard).map(|pool| pool.id()).collect()
}

/// Hands out a number from each pool of a shard.
pub fn hand_out(side: &Side, shard: u16, batch: u8) -> BTreeMap<PoolId, PromoNumber> {
    let number = |outcome: Outcome| outcome.number().unwrap_or_else(|| panic!("{outcome:?}"));
    let pools = pools(side, shard).into_iter();
    pools.map(|pool| (pool, number(allocate(side.shard(shard), pool, batch)))).collect()
}

pub async fn give(pair: &Pair, to: u16) -> Result<Value, MoveError> {
    let (platform, a) = (&pair.platform, &pair.a);
    let given = moves::give(platform, &a.node, &a.peers, buckets(pair), to).await;
    given.map(|given| serde_json::to_value(given).unwrap())
}

pub fn served(side: &Side) -> ServedMap {
    ServedMap::read(&OsFiles, &side.node.config.data).unwrap().unwrap()
}

#[test]
fn buckets_arrive_with_lockouts_holders_answers_and_holds() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let moving = buckets(&pair);
        let given = hand_out(a, 0, 1);
        let stay = hand_out(a, 1, 1);
        let now = a.shard(0).now();
        let held_pool = *given.keys().next_back().unwrap();
        let ends = now + Millis(30_000);
        assert!(a.shard(0).engine.borrow_mut().hold_pool(now, held_pool, ends));
        a.shard(0).commit_soon();
        let ends_there = locked(a.shard(0));
        // Some time passes before the move, so the lockouts are not new.
        platform.sleep_until(platform.moment() + Duration::from_millis(100)).await;
        let report = give(&pair, 2).await.unwrap();
        assert_eq!(report["buckets"], moving.len());
        assert_eq!(report["ring_pools"], given.len());
        assert_eq!(report["numbers"], given.len());
        // The lockouts have arrived at the next owner.
        let arrived_ends = locked(b.shard(2));
        assert!(arrived_ends.keys().eq(ends_there.keys()), "{arrived_ends:?}");
        for (number, end) in &arrived_ends {
            let added = end.since(ends_there[number]);
            assert!(added <= Millis(2) && *end >= ends_there[number], "{number}: {added:?}");
        }
        // The remembered answers to rows, and the holds of pools, have also arrived at the next
        // owner.
        assert_eq!(given.len(), pools(b, 2).iter().filter(|pool| given.contains_key(pool)).count());
        for (pool, number) in given.iter().filter(|(pool, _)| **pool != held_pool) {
            assert_eq!(allocate(b.shard(2), *pool, 1), Outcome::Kept { number: *number });
        }
        let Outcome::Exhausted { until } = allocate(b.shard(2), held_pool, 2) else {
            panic!("held")
        };
        assert!((ends..=ends + Millis(2)).contains(&until), "{until:?} instead of {ends:?}");
        let free = *given.keys().next().unwrap();
        let outcome = allocate(b.shard(2), free, 2);
        let Outcome::Kept { number } = outcome else { panic!("{outcome:?}") };
        assert_ne!(number, given[&free]);
        // The next owner has the allocation, but not its parameters.
        for number in given.values() {
            let (reply, past) = oneshot::channel();
            let at = Moment::Shard(b.shard(2).now());
            let ask = Message::Attribution { number: *number, at, keep_alives: false, reply };
            assert!(b.peers.send(2, ask));
            let known = past.await.unwrap().unwrap().held.unwrap();
            assert_eq!((known.pool, known.allocated_at), (None, now));
        }
        // Both nodes' files agree about the move, and shard 1, whose buckets were not moved, keeps
        // its numbers.
        assert!(served(a).leaving.is_empty());
        assert!(served(b).buckets.is_superset(&moving));
        assert!(served(a).buckets.is_disjoint(&moving));
        for (pool, number) in &stay {
            assert_eq!(allocate(a.shard(1), *pool, 1), Outcome::Kept { number: *number });
        }
        assert!(matches!(give(&pair, 2).await, Ok(report) if report["buckets"] == 0));
    });
}

/// A suspended shard must not hold pools because of lockouts that a previous owner still reports.
#[test]
fn a_suspended_shard_does_not_hold_pools_because_of_lockouts_that_moved_to_it() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        give(&pair, 2).await.unwrap();
        platform.spawn(suspension::run(b.shard(2).clone()));
        platform.sleep_until(platform.moment() + Duration::from_secs(2)).await;
        platform.0.advance(platform.moment() + Duration::from_secs(6));
        platform.sleep_until(platform.moment() + Duration::from_secs(6)).await;
        assert_eq!(b.node.bucket_holds(), BucketHolds::default());
        for (pool, number) in &given {
            let outcome = allocate(b.shard(2), *pool, 2);
            let Outcome::Kept { number: other } = outcome else { panic!("{pool}: {outcome:?}") };
            assert_ne!(*number, other, "its lockout has not ended");
        }
    });
}

#[test]
pub fn holds_of_buckets_and_gaps_in_the_history_move_along() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let moving = buckets(&pair);
        let now = a.shard(0).now();
        // Holds are set on two buckets: one that is moved but contains no pools, and one that
        // belongs to another shard.
        let empty = *moving.iter().find(|of| a.node.directory().pools_in(**of).is_empty()).unwrap();
        let other = a.node.directory().placement().buckets_of(1).next().unwrap();
        let hold = BucketHold { since: now - Millis(5_000), until: now + Millis(20_000) };
        let mut holds = a.node.bucket_holds();
        holds.add(empty, hold);
        holds.add(other, hold);
        a.node.set_bucket_holds(holds);
        let mut gaps = Gaps::default();
        gaps.add(Millis(1), Millis(2));
        a.node.set_gaps(gaps.clone());
        give(&pair, 2).await.unwrap();
        let moving: Vec<u16> = moving.iter().copied().collect();
        let dating = a.node.dating(a.node.clocks(&platform));
        let received = Gaps::from(gaps.of(&moving, dating));
        assert_eq!(b.node.gaps(), received);
        assert_eq!(Gaps::read(&OsFiles, &b.node.config.data).unwrap(), b.node.gaps());
        let arrived = b.node.bucket_holds();
        assert_eq!(arrived.get(other), None);
        let arrived = arrived.get(empty).unwrap();
        let near = |at: Millis, wanted: Millis| at >= wanted && at <= wanted + Millis(2);
        assert!(near(arrived.since, hold.since) && near(arrived.until, hold.until), "{arrived:?}");
    });
}

#[test]
fn the_other_node_hears_of_a_move_between_shards_of_one() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        let moving = buckets(&pair);
        give(&pair, 1).await.unwrap();
        for (pool, number) in &given {
            assert_eq!(allocate(a.shard(1), *pool, 1), Outcome::Kept { number: *number });
        }
        platform.sleep_until(platform.moment() + Duration::from_millis(1)).await;
        let owners = b.node.owners().unwrap();
        assert!(moving.iter().all(|of| owners.get(*of).unwrap().shard == 1));
        assert!(b.node.stale().is_empty() && a.node.stale().is_empty());
    });
}

/// The next owner has agreed to the move. Before the move takes place, a new list on the next
/// owner's node adds numbers to the pool. The next owner must hold the pool.
#[test]
fn a_pool_whose_list_changes_during_its_move_is_held_by_its_next_owner() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let moved = pools(a, 0);
        pair.a_to_b.set(Links::Without(Path::Take));
        give(&pair, 2).await.unwrap_err();
        let directory = b.node.directory();
        let mut fields = directory.pool(moved[0]).unwrap().fields().clone();
        let free = PromoNumber::from_e164(18_885_550_000).unwrap();
        fields.numbers.push(NumberRange::new(free, 3).unwrap());
        let next = RingPool::new(fields).unwrap();
        let more = move |before: &Directory| before.change(vec![next], &[]);
        change::apply(&platform, &b.node, &b.peers, more).await.unwrap();
        pair.a_to_b.set(Links::Up);
        again(b, Path::Take, &pair.sent(Path::Take)).await.unwrap();
        let now = b.shard(2).now();
        // The giver's list still contains the numbers, so the giver may hand them out.
        let held = b.node.bucket_holds().get(bucket(moved[0])).map(|hold| hold.until);
        assert!(held >= Some(now), "{held:?}");
        assert!(moved[1..].iter().all(|pool| b.node.bucket_holds().get(bucket(*pool)).is_none()));
        assert!(moved.iter().all(|pool| pools(b, 2).contains(pool)));
    });
}

/// A node with data from before a move must stop serving, and its lockouts must be waited for.
#[test]
fn a_node_with_data_from_before_a_move_stops_and_its_lockouts_are_waited_for() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let (before, moving, moved) = (a.node.owners().unwrap(), buckets(&pair), pools(a, 0));
        give(&pair, 2).await.unwrap();
        platform.sleep_until(platform.moment() + Duration::from_secs(1)).await;
        let placement = before.placement();
        let old = move |list: &Directory| Ok(list.moved(placement));
        change::apply(&platform, &a.node, &a.peers, old).await.unwrap();
        a.node.set_owners(before.clone());
        assert_eq!(pools(a, 0), moved);
        let number = hand_out(a, 0, 5)[&moved[0]];
        let end = locked(a.shard(0))[&number];
        // The first node receives the current owners, which include the move.
        let learnt = moves::learn_from(&platform, &a.node, &a.peers, 2).await;
        assert_eq!(learnt, Some(true));
        assert!(pools(a, 0).is_empty());
        assert_eq!(a.node.stale(), moving.iter().copied().collect::<Vec<_>>());
        let map = served(a);
        assert!(map.buckets.is_disjoint(&moving) && map.stale == moving);
        assert_eq!(map.owners, a.node.owners());
        // Next, the first node informs the owner that it served the buckets. The owner holds the
        // buckets until all lockouts that began on the first node have ended.
        assert_eq!(b.node.bucket_holds().get(bucket(moved[0])), None);
        let learnt = moves::learn_from(&platform, &a.node, &a.peers, 2).await;
        assert_eq!(learnt, Some(false));
        assert!(a.node.stale().is_empty());
        let now = b.shard(2).now();
        for pool in &moved {
            let hold = b.node.bucket_holds().get(bucket(*pool)).unwrap();
            assert!(hold.until >= end && hold.until <= end + Millis(2), "{hold:?}, {end:?}");
            let Outcome::Exhausted { until } = allocate(b.shard(2), *pool, 6) else {
                panic!("pool {pool} is not held");
            };
            assert!(until == hold.until && until > now);
        }
        assert_eq!(served(b).holds, b.node.bucket_holds());
    });
}

#[test]
fn buckets_that_cannot_move_stay() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let before = a.node.owners();
        let give = async |of: u16, to| {
            let of = BTreeSet::from([of]);
            moves::give(&platform, &a.node, &a.peers, of, to).await.unwrap_err()
        };
        let own = *buckets(&pair).iter().next().unwrap();
        let elsewhere = a.node.directory().placement().buckets_of(3).next().unwrap();
        assert!(matches!(give(own, 4).await, MoveError::NoShard(4)));
        assert!(matches!(give(1024, 2).await, MoveError::NoBucket(1024)));
        let refused = give(elsewhere, 2).await;
        assert!(matches!(refused, MoveError::Elsewhere { shard: 3, .. }), "{refused}");
        a.node.enter(Phase::Draining);
        assert!(matches!(give(own, 2).await, MoveError::NotServing));
        a.node.enter(Phase::Serving);
        let not_taken = async |of, why: &str| {
            let refused = give(of, 2).await;
            let MoveError::NotTaken { shard: 2, reason } = &refused else { panic!("{refused}") };
            assert!(reason.contains(why), "{reason} instead of {why}");
        };
        for state in [JournalState::Full, JournalState::Failed, JournalState::Taken] {
            b.node.set_journal(2, state);
            not_taken(own, "does not accept writes").await;
        }
        b.node.set_journal(2, JournalState::Writing);
        // The state of a journal other than the next owner's does not matter.
        b.node.set_journal(3, JournalState::Full);
        b.node.enter(Phase::Starting);
        not_taken(own, "starting or stopping").await;
        b.node.enter(Phase::Serving);
        pair.a_to_b.set(Links::Gone);
        not_taken(own, "was closed").await;
        pair.a_to_b.set(Links::Up);
        // A request with all buckets is too large for the other node.
        pair.a_to_b.set(Links::Accepts(20_000));
        let too_many = self::give(&pair, 2).await.unwrap_err();
        let MoveError::NotTaken { reason, .. } = &too_many else { panic!("{too_many}") };
        assert!(reason.contains("move fewer"), "{reason}");
        pair.a_to_b.set(Links::Up);
        // The lists differ: the other node's list has different pools in this bucket.
        let pool = pools(a, 0)[0];
        let short = move |before: &Directory| before.change(Vec::new(), &[pool]);
        change::apply(&platform, &b.node, &b.peers, short).await.unwrap();
        not_taken(bucket(pool), "different lists").await;
        assert_eq!(a.node.owners(), before);
        assert_eq!(hand_out(a, 0, 1).len(), pools(a, 0).len());
        // None of this prevents the move of another bucket.
        let other = pools(a, 0)[1];
        assert_ne!(bucket(other), bucket(pool));
        let of = BTreeSet::from([bucket(other)]);
        moves::give(&platform, &a.node, &a.peers, of, 2).await.unwrap();
        assert!(pools(b, 2).contains(&other));
    });
}

/// Sends a recorded request again, possibly in a changed form.
async fn again(side: &Side, path: Path, body: &Value) -> Result<Bytes, String> {
    side.answer(path, serde_json::to_vec(body).unwrap().into()).await
}

#[test]
fn requests_of_a_move_that_are_wrong_or_late_change_nothing() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        pair.a_to_b.set(Links::Without(Path::Prepare));
        give(&pair, 2).await.unwrap_err();
        let mut prepare = pair.sent(Path::Prepare);
        let refused = async |path, body: &Value, why: &str| {
            let refused = again(b, path, body).await.unwrap_err();
            assert!(refused.contains(why), "{refused} instead of {why}");
        };
        let wrong = |body: &Value, field: &str, value: Value| {
            let mut body = body.clone();
            body[field] = value;
            body
        };
        refused(Path::Prepare, &wrong(&prepare, "version", json!(2)), "files differ").await;
        refused(Path::Prepare, &wrong(&prepare, "shard", json!(1)), "does not belong to that node")
            .await;
        refused(Path::Prepare, &wrong(&prepare, "digest", json!("")), "different lists").await;
        prepare["shard"] = json!(3);
        again(b, Path::Prepare, &prepare).await.unwrap();
        pair.a_to_b.set(Links::Without(Path::Take));
        let on_their_way = give(&pair, 2).await.unwrap_err();
        assert!(matches!(on_their_way, MoveError::OnTheirWay { shard: 2, .. }), "{on_their_way}");
        let busy = give(&pair, 3).await.unwrap_err();
        assert!(matches!(busy, MoveError::Busy(_)), "{busy}");
        let (take, adopt) = (pair.sent(Path::Take), pair.all_sent(Path::Adopt));
        let adopt_all = async |side| {
            for piece in &adopt {
                again(side, Path::Adopt, piece).await.unwrap();
            }
        };
        refused(Path::Take, &wrong(&take, "version", json!(2)), "files differ").await;
        refused(Path::Adopt, &wrong(&adopt[0], "version", json!(2)), "files differ").await;
        let bad = json!([[1, 1, 1, 1, null]]);
        refused(Path::Adopt, &wrong(&adopt[0], "numbers", bad), "an invalid promo number").await;
        let mut foreign = take.clone();
        foreign["buckets"][0][1]["shard"] = json!(1);
        refused(Path::Take, &foreign, "another node's shard").await;
        b.node.enter(Phase::Draining);
        refused(Path::Take, &take, "starting or stopping").await;
        b.node.enter(Phase::Serving);
        let has = |side: &Side, shard| given.keys().all(|pool| pools(side, shard).contains(pool));
        assert!(!has(a, 0) && !has(b, 2), "rows of buckets in transit overflow");
        // The next owner now accepts `take`. The request contains a hold of a bucket that is not
        // part of the move; this hold is ignored. Repeating the request causes no error.
        let other = a.node.directory().placement().buckets_of(1).next().unwrap();
        again(b, Path::Take, &wrong(&take, "holds", json!([[other, 1, 10_000]]))).await.unwrap();
        assert_eq!(b.node.bucket_holds().get(other), None);
        assert!(has(b, 2));
        let expect = locked(b.shard(2));
        platform.sleep_until(platform.moment() + pair::LIFETIME_AND_MORE).await;
        let later = hand_out(b, 2, 9);
        let fresh = locked(b.shard(2));
        assert!(fresh.len() == later.len() && fresh != expect);
        again(b, Path::Take, &take).await.unwrap();
        adopt_all(b).await;
        assert_eq!(locked(b.shard(2)), fresh, "a late piece changed newer lockouts");
        assert_eq!(hand_out(b, 2, 9), later, "a late piece changed newer answers");
    });
}

#[test]
fn a_move_is_taken_back_unless_it_has_been_accepted() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let given = hand_out(a, 0, 1);
        let nothing = moves::abort(&platform, &a.node, &a.peers).await.unwrap_err();
        assert!(matches!(nothing, MoveError::NothingLeaves), "{nothing}");
        pair.a_to_b.set(Links::Without(Path::Take));
        give(&pair, 2).await.unwrap_err();
        let take = pair.sent(Path::Take);
        // The buckets are not taken back before the next owner agrees.
        pair.a_to_b.set(Links::Gone);
        let kept = moves::abort(&platform, &a.node, &a.peers).await.unwrap_err();
        assert!(matches!(kept, MoveError::NotTakenBack { shard: 2, .. }), "{kept}");
        assert_eq!(served(a).leaving.len(), 1);
        assert!(given.keys().all(|pool| !pools(a, 0).contains(pool)));
        pair.a_to_b.set(Links::Up);
        b.node.enter(Phase::Draining);
        moves::abort(&platform, &a.node, &a.peers).await.unwrap_err();
        b.node.enter(Phase::Serving);
        let back = moves::abort(&platform, &a.node, &a.peers).await.unwrap();
        let back = serde_json::to_value(back).unwrap();
        assert_eq!((&back["buckets"], &back["ring_pools"]), (&json!(256), &json!(given.len())));
        assert!(served(a).leaving.is_empty());
        for (pool, number) in &given {
            assert_eq!(allocate(a.shard(0), *pool, 1), Outcome::Kept { number: *number });
        }
        // The lost request to take the buckets over may still arrive.
        let late = again(b, Path::Take, &take).await.unwrap_err();
        assert!(late.contains("taken back"), "{late}");
        assert!(given.keys().all(|pool| !pools(b, 2).contains(pool)));
        let abandon = pair.sent(Path::Abandon);
        assert!(again(b, Path::Abandon, &abandon).await.is_ok(), "a repetition is no error");
        let mut other = abandon.clone();
        other["version"] = json!(2);
        assert!(again(b, Path::Abandon, &other).await.is_err());
        // If the next owner's confirmation is lost, the move is nevertheless complete at the next
        // owner.
        pair.a_to_b.set(Links::Deaf(Path::Take));
        give(&pair, 2).await.unwrap_err();
        assert!(given.keys().all(|pool| pools(b, 2).contains(pool)));
        pair.a_to_b.set(Links::Up);
        let ended = moves::abort(&platform, &a.node, &a.peers).await.unwrap_err();
        let MoveError::NotTakenBack { reason, .. } = &ended else { panic!("{ended}") };
        assert!(reason.contains("has accepted the buckets"), "{reason}");
        a.resume_moves(&platform);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(a).leaving.is_empty());
        assert!(given.keys().all(|pool| !pools(a, 0).contains(pool)));
    });
}

/// The next owner accepts the buckets and then moves them to another of its shards. Its answer to
/// the first move and its announcement of the second are both lost.
#[test]
fn a_move_that_was_accepted_is_not_taken_back_after_another_move_there() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b, moving) = (&pair.a, &pair.b, buckets(&pair));
        let given = hand_out(a, 0, 1);
        pair.a_to_b.set(Links::Deaf(Path::Take));
        give(&pair, 2).await.unwrap_err();
        pair.b_to_a.set(Links::Gone);
        moves::give(&platform, &b.node, &b.peers, moving, 3).await.unwrap();
        platform.sleep_until(platform.moment() + Duration::from_millis(10)).await;
        pair.a_to_b.set(Links::Up);
        let aborted = moves::abort(&platform, &a.node, &a.peers).await;
        let is_both = |pool: &&PoolId| pools(a, 0).contains(pool) && pools(b, 3).contains(pool);
        for pool in given.keys().filter(is_both) {
            let [here, there] = [(a.shard(0), 9), (b.shard(3), 10)]
                .map(|(shard, batch)| allocate(shard, *pool, batch));
            assert_ne!(here, there, "a number was handed out twice");
        }
        assert!(matches!(aborted, Err(MoveError::NotTakenBack { shard: 2, .. })), "{aborted:?}");
        // The move completes.
        a.resume_moves(&platform);
        platform.sleep_until(platform.moment() + Duration::from_secs(3)).await;
        assert!(served(a).leaving.is_empty());
        assert!(given.keys().all(|pool| !pools(a, 0).contains(pool) && pools(b, 3).contains(pool)));
    });
}

/// An interrupted move must continue in pieces that are small enough for the next owner.
#[test]
fn an_interrupted_move_continues_in_pieces_that_are_accepted() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let batches: Vec<_> = (1..=200).map(|batch| hand_out(a, 0, batch)).collect();
        let count: usize = batches.iter().map(BTreeMap::len).sum();
        assert!(count > 1_200, "that is less than two pieces: {count}");
        pair.a_to_b.set(Links::Without(Path::Adopt));
        give(&pair, 2).await.unwrap_err();
        let limit = 40_000;
        let mut map = served(a);
        map.leaving[0].body_bytes = Some(limit);
        map.write(&OsFiles, &a.node.config.data).unwrap();
        pair.a_to_b.set(Links::Gone);
        let (at, node, peers) = (platform.clone(), a.node.clone(), a.peers.clone());
        let before = pair.all_sent(Path::Adopt).len();
        platform.spawn(moves::resume(at, node, peers));
        platform.sleep_until(platform.moment() + Duration::from_millis(3_500)).await;
        assert_eq!(pair.all_sent(Path::Adopt).len() - before, 4, "one attempt a second");
        pair.a_to_b.set(Links::UpTo(limit));
        platform.sleep_until(platform.moment() + Duration::from_millis(900)).await;
        assert!(served(a).leaving.is_empty(), "it has not been accepted");
        assert_eq!(locked(b.shard(2)).len(), count);
        for (batch, given) in (1..=200).zip(&batches) {
            for (pool, number) in given {
                assert_eq!(allocate(b.shard(2), *pool, batch), Outcome::Kept { number: *number });
            }
        }
        let few = pair.all_sent(Path::Adopt).len();
        assert!(few < 25, "{few} requests");
    });
}

/// Lockouts of removed numbers must move too, even if they do not fit into one piece.
#[test]
fn lockouts_of_numbers_that_have_left_their_pools_move_along() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let count: usize = (1..=200).map(|batch| hand_out(a, 0, batch).len()).sum();
        let given = locked(a.shard(0));
        assert!(given.len() == count && count > 1_024, "{count}");
        let full: Vec<_> = a.node.directory().pools_of(0).map(|it| it.fields().clone()).collect();
        let pools = |change: &dyn Fn(&mut PoolFields)| -> Vec<RingPool> {
            let changed = full.iter().cloned().map(|mut fields| {
                change(&mut fields);
                RingPool::new(fields).unwrap()
            });
            changed.collect()
        };
        let last_only = |fields: &mut PoolFields| {
            fields.numbers = vec![NumberRange::new(fields.numbers[0].last(), 1).unwrap()];
        };
        let apply = async |side: &Side, next: Vec<RingPool>| {
            let make = move |before: &Directory| before.change(next, &[]);
            change::apply(&platform, &side.node, &side.peers, make).await.unwrap();
        };
        for side in [a, b] {
            apply(side, pools(&last_only)).await;
        }
        assert!(locked(a.shard(0)).is_empty());
        give(&pair, 2).await.unwrap();
        for side in [a, b] {
            apply(side, pools(&|_| ())).await;
        }
        let arrived = locked(b.shard(2));
        assert!(arrived.keys().eq(given.keys()), "{} of {count}", arrived.len());
        assert!(given.iter().all(|(number, end)| arrived[number] >= *end));
    });
}

/// Records this bucket as belonging to the first shard, which does not serve it yet.
fn record_taken(side: &Side, bucket: u16) {
    let mut owners = side.node.owners().unwrap();
    owners.give(bucket, 0);
    let (holds, stale) = (BucketHolds::default(), BTreeSet::new());
    let map = ServedMap::of(owners, |of| of < 2, Vec::new(), holds, stale);
    map.write(&OsFiles, &side.node.config.data).unwrap();
}

#[test]
fn owners_of_a_newer_version_of_the_cluster_file_are_believed() {
    for (version, phase, is_believed) in [
        (1, Phase::Serving, true),
        (1, Phase::Starting, true),
        (2, Phase::Serving, true),
        (2, Phase::Starting, true),
        (0, Phase::Serving, false),
        (0, Phase::Starting, false),
    ] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let a = &pair.a;
            let (before, gone) = (a.node.owners().unwrap(), bucket(pools(a, 0)[0]));
            let mut owners = serde_json::to_value(&before).unwrap();
            owners["version"] = json!(version);
            owners["buckets"][usize::from(gone)] = json!([1, 2]);
            a.node.enter(phase);
            // `cluster-map.json` already records a bucket that this node is taking over.
            let taken = before.placement().buckets_of(3).next().unwrap();
            record_taken(a, taken);
            again(a, Path::Owners, &json!({"owners": owners})).await.unwrap();
            let after = a.node.owners().unwrap();
            assert_eq!(after.version(), 1);
            assert_eq!(after.get(gone).unwrap().shard == 2, is_believed, "{version} {phase:?}");
            assert_eq!(a.node.stale(), if is_believed { vec![gone] } else { Vec::new() });
            if is_believed {
                let map = served(a);
                let kept = map.owners.unwrap();
                assert_eq!((kept.get(gone), map.stale), (after.get(gone), BTreeSet::from([gone])));
                let is_kept = kept.get(taken).unwrap().shard == 0;
                assert_eq!(is_kept, version == 1, "{version} {phase:?}");
            } else {
                assert_eq!(after, before);
            }
        });
    }
}
