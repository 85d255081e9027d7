//! The records that nodes keep of each other's journals.

use std::time::Duration;

use ringwell_core::{Millis, PoolId};
use ringwell_directory::{BucketHold, Owners, bucket};
use ringwell_driver::lifetimes::Lifetimes;
use ringwell_driver::node::{Begun, Phase};
use ringwell_driver::store::{Gaps, SeenJournals, ServedMap};
use ringwell_driver::witness::{self, JournalWord};
use ringwell_driver::{Path, Platform, moves};
use ringwell_engine::Outcome;
use ringwell_os::OsFiles;
use serde_json::{Value, json};

use crate::pair::{self, LIFETIME, Links, Pair, Side, allocate};
use crate::support::Virtual;

/// Reports `journals` to a node, and returns the node's earlier records of the journals of
/// `shards`.
pub(crate) async fn exchange(
    side: &Side,
    shards: Value,
    journals: Value,
) -> Result<Vec<JournalWord>, String> {
    let body = json!({"shards": shards, "journals": journals});
    let answer = side.answer(Path::Journals, serde_json::to_vec(&body).unwrap().into()).await?;
    Ok(serde_json::from_slice(&answer).unwrap())
}

fn word(shard: u16, name: &str, n: u64) -> JournalWord {
    (shard, name.to_owned(), n)
}

fn first_pool(side: &Side, shard: u16) -> PoolId {
    side.node.directory().pools_of(shard).next().unwrap().id()
}

#[test]
fn a_journal_is_doubted_if_the_record_has_another_name_or_is_longer() {
    // When the node started, group 1 was the next group in each of its journals.
    for (name, n, is_doubted) in
        [("a", 0, false), ("a", 1, false), ("a", 2, true), ("old", 0, true), ("old", 1, true)]
    {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            exchange(b, json!([]), json!([[0, name, n], [1, "a", 1]])).await.unwrap();
            let since = a.shard(0).now();
            a.node.enter(Phase::Starting);
            assert!(witness::begin(&platform, &a.node, &a.peers).await.is_empty());
            a.node.enter(Phase::Serving);
            let holds = a.node.bucket_holds();
            let hold = |pool| holds.get(bucket(pool));
            let wanted = is_doubted.then_some(BucketHold { since, until: Millis::ZERO });
            assert_eq!(hold(first_pool(a, 0)), wanted, "{name} {n}");
            assert_eq!(hold(first_pool(a, 1)), None);
            let outcome = allocate(a.shard(0), first_pool(a, 0), 1);
            let is_held =
                matches!(outcome, Outcome::Exhausted { until } if until >= since + LIFETIME);
            assert_eq!(is_held, is_doubted, "{outcome:?}");
            assert!(matches!(allocate(a.shard(1), first_pool(a, 1), 1), Outcome::Kept { .. }));
            // If the journal is in doubt, the data directory gets a new name, and the period whose
            // answers may be lost is recorded as a gap.
            let (own, data) = (a.node.identity(), &a.node.config.data);
            assert_eq!(own != "a", is_doubted);
            assert_eq!(a.node.gaps() != Gaps::default(), is_doubted);
            assert_eq!(Gaps::read(&OsFiles, data).unwrap(), a.node.gaps());
            let served = ServedMap::read(&OsFiles, data).unwrap().unwrap();
            assert_eq!(served.holds, holds);
            // The other node has recorded the new name.
            let known = exchange(b, json!([0, 1, 7]), json!([])).await.unwrap();
            assert_eq!(known.len(), 2);
            assert!(known.iter().all(|(_, name, _)| *name == own), "{known:?}");
        });
    }
}

