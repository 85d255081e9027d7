//! Logs with foreign messages at any place, including copies of groups, and logs with missing or
//! damaged messages.

use std::cell::RefCell;
use std::future::ready;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use ringwell_core::Millis;
use ringwell_journal::{Author, Record, Tip, Writer, encode_message};

use super::*;

/// A log with places from 1 on, of which the first `trimmed` are gone.
#[derive(Clone, Debug, Default)]
struct Plain {
    messages: Rc<RefCell<Vec<Option<Bytes>>>>,
    trimmed: u64,
}

impl Log for Plain {
    fn append(
        &self,
        n: u64,
        message: Bytes,
    ) -> impl Future<Output = Result<(), NotAppended>> + 'static {
        let mut messages = self.messages.borrow_mut();
        let fits = n == messages.len() as u64 + 1;
        messages.extend(fits.then_some(Some(message)));
        ready(if fits { Ok(()) } else { Err(NotAppended::Taken) })
    }

    fn read(&self, n: u64) -> impl Future<Output = Result<Option<Bytes>, Unreached>> + 'static {
        let at = usize::try_from(n - 1).unwrap();
        let found = self.messages.borrow().get(at).cloned().flatten();
        ready(Ok(found.filter(|_| n > self.trimmed)))
    }

    fn ends(&self) -> impl Future<Output = Result<Range<u64>, Unreached>> + 'static {
        ready(Ok(self.trimmed + 1..self.messages.borrow().len() as u64 + 1))
    }

    fn trim(&self, _: u64) -> impl Future<Output = Result<(), Unreached>> + 'static {
        ready(Ok(()))
    }
}

/// Returns the result of a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("it waits"),
    }
}

fn group(n: u64) -> Bytes {
    group_of(0, n)
}

fn group_of(shard: u32, n: u64) -> Bytes {
    let mut writer = Writer::new(Tip { next_n: n, ..Tip::FIRST });
    writer.append(&Record::Tick { at: Millis(1) });
    let author = Author { shard, journal: [1; 16], incarnation: [2; 16] };
    encode_message(&author, &writer.seal(Vec::new()).unwrap()).into()
}

fn copied() -> impl Strategy<Value = Copied> {
    prop_oneof![
        prop_oneof![1..3_u64, 1..60_u64].prop_map(Copied::Back),
        (1..200_u64).prop_map(Copied::OfOther),
    ]
}

/// Returns a log and the places of its groups. `foreign` contains the counts of foreign messages
/// before each group and at the end of the log.
fn log(foreign: &[u8]) -> (Plain, Vec<u64>) {
    log_with(foreign, || None)
}

/// Foreign messages that are copies of groups.
#[derive(Clone, Debug)]
enum Copied {
    /// A copy of an earlier group in the log, this many groups back.
    Back(u64),
    /// Another shard's group.
    OfOther(u64),
}

impl Copied {
    /// Returns the copy that is put before group `n`.
    fn message(&self, n: u64) -> Option<Bytes> {
        match self {
            Self::Back(back) => n.checked_sub(*back).filter(|n| *n > 0).map(group),
            Self::OfOther(n) => Some(group_of(1, *n)),
        }
    }
}

/// Like [`log`], but a foreign message may be a copy of a group.
fn log_with(foreign: &[u8], mut copied: impl FnMut() -> Option<Copied>) -> (Plain, Vec<u64>) {
    let (mut messages, mut places) = (Vec::new(), Vec::new());
    for (n, count) in (1_u64..).zip(foreign) {
        messages.extend((0..*count).map(|_| {
            let copied = copied().and_then(|copied| copied.message(n));
            Some(copied.unwrap_or(Bytes::from_static(b"not a group")))
        }));
        if n < foreign.len() as u64 {
            messages.push(Some(group(n)));
            places.push(messages.len() as u64);
        }
    }
    (Plain { messages: Rc::new(RefCell::new(messages)), trimmed: 0 }, places)
}

proptest! {
    #[test]
    fn every_group_is_found_wherever_foreign_messages_are(
        foreign in prop::collection::vec(prop_oneof![6 => Just(0_u8), 1 => 0..4_u8], 2..60),
        copied in prop::collection::vec(prop::option::of(copied()), 240),
        trimmed in 0..40_u64,
    ) {
        let (has_copies, mut copied) = (trimmed % 2 == 0, copied.into_iter());
        let copied = || {
            let copied = copied.next().flatten();
            copied.filter(|copied| has_copies || matches!(copied, Copied::OfOther(_)))
        };
        let (mut log, places) = log_with(&foreign, copied);
        // The last group is always kept.
        log.trimmed = trimmed.min(places[places.len() - 1] - 1);
        if has_copies {
            // The log is trimmed up to a group, because a copy at its beginning would look like its
            // first group.
            let kept = places.iter().find(|place| **place > log.trimmed).unwrap();
            log.trimmed = kept - 1;
        }
        let first = places.iter().position(|place| *place > log.trimmed).unwrap() as u64 + 1;
        let numbered = Numbered::new(log.clone(), 0);
        let end = places.len() as u64 + 1;
        prop_assert_eq!(now(numbered.ends()), Ok(first..end));
        for n in first..end {
            prop_assert_eq!(numbered.places().place(n), places[usize::try_from(n - 1).unwrap()]);
            prop_assert_eq!(now(numbered.read(n)), Ok(Some(group(n))));
        }
        prop_assert_eq!(numbered.places().foreign_before(end), u64::from(foreign[foreign.len() - 1]));
        prop_assert_eq!(now(numbered.read(end)), Ok(None));
        prop_assert_eq!(now(numbered.append(end, group(end))), Ok(()));
        prop_assert_eq!(now(numbered.read(end)), Ok(Some(group(end))));
        prop_assert_eq!(now(numbered.ends()), Ok(first..end + 1));
    }
}

