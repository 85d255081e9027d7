//! Tests rows that name a visitor or belong to a repeatable batch, but whose answers are never
//! sent.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_driver::batch::Terms;
use ringwell_driver::message::Message;
use ringwell_driver::{Platform, Shard};

use crate::support::{Virtual, body, bulk, locked, shards};

const LIFETIME: Millis = Millis(60_000);
const KEY: [u8; 16] = [7; 16];

/// Returns the body of a bulk request with a different visitor for each row.
fn visitors(shard: &Shard<Virtual>, rows: usize) -> Bytes {
    let text = String::from_utf8(body(shard, rows).to_vec()).unwrap();
    let with = |(visitor, part): (usize, &str)| match part.strip_suffix('?') {
        Some(part) => format!("{part}?ringwell_visitor=v{visitor}&"),
        None => part.to_owned(),
    };
    let parts = text.split_inclusive("allocate_number.json?").enumerate().map(with);
    parts.collect::<String>().into()
}

fn terms(platform: &Virtual, retry: Option<[u8; 16]>) -> Terms {
    Terms { retry, ..platform.terms(20) }
}

/// Returns the count of numbers for which look-ups would name a visitor.
fn held(shard: &Shard<Virtual>) -> usize {
    let engine = shard.engine.borrow();
    engine.shard().slots().iter().filter(|slot| slot.allocated_at > Millis::ZERO).count()
}

#[test]
fn late_rows_with_keys_or_visitors_hold_no_unseen_number() {
    for (retry, has_visitors) in [(Some(KEY), false), (None, true), (Some(KEY), true)] {
        let platform = Virtual::default();
        let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
        let body = if has_visitors { visitors(&shard, 40) } else { body(&shard, 40) };
        let answer = platform.run(bulk(&shard, body, &terms(&platform, retry)));
        assert_eq!(answer.matches("\"overflow\":true").count(), 40, "{answer}");
        assert_eq!(shard.engine.borrow().counts().allocated, 40);
        assert_eq!((locked(&shard), held(&shard)), (0, 0), "{retry:?}, visitors: {has_visitors}");
        assert_eq!(shard.engine.borrow().answers_remembered(), 0);
    }
}

#[test]
fn a_late_allocation_of_another_shard_is_withdrawn_there() {
    for (retry, has_visitors) in [(Some(KEY), false), (None, true)] {
        let platform = Virtual::default();
        let mut all = shards(&platform, 2, LIFETIME, Durability::Disk);
        let (other, mut queue) = all.remove(1);
        let (shard, _queue) = all.remove(0);
        let body = if has_visitors { visitors(&shard, 100) } else { body(&shard, 100) };
        let (asking, terms) = (Rc::clone(&shard), terms(&platform, retry));
        let answer = platform.run(async {
            let answer = platform.task(async move { bulk(&asking, body, &terms).await });
            platform.turn().await;
            let Ok(Message::Rows(rows)) = queue.try_recv() else { panic!("it was not asked") };
            other.serve_peer(rows).await;
            let answer = answer.await.unwrap();
            // By the time the group is stored, no caller is waiting for it any more.
            let group = other.engine.borrow().newest_group();
            other.stored(group);
            answer
        });
        assert_eq!(answer.matches("\"overflow\":true").count(), 100, "{answer}");
        assert!(other.engine.borrow().counts().allocated > 0);
        assert_eq!((locked(&shard), held(&shard)), (0, 0));
        assert_eq!((locked(&other), held(&other)), (0, 0));
    }
}

/// The second request is answered while the first one still waits for the journal.
#[test]
fn a_number_given_to_a_repeated_row_stays_when_the_first_answer_is_late() {
    let platform = Virtual::default();
    let (shard, _queue) = shards(&platform, 1, LIFETIME, Durability::Disk).remove(0);
    let bulk = |ms| {
        let (shard, body) = (Rc::clone(&shard), body(&shard, 40));
        let terms = Terms { retry: Some(KEY), ..platform.terms(ms) };
        async move { bulk(&shard, body, &terms).await }
    };
    let (late, in_time) = (bulk(20), bulk(60));
    let (late, in_time) = platform.run(async {
        let late = platform.task(late);
        let in_time = platform.task(in_time);
        platform.sleep_until(platform.moment() + Duration::from_millis(40)).await;
        let group = shard.engine.borrow().newest_group();
        shard.stored(group);
        (late.await.unwrap(), in_time.await.unwrap())
    });
    assert_eq!(late.matches("\"overflow\":true").count(), 40, "{late}");
    assert!(!in_time.contains("\"overflow\":true"), "{in_time}");
    assert_eq!((locked(&shard), held(&shard)), (40, 40));
    assert_eq!(shard.engine.borrow().answers_remembered(), 40);
}