/// The hold must cover the longer lifetimes of an earlier list, even if only the other node has
/// served that list.
#[test]
fn a_doubted_journal_is_held_for_lifetimes_that_only_other_nodes_know() {
    for earlier in [Millis::ZERO, Millis(100_000)] {
        let platform = Virtual::default();
        let pair = Pair::new(&platform);
        platform.run(async {
            let (a, b) = (&pair.a, &pair.b);
            let now = a.shard(0).now();
            b.node.set_lifetimes(Lifetimes::default().shortened(earlier, now));
            exchange(b, json!([]), json!([[0, "old", 1]])).await.unwrap();
            a.node.enter(Phase::Starting);
            witness::begin(&platform, &a.node, &a.peers).await;
            let until = if earlier > Millis::ZERO { now + earlier } else { Millis::ZERO };
            let hold = a.node.bucket_holds().get(bucket(first_pool(a, 0))).unwrap();
            assert_eq!(hold, BucketHold { since: now, until });
            let lifetime = LIFETIME.max(earlier);
            let outcome = allocate(a.shard(0), first_pool(a, 0), 1);
            let Outcome::Exhausted { until } = outcome else { panic!("{outcome:?}") };
            assert!(until >= now + lifetime && until < now + lifetime + Millis(9_000), "{until:?}");
        });
    }
}

/// Under the previous map, the buckets of shard 1 belonged to shard 0. Shard 1 has no record of the
/// allocations that shard 0 has lost.
#[test]
pub fn a_doubted_journal_holds_buckets_that_another_shard_of_the_node_now_has() {
    let platform = Virtual::default();
    let pair = Pair::with(&platform, pair::pools(), |directory| {
        let mut before = Owners::at_first(1, directory.placement());
        directory.placement().buckets_of(1).for_each(|bucket| before.give(bucket, 0));
        Begun { served_owners: Some(before), ..Begun::default() }
    });
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        exchange(b, json!([]), json!([[0, "old", 1]])).await.unwrap();
        a.node.enter(Phase::Starting);
        witness::begin(&platform, &a.node, &a.peers).await;
        a.node.enter(Phase::Serving);
        let outcome = allocate(a.shard(1), first_pool(a, 1), 1);
        assert!(matches!(outcome, Outcome::Exhausted { .. }), "{outcome:?}");
    });
}

#[test]
fn a_doubted_journal_does_not_forget_buckets_that_leave() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        pair.a_to_b.set(Links::Without(Path::Take));
        let of = a.node.directory().placement().buckets_of(0).collect();
        moves::give(&platform, &a.node, &a.peers, of, 2).await.unwrap_err();
        exchange(b, json!([]), json!([[1, "old", 1]])).await.unwrap();
        a.node.enter(Phase::Starting);
        witness::begin(&platform, &a.node, &a.peers).await;
        let served = ServedMap::read(&OsFiles, &a.node.config.data).unwrap().unwrap();
        assert_eq!(served.leaving.len(), 1);
    });
}

#[test]
fn only_records_of_other_nodes_journals_are_kept_and_all_of_them() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let b = &pair.b;
        // Before it started, the other node stored a record of a journal.
        let shards = [(0, ("first".to_owned(), 5))].into();
        SeenJournals { shards }.write(&OsFiles, &b.node.config.data).unwrap();
        let read = || SeenJournals::read(&OsFiles, &b.node.config.data).unwrap().shards;
        let known = exchange(b, json!([0, 1]), json!([[1, "a", 7]])).await.unwrap();
        assert_eq!(known, [word(0, "first", 5)]);
        assert_eq!(read().len(), 2, "it is stored before the answer");
        let (longest, longer) = ("n".repeat(64), "n".repeat(65));
        let most = ringwell_directory::SHARDS_MAX;
        for (shard, name, is_kept) in [
            (0, &*longest, true),
            (0, &*longer, false),
            (most - 1, "x", true),
            (most, "x", false),
            (2, "x", false),
            (3, "x", false),
        ] {
            let answer = exchange(b, json!([]), json!([[shard, name, 9]])).await;
            assert_eq!(answer.is_ok(), is_kept, "{shard} {name}");
            let known = exchange(b, json!([shard]), json!([])).await.unwrap();
            assert_eq!(known.contains(&word(shard, name, 9)), is_kept);
            assert_eq!(read().contains_key(&shard), shard != 2 && shard != 3 && shard != most);
        }
    });
}

