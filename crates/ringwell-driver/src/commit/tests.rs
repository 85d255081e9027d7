use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ringwell_engine::Refusal;

use super::Commit;

/// Polls once.
macro_rules! poll {
    ($future:expr) => {
        $future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    };
}

#[test]
fn a_waiter_continues_when_its_group_is_durable() {
    let commit = Commit::new(3);
    assert_eq!(poll!(pin!(commit.wait(3))), Poll::Ready(Ok(())));
    let mut waiter = pin!(commit.wait(5));
    assert!(poll!(waiter).is_pending());
    commit.advance(4);
    assert!(poll!(waiter).is_pending());
    commit.advance(5);
    assert_eq!(poll!(waiter), Poll::Ready(Ok(())));
}

#[test]
fn a_refusing_journal_refuses_present_and_later_waiters() {
    let commit = Commit::new(0);
    let mut waiter = pin!(commit.wait(1));
    assert!(poll!(waiter).is_pending());
    commit.refuse(Refusal::JournalFull);
    assert_eq!(poll!(waiter), Poll::Ready(Err(Refusal::JournalFull)));
    assert_eq!(poll!(pin!(commit.wait(2))), Poll::Ready(Err(Refusal::JournalFull)));
    commit.advance(1);
    assert!(poll!(pin!(commit.wait(2))).is_pending());
}

#[test]
fn a_waiter_does_not_miss_a_refusal_that_ended_before_it_looked() {
    let commit = Commit::new(0);
    let mut waiter = pin!(commit.wait(2));
    assert!(poll!(waiter).is_pending());
    commit.refuse(Refusal::JournalFull);
    commit.advance(1);
    assert!(poll!(waiter).is_pending());
    assert_eq!(commit.waiters.borrow().len(), 1);
    commit.advance(2);
    assert_eq!(poll!(waiter), Poll::Ready(Ok(())));
}
