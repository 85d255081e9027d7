//! The numbers of a batch if the journal or another shard is late, or if the client disconnects.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_directory::{Changes, Placement};
use ringwell_driver::batch::{self, Answered};
use ringwell_driver::message::Message;
use ringwell_driver::stats::Kind;
use ringwell_driver::{Platform, Shard};
use ringwell_wire::RequestError;

use crate::support::{Virtual, body, bulk, locked, shards};

const LIFETIME: Millis = Millis(60_000);

/// Runs two futures at the same time until both complete.
async fn both<A: 'static, B>(
    platform: &Virtual,
    one: impl Future<Output = A> + 'static,
    other: impl Future<Output = B>,
) -> (A, B) {
    let one = platform.task(one);
    let other = other.await;
    (one.await.unwrap(), other)
}

/// Answers a batch of `rows` rows with a deadline `ms` milliseconds from now.
fn answering(
    shard: &Rc<Shard<Virtual>>,
    rows: usize,
    ms: u64,
) -> impl Future<Output = String> + 'static {
    let (shard, body) = (Rc::clone(shard), body(shard, rows));
    async move { bulk(&shard, body, &shard.platform.terms(ms)).await }
}

#[test]
fn rows_that_the_journal_does_not_accept_in_time_overflow_and_their_numbers_are_released() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
    let answer = platform.run(answering(&shard, 40, 20));
    assert_eq!(platform.moment().0, Duration::from_millis(20));
    assert_eq!(answer.matches("\"overflow\":true").count(), 40, "{answer}");
    assert_eq!(shard.engine.borrow().counts().allocated, 40);
    assert_eq!(locked(&shard), 0);
}

#[test]
fn an_answer_leaves_when_its_group_is_durable_and_not_before() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
    let (answer, stored_at) = platform.run(both(&platform, answering(&shard, 40, 100), async {
        platform.sleep_until(platform.moment() + Duration::from_millis(7)).await;
        let group = shard.engine.borrow().newest_group();
        shard.stored(group);
        platform.moment()
    }));
    assert_eq!(stored_at.0, Duration::from_millis(7));
    assert_eq!(platform.moment(), stored_at);
    assert!(!answer.contains("overflow"), "{answer}");
    assert_eq!(locked(&shard), 40);
}

/// A future with a time limit is polled before its timer, so it returns a ready result even long
/// after the deadline. The batch must therefore check the deadline itself.
#[test]
fn numbers_that_are_ready_long_after_the_deadline_overflow_and_are_free_again() {
    for (late_ms, overflow) in [(5, 0), (6, 40)] {
        let platform = Virtual::default();
        let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
        let (answer, ()) = platform.run(both(&platform, answering(&shard, 40, 20), async {
            platform.turn().await;
            // The journal has stored the group, but other work is occupying the thread.
            let group = shard.engine.borrow().newest_group();
            shard.stored(group);
            platform.0.advance(platform.moment() + Duration::from_millis(20 + late_ms));
        }));
        assert_eq!(answer.matches("\"overflow\":true").count(), overflow, "{late_ms} ms late");
        assert_eq!(shard.engine.borrow().counts().allocated, 40);
        assert_eq!(locked(&shard), 40 - overflow);
    }
}

#[test]
fn a_client_that_disconnects_leaves_its_numbers_free() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
    let waiting = answering(&shard, 40, 60_000);
    // The journal never answers, and the client disconnects after a moment.
    let cut = platform.run(platform.within(Duration::from_millis(20), waiting));
    assert_eq!(cut, None);
    assert_eq!(shard.engine.borrow().counts().allocated, 40);
    assert_eq!(locked(&shard), 0);
}