#[test]
fn progress_is_reported_once_every_second_and_at_the_end() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let seconds = |count| platform.sleep_until(platform.moment() + Duration::from_secs(count));
        let known = async |shard| exchange(b, json!([shard]), json!([])).await.unwrap()[0].2;
        let reports = || pair.all_sent(Path::Journals).len();
        let (node, peers) = (a.node.clone(), a.peers.clone());
        platform.spawn(witness::go_on(platform.clone(), node, peers, Vec::new()));
        let give_number = |batch| allocate(a.shard(0), first_pool(a, 0), batch);
        give_number(1);
        seconds(2).await;
        let first = known(0).await;
        assert_eq!(first, a.shard(0).commit.durable() + 1);
        seconds(30).await;
        assert_eq!(reports(), 1, "nothing has changed");
        give_number(2);
        seconds(2).await;
        assert_eq!((reports(), known(0).await), (2, first + 1));
        // If a report of the journals is lost, it is sent again until it arrives.
        pair.a_to_b.set(Links::Without(Path::Journals));
        give_number(3);
        seconds(3).await;
        assert_eq!(known(0).await, first + 1);
        assert!(reports() > 3);
        pair.a_to_b.set(Links::Up);
        seconds(2).await;
        assert_eq!(known(0).await, first + 2);
        // The node stops between two of its regular reports.
        platform.sleep_until(platform.moment() + Duration::from_millis(300)).await;
        give_number(4);
        platform.sleep_until(platform.moment() + Duration::from_millis(10)).await;
        witness::end(&platform, &a.node, &a.peers).await;
        assert_eq!(known(0).await, first + 3);
    });
}

/// A node that did not answer at first is asked again, both for its records of journals and for the
/// owners of buckets.
#[test]
fn a_node_that_was_silent_at_the_start_is_asked_until_it_answers() {
    let platform = Virtual::default();
    let pair = Pair::new(&platform);
    platform.run(async {
        let (a, b) = (&pair.a, &pair.b);
        let seconds = |count| platform.sleep_until(platform.moment() + Duration::from_secs(count));
        exchange(b, json!([]), json!([[0, "old", 1]])).await.unwrap();
        pair.a_to_b.set(Links::Gone);
        let away = witness::begin(&platform, &a.node, &a.peers).await;
        assert_eq!(away, [2]);
        let (node, peers) = (a.node.clone(), a.peers.clone());
        platform.spawn(witness::go_on(platform.clone(), node, peers, away));
        seconds(5).await;
        assert!(a.node.bucket_holds().is_empty());
        assert!(pair.all_sent(Path::Owners).len() > 3);
        pair.a_to_b.set(Links::Up);
        seconds(2).await;
        assert!(a.node.bucket_holds().get(bucket(first_pool(a, 0))).is_some());
        assert_eq!(exchange(b, json!([0]), json!([])).await.unwrap()[0].1, a.node.identity());
        let asked = pair.all_sent(Path::Owners).len();
        seconds(10).await;
        assert_eq!(pair.all_sent(Path::Owners).len(), asked);
        // If the first node served buckets that it did not own, their owner holds them, whether
        // this is noticed at startup or later.
        let theirs = first_pool(b, 2);
        a.node.add_stale(&[bucket(theirs)]);
        know_locked(&pair, theirs);
        seconds(2).await;
        assert!(a.node.stale().is_empty());
        assert!(b.node.bucket_holds().get(bucket(theirs)).is_some());
    });
}

/// Adds the lockout of a number in this pool to the first node's state.
fn know_locked(pair: &Pair, pool: PoolId) {
    let shard = pair.a.shard(1);
    let number = pair.a.node.directory().pool(pool).unwrap().numbers()[0].first();
    pair::know(shard, number, shard.now() + Millis(50_000));
}
