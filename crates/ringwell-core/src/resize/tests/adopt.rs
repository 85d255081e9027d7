//! Tests merging number states that are received from another shard.

use super::{number, spec};
use crate::{Millis, PoolId, Position, Rebuild, Retired, Shard, Slot, VisitorId};

const ANN: VisitorId = VisitorId([1; 16]);
const BOB: VisitorId = VisitorId([2; 16]);

/// A pool of two numbers with 50 ms lockouts.
fn shard() -> Shard {
    Rebuild::new(vec![spec(0, 0b11, 0, 50)]).finish()
}

/// Another shard's state of the first number, which was in the same pool there.
fn received(allocated_at: u64, until: u64, local_at: u64, visitor: Option<VisitorId>) -> Retired {
    let slot = Slot {
        number: number(0),
        allocated_at: Millis(allocated_at),
        locked_until: Millis(until),
        position: Position(2),
    };
    Retired { slot, local_at: Millis(local_at), pool: PoolId(100), visitor }
}

#[test]
fn known_facts_change_nothing() {
    for is_gone in [false, true] {
        let mut shard = shard();
        if is_gone {
            shard.remove_pool(0, None);
        }
        let first = received(90, 200, 105, Some(ANN));
        assert_eq!(shard.adopt(Millis(110), &first), Some(first));
        assert_eq!(shard.adopt(Millis(120), &first), None, "the same once more");
        assert_eq!(
            shard.adopt(Millis(120), &received(80, 200, 95, Some(BOB))),
            None,
            "an older one"
        );
        assert_eq!(shard.newest(number(0)), Some(first.slot));
        assert_eq!(shard.newest_visitor(u32::MAX, number(0)), Some(ANN));
    }
}

#[test]
fn of_two_allocations_of_one_millisecond_the_reported_one_is_later() {
    let mut shard = shard();
    shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
    shard.remove_pool(0, None);
    let adopted = shard.adopt(Millis(101), &received(90, 120, 100, Some(BOB))).unwrap();
    assert_eq!((adopted.slot.allocated_at, adopted.visitor), (Millis(90), Some(BOB)));
    assert_eq!(adopted.slot.locked_until, Millis(150), "both lockouts run");
}

#[test]
fn an_allocation_whose_lockout_was_extended_elsewhere_keeps_its_age_and_visitor() {
    for (is_gone, visitor, holder) in
        [(false, None, ANN), (false, Some(BOB), BOB), (true, None, ANN), (true, Some(BOB), BOB)]
    {
        let mut shard = shard();
        shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
        if is_gone {
            shard.remove_pool(0, None);
        }
        let adopted = shard.adopt(Millis(180), &received(100, 300, 170, visitor)).unwrap();
        assert_eq!((adopted.local_at, adopted.slot.locked_until), (Millis(100), Millis(300)));
        assert_eq!(shard.newest_local_at(number(0)), Some(Millis(100)));
        assert_eq!(adopted.visitor, Some(holder));
        assert_eq!(shard.newest_visitor(u32::MAX, number(0)), Some(holder));
    }
}

#[test]
fn a_later_allocation_without_a_visitor_takes_the_number_from_its_visitor() {
    for is_gone in [false, true] {
        let mut shard = shard();
        shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
        if is_gone {
            shard.remove_pool(0, None);
        }
        let adopted = shard.adopt(Millis(180), &received(160, 210, 160, None)).unwrap();
        assert_eq!(adopted.visitor, None);
        assert_eq!(shard.newest_visitor(u32::MAX, number(0)), None);
        assert_eq!(shard.newest_local_at(number(0)), Some(Millis(160)));
    }
}

#[test]
fn of_two_numbers_of_a_visitor_the_later_one_is_kept() {
    // When the state of the first number is received, the visitor has had the second number since
    // time 160.
    for (first, kept) in [
        (received(100, 300, 100, Some(ANN)), 1),
        (received(161, 300, 159, Some(ANN)), 1),
        (received(159, 300, 161, Some(ANN)), 0),
    ] {
        let mut shard = shard();
        shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
        shard.allocate(Millis(160), 0, Some(ANN), Position(2)).unwrap();
        shard.adopt(Millis(165), &first).unwrap();
        let again = shard.keep(Millis(170), 0, ANN, Position(3)).unwrap();
        assert_eq!(again.number, number(kept), "{first:?}");
    }
}

#[test]
fn a_visitor_is_known_only_to_the_reported_pool() {
    for (pool, is_known) in [(PoolId(100), true), (PoolId(101), false)] {
        let mut shard = shard();
        let from = Retired { pool, ..received(90, 200, 90, Some(ANN)) };
        shard.adopt(Millis(100), &from).unwrap();
        assert_eq!(shard.keep(Millis(110), 0, ANN, Position(3)).is_some(), is_known);
    }
}

#[test]
fn the_next_holder_does_not_share_a_number_with_a_reported_visitor() {
    let mut shard = shard();
    shard.adopt(Millis(100), &received(90, 120, 90, Some(ANN))).unwrap();
    let given = [3, 4].map(|at| shard.allocate(Millis(120), 0, None, Position(at)).unwrap());
    assert!(given.iter().any(|grant| grant.number == number(0)));
    assert_eq!(shard.keep(Millis(130), 0, ANN, Position(5)), None);
}

#[test]
fn the_longer_lockout_wins_even_if_another_shards_clock_makes_its_allocation_look_older() {
    let mut shard = Rebuild::new(vec![spec(0, 0b1, 0, 50)]).finish();
    shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
    let slot = Slot {
        number: number(0),
        allocated_at: Millis(90),
        locked_until: Millis(200),
        position: Position(2),
    };
    let from = Retired { slot, local_at: Millis(90), pool: PoolId(100), visitor: None };
    let adopted = shard.adopt(Millis(110), &from).unwrap();
    assert_eq!(adopted.visitor, Some(ANN), "who got it later keeps it");
    let known = shard.newest(number(0)).unwrap();
    assert_eq!((known.allocated_at, known.locked_until), (Millis(100), Millis(200)));
}

#[test]
fn a_report_of_the_previous_owner_wins_whatever_its_clock() {
    let received = |allocated_at, here| Retired {
        slot: Slot {
            number: number(0),
            allocated_at: Millis(allocated_at),
            locked_until: Millis(120),
            position: Position(2),
        },
        local_at: Millis(here),
        pool: PoolId(100),
        visitor: Some(BOB),
    };
    // Two times by the previous owner's clock: one before this shard's allocation, and one in the
    // future.
    for allocated_at in [90, 5000] {
        let mut shard = Rebuild::new(vec![spec(0, 0b1, 0, 50)]).finish();
        shard.allocate(Millis(100), 0, Some(ANN), Position(1)).unwrap();
        shard.remove_pool(0, None);
        let adopted = shard.adopt(Millis(110), &received(allocated_at, 110)).unwrap();
        let name = (adopted.slot.allocated_at, adopted.slot.locked_until, adopted.visitor);
        let visitor = Some(BOB);
        assert_eq!(name, (Millis(allocated_at), Millis(150), visitor), "the longer lockout");
        shard.put_pool(0, &spec(0, 0b1, 0, 50), None).unwrap();
        assert_eq!(
            shard.local_at(0),
            Millis(109),
            "after the present record, before the next \
            one"
        );
        let again = shard.adopt(Millis(130), &received(allocated_at, 130));
        assert_eq!(again, None, "it is known");
        shard.allocate(Millis(150), 0, None, Position(3)).unwrap();
        assert_eq!(shard.local_at(0), Millis(150));
        assert_eq!(shard.foreign_times().count(), 0);
    }
}