#[test]
fn a_silent_shard_affects_only_the_numbers_of_its_own_rows() {
    let platform = Virtual::default();
    let mut all = shards(&platform, 2, LIFETIME, Durability::Memory);
    let (other, mut queue) = all.remove(1);
    let (shard, _queue) = all.remove(0);
    let answer = platform.run(answering(&shard, 100, 30));
    assert_eq!(platform.moment().0, Duration::from_millis(30));
    let own = shard.directory().pools_of(0).count();
    assert_eq!(answer.matches("\"overflow\":true").count(), 100 - own);
    assert_eq!(locked(&shard), own);
    // The other shard processes the rows too late, so it hands out no numbers.
    platform.0.advance(platform.moment() + Duration::from_millis(1));
    let Ok(Message::Rows(rows)) = queue.try_recv() else { panic!("it was not asked") };
    platform.run(other.serve_peer(rows));
    assert_eq!(other.engine.borrow().counts().allocated, 0);
    // These batches fill the queue, so the next batch does not wait for the other shard.
    for _ in 0..4 {
        platform.run(answering(&shard, 100, 1));
    }
    let begun = platform.moment();
    platform.run(answering(&shard, 100, 5_000));
    assert_eq!(platform.moment(), begun, "it waited for a shard without a request");
}

#[test]
fn an_owner_hands_out_no_number_without_a_waiting_batch() {
    let platform = Virtual::default();
    let mut all = shards(&platform, 2, LIFETIME, Durability::Memory);
    let (other, mut queue) = all.remove(1);
    let (shard, _queue) = all.remove(0);
    platform.run(async {
        let waiting = answering(&shard, 100, 60_000);
        assert_eq!(platform.within(Duration::from_millis(10), waiting).await, None);
        let Ok(Message::Rows(rows)) = queue.try_recv() else { panic!("it was not asked") };
        other.serve_peer(rows).await;
    });
    assert_eq!((locked(&shard), locked(&other)), (0, 0));
    assert_eq!(other.engine.borrow().counts().allocated, 0, "not even for a moment");
}

/// Returns the answer to 40 rows, and the allocation times of their numbers.
async fn answering_with_times(shard: Rc<Shard<Virtual>>) -> (String, Vec<Option<Millis>>) {
    let body = body(&shard, 40);
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &shard.node.wire_limits);
    let render = |answered: &Answered<'_>| {
        let times = (0..40).map(|row| Some(answered.given_number(row)?.1));
        (String::from_utf8(answered.bulk()).unwrap(), times.collect())
    };
    let terms = shard.platform.terms(60_000);
    let answer: Result<_, RequestError> =
        batch::answer(&shard, Kind::Bulk, &terms, read, render).await;
    answer.unwrap()
}

/// Shard 0 has an outdated placement, so it sends its rows to shard 1. Only the newest owner hands
/// out numbers, 9 ms after it receives the rows.
#[test]
fn rows_refused_as_moved_are_requested_once_more_from_the_new_owner() {
    for owner in [2, 0] {
        let platform = Virtual::default();
        let mut all = shards(&platform, 3, LIFETIME, Durability::Memory);
        let before = all[0].0.node.directory();
        let all_to = |shard| Placement::from_owners(&[shard; 1024], 3).unwrap();
        let state = |shard| Arc::new(before.moved(all_to(shard)));
        let (outdated, newest) = (state(1), state(owner));
        let [shard, old, new] = [0, 1, usize::from(owner)].map(|index| Rc::clone(&all[index].0));
        // The new owner has not had this test's numbers before.
        for (index, _) in Changes::between(&before, &newest, 1).removed {
            old.engine.borrow_mut().remove_pool(index);
        }
        for (index, pool) in Changes::between(&before, &newest, owner).put {
            new.engine.borrow_mut().put_pool(index, &pool.spec()).unwrap();
        }
        shard.use_directory(outdated);
        let answering = answering_with_times(Rc::clone(&shard));
        let ((answer, times), at) = platform.run(both(&platform, answering, async {
            let Some(Message::Rows(rows)) = all[1].1.recv().await else { panic!("not asked") };
            // While the rows were in the queue of shard 1, shard 0 received the newest placement.
            shard.use_directory(newest);
            old.serve_peer(rows).await;
            let queue = &mut all[usize::from(owner)].1;
            let Some(Message::Rows(rows)) = queue.recv().await else { panic!("not asked") };
            platform.0.advance(platform.moment() + Duration::from_millis(9));
            new.serve_peer(rows).await;
            new.now()
        }));
        assert!(!answer.contains("overflow") && !answer.contains("errors"), "{answer}");
        assert_eq!(new.engine.borrow().counts().allocated, 40);
        // The answer must contain the allocation time by the clock of the owner that handed out the
        // number. With a different time, a web page could not release its number.
        assert_eq!(times, [Some(at); 40], "owner {owner}");
    }
}