proptest! {
    /// While the foreign messages are counted, the leader lacks groups or has damaged ones. Another
    /// leader has these groups intact, so every group must be found.
    #[test]
    fn every_group_is_found_although_the_first_leader_lacks_some(
        foreign in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0..4_u8], 2..30),
        lacks in prop::collection::vec(prop_oneof![2 => Just(0_u8), 1 => 1..3_u8], 30),
        tried in prop::collection::vec(0..30_u64, 0..20),
        order in prop::collection::vec(0..30_u64, 0..60),
    ) {
        let (log, places) = log(&foreign);
        let intact = log.messages.borrow().clone();
        for (place, lacks) in places.iter().zip(lacks) {
            let at = usize::try_from(place - 1).unwrap();
            match lacks {
                0 => {}
                1 => log.messages.borrow_mut()[at] = None,
                _ => log.messages.borrow_mut()[at] = Some(Bytes::from_static(b"RPm1")),
            }
        }
        let (numbered, end) = (Numbered::new(log.clone(), 0), places.len() as u64 + 1);
        let are_all_lost = now(numbered.ends()) != Ok(1..end);
        prop_assume!(!are_all_lost);
        let within = |n: u64| 1 + n % (end - 1);
        for n in tried {
            let _ = now(numbered.read(within(n)));
        }
        log.messages.replace(intact);
        for n in order.into_iter().map(within).chain(1..end) {
            prop_assert_eq!(now(numbered.read(n)), Ok(Some(group(n))));
            prop_assert_eq!(numbered.places().place(n), places[usize::try_from(n - 1).unwrap()]);
        }
        prop_assert_eq!(numbered.places().place(end), log.messages.borrow().len() as u64 + 1);
        prop_assert_eq!(now(numbered.append(end, group(end))), Ok(()));
    }
}

#[test]
fn an_append_passes_foreign_messages_and_reports_that_it_was_refused() {
    let (log, _) = log(&[0, 0, 0]);
    let numbered = Numbered::new(log.clone(), 0);
    assert_eq!(now(numbered.ends()), Ok(1..3));
    log.messages.borrow_mut().extend([Some(Bytes::new()), Some(Bytes::from_static(b"RQm1"))]);
    assert_eq!(now(numbered.append(3, group(3))), Err(NotAppended::Taken));
    assert_eq!(now(numbered.read(2)), Ok(Some(group(2))));
    assert_eq!(now(numbered.read(3)), Ok(None));
    assert_eq!(now(numbered.append(3, group(3))), Ok(()));
    assert_eq!(numbered.places().place(3), 5);
}

#[test]
fn an_append_passes_copies_of_earlier_groups() {
    let (log, _) = log(&[0, 0, 0, 0]);
    let numbered = Numbered::new(log.clone(), 0);
    assert_eq!(now(numbered.ends()), Ok(1..4));
    log.messages.borrow_mut().extend([Some(group(2)), Some(group(3)), Some(group(1))]);
    assert_eq!(now(numbered.append(4, group(4))), Err(NotAppended::Taken));
    assert_eq!(now(numbered.read(3)), Ok(Some(group(3))));
    assert_eq!(now(numbered.read(4)), Ok(None));
    assert_eq!(now(numbered.append(4, group(4))), Ok(()));
    assert_eq!(numbered.places().place(4), 7);
}

#[test]
fn messages_of_any_version_are_never_passed() {
    for mark in [&b"RPm1"[..], b"RPm2 of a later version", b"RPm"] {
        let (log, _) = log(&[0, 0]);
        let numbered = Numbered::new(log.clone(), 0);
        log.messages.borrow_mut().push(Some(Bytes::copy_from_slice(mark)));
        assert_eq!(now(numbered.append(2, group(2))), Err(NotAppended::Taken));
        assert_eq!(now(numbered.read(2)), Ok(Some(Bytes::copy_from_slice(mark))));
        assert_eq!(numbered.places().place(2), 2);
    }
}

#[test]
fn a_group_that_has_become_unrecognisable_is_missing_and_not_passed() {
    let (log, _) = log(&[0, 0, 0, 0, 0]);
    let numbered = Numbered::new(log.clone(), 0);
    assert_eq!(now(numbered.ends()), Ok(1..5));
    let intact = log.messages.borrow_mut()[1].replace(Bytes::from_static(b"?Pm1"));
    assert_eq!(now(numbered.read(2)), Ok(None));
    assert_eq!(now(numbered.read(3)), Ok(Some(group(3))));
    // Another server has the group.
    log.messages.borrow_mut()[1] = intact;
    assert_eq!(now(numbered.read(2)), Ok(Some(group(2))));
}

#[test]
fn foreign_messages_of_a_log_without_groups_have_no_numbers() {
    let (only_foreign, _) = log(&[3]);
    let numbered = Numbered::new(only_foreign, 0);
    assert_eq!(now(numbered.ends()), Ok(1..1));
    assert_eq!(numbered.places().place(1), 4);
    assert_eq!(numbered.places().foreign_before(1), 3);
    // Later, all foreign messages are dropped.
    let (mut dropped, _) = log(&[2, 0]);
    let numbered = Numbered::new(dropped.clone(), 0);
    assert_eq!(now(numbered.ends()), Ok(1..2));
    dropped.trimmed = 3;
    let numbered = Numbered { log: dropped, ..numbered };
    assert_eq!(now(numbered.ends()), Ok(2..2));
}
