//! Tests clock jumps that were accepted at startup.

use ringwell_core::{NumberRange, PromoNumber};
use ringwell_journal::Group;

use super::*;
use crate::{Ask, CLOCK_GAP_MAX, Outcome, Refusal};

const START: Millis = Millis(1_700_000_000_000);
const LATER: Millis = Millis(START.0 + 2 * CLOCK_GAP_MAX.0);

fn restore() -> Restore {
    let first = PromoNumber::from_e164(18_885_550_100).unwrap();
    let numbers = vec![NumberRange::new(first, 1).unwrap()];
    Restore::new(vec![PoolSpec { id: PoolId(1), lockout: Millis(40), numbers }], 9)
}

/// Returns the header of a snapshot that began at `created_at`, before group 5.
fn snapshot(created_at: Millis) -> SnapshotHeader {
    let header = crate::tests::snapshot_header(&restore().finish(Tip::FIRST, START, false).0);
    SnapshotHeader { created_at, replay_from: 5, ..header }
}

/// Returns a group with an allocation of the pool's only number.
fn allocation() -> Group {
    let mut engine = restore().finish(Tip::FIRST.raise_epoch(), START, false).0;
    let ask = Ask { pool: 0, id: PoolId(1), params: [b"", b""], visitor: None, retry: None };
    let mut outcome = Outcome::Refused(Refusal::Late);
    engine.allocate(START, &ask, &mut outcome);
    assert!(matches!(outcome, Outcome::Allocated { .. }));
    engine.seal(Vec::new()).unwrap()
}

/// Starts up at `LATER`, and returns whether the number is free then.
fn started(restore: Restore, last: &Group) -> (bool, Doubts) {
    let tip = Tip::after(&last.header).raise_epoch();
    let (engine, doubts) = restore.finish(tip, LATER, false);
    (engine.shard().slots()[0].is_free(LATER), doubts)
}

#[test]
fn a_leap_within_a_journal_lengthens_lockouts_though_its_snapshot_is_lost() {
    let group = allocation();
    let mut first = restore();
    first.group(&group.header, &group.body).unwrap();
    let tip = Tip::after(&group.header).raise_epoch();
    let mut engine = first.finish(tip, LATER, false).0;
    engine.tick(LATER);
    let tick = engine.seal(Vec::new()).unwrap();
    let mut again = restore();
    for group in [&group, &tick] {
        again.group(&group.header, &group.body).unwrap();
    }
    assert_eq!(started(again, &tick), (false, Doubts::default()));
}

#[test]
fn a_shard_far_behind_the_others_has_not_recovered_from_their_leap() {
    let group = allocation();
    let mut behind = restore();
    behind.group(&group.header, &group.body).unwrap();
    let clocks = Clocks { boot: 7, shard_offset: 0, wall_offset: 0 };
    behind.resume(clocks, LATER, &Tip::after(&group.header));
    let (is_free, doubts) = started(behind, &group);
    assert!(!is_free);
    assert_eq!(doubts.lengthened, Some(LATER - START));
}

/// The giving shard's journal shows a clock jump. The receiving shard's journal shows none. The
/// lockout must be lengthened before it is passed on.
#[test]
fn a_lockout_that_another_shard_takes_over_has_been_lengthened() {
    let group = allocation();
    let clocks = Clocks { boot: 7, shard_offset: 0, wall_offset: 0 };
    let mut giver = Restore::new(Vec::new(), 9);
    giver.group(&group.header, &group.body).unwrap();
    giver.resume(clocks, LATER, &Tip::after(&group.header));
    let mut taker = restore();
    taker.resume(clocks, LATER, &Tip::FIRST);
    giver.retired().for_each(|number| taker.adopt(number));
    let (engine, _) = taker.finish(Tip::FIRST.raise_epoch(), LATER, false);
    assert!(!engine.shard().slots()[0].is_free(LATER));
}

/// If the snapshot's time were not trusted, each startup would lengthen the lockout by the length
/// of the jump.
#[test]
fn a_snapshot_begun_after_the_leap_is_trusted() {
    let group = allocation();
    let mut restore = restore();
    restore.group(&group.header, &group.body).unwrap();
    restore.begin_snapshot(&snapshot(LATER - Millis(1)));
    assert_eq!(restore.recorded(&Tip::FIRST).last_at, LATER - Millis(1));
    assert_eq!(started(restore, &group), (true, Doubts::default()));
}

#[test]
fn an_unseen_number_does_not_lengthen_a_hold() {
    let number = PromoNumber::from_e164(18_885_550_100).unwrap();
    let entry = |allocated_at, locked_until| NumberEntry {
        number,
        pool: PoolId(1),
        allocated_at,
        locked_until,
        position: Position(0),
        visitor: None,
    };
    let held_for = |entry: &NumberEntry| {
        let mut restore = restore();
        restore.begin_snapshot(&snapshot(START));
        restore.number(entry);
        let until = restore.finish(Tip::FIRST.raise_epoch(), START, true).1.held_until;
        until.unwrap() - START
    };
    // In the first entry, the number's only allocation was undone a while ago. In the second entry,
    // the number's lockout is longer than the current lifetime of its pool.
    assert_eq!(held_for(&entry(Millis::ZERO, START - Millis(5))), Millis(40));
    assert_eq!(held_for(&entry(START - Millis(30), START + Millis(20))), Millis(50));
}

/// The number's only allocation was undone: its slot contains no allocation time, and stays locked
/// for the rest of the millisecond.
#[test]
fn a_number_that_no_visitor_has_seen_does_not_lengthen_the_next_hold() {
    let number = PromoNumber::from_e164(18_885_550_100).unwrap();
    // The number was released when the snapshot began, or later in a group that is replayed.
    // After the release it has no allocation, or one from an hour ago.
    let hour_ago = Millis(START.0 - 3_600_000);
    for (n, at, allocated_at) in [
        (4, START, Millis::ZERO),
        (5, START + Millis(9), Millis::ZERO),
        (4, START, hour_ago),
        (5, START + Millis(9), hour_ago),
    ] {
        let mut restore = restore();
        restore.begin_snapshot(&snapshot(START));
        restore.number(&NumberEntry {
            number,
            pool: PoolId(1),
            allocated_at,
            locked_until: at + Millis(1),
            position: ringwell_journal::position(n, 0),
            visitor: None,
        });
        let (_, doubts) = restore.finish(Tip::FIRST.raise_epoch(), START + Millis(50), true);
        assert_eq!(doubts.held_until, Some(START + Millis(90)), "group {n}, {allocated_at:?}");
    }
}
