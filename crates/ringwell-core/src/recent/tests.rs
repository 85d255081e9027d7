use super::*;
use crate::PromoNumber;

fn slot(at: u64) -> Slot {
    let number = PromoNumber::from_e164(12_005_550_000).unwrap();
    let (allocated_at, locked_until) = (Millis(at), Millis(at + 10));
    Slot { number, allocated_at, locked_until, position: Position(at) }
}

#[test]
fn the_last_allocations_are_kept_and_older_ones_are_not() {
    let mut recent = Recent::default();
    let more = 3;
    for at in 0..(RECENT_MAX + more) as u64 {
        recent.push(Position(10 * at + 5), Millis(at + 10), &slot(at));
    }
    let before = |at: u64| {
        recent.before(Position(10 * at + 5), Millis(at + 10)).map(|before| before.allocated_at)
    };
    for at in 0..more as u64 {
        assert_eq!(before(at), None, "{at}");
    }
    for at in more as u64..(RECENT_MAX + more) as u64 {
        assert_eq!(before(at), Some(Millis(at)), "{at}");
    }
    assert_eq!(recent.before(Position(6), Millis(10)), None, "no allocation's record");
}

#[test]
fn a_foreign_allocation_keeps_its_local_time() {
    let mut recent = Recent::default();
    recent.push(Position(7), Millis(20), &slot(3));
    recent.foreign_time(Position(7), Millis(2));
    let wanted = Before {
        allocated_at: Millis(3),
        local_at: Millis(2),
        locked_until: Millis(13),
        position: Position(3),
    };
    assert_eq!(recent.before(Position(7), Millis(20)), Some(wanted));
}

/// Times of every kind: no earlier allocation, long lockouts, long pauses after a lockout, and
/// lockouts that have not ended.
#[test]
fn times_are_kept_whatever_their_distance() {
    let times = [0, 1, 5_000, 1 << 31, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, 1 << 44, u64::MAX];
    let mut recent = Recent::default();
    let mut wanted = Vec::new();
    for (allocated_at, locked_until, now) in
        times.iter().flat_map(|a| times.iter().flat_map(move |b| times.map(|c| (*a, *b, c))))
    {
        let before = Before {
            allocated_at: Millis(allocated_at),
            local_at: Millis(allocated_at),
            locked_until: Millis(locked_until),
            position: Position(3),
        };
        let old = Slot {
            allocated_at: before.allocated_at,
            locked_until: before.locked_until,
            position: before.position,
            ..slot(0)
        };
        let position = Position(4 + wanted.len() as u64);
        recent.push(position, Millis(now), &old);
        wanted.push((position, Millis(now), before));
    }
    for (position, now, before) in wanted {
        assert_eq!(recent.before(position, now), Some(before), "{position:?}, {now:?}");
    }
}

#[test]
fn a_settled_allocation_cannot_be_undone() {
    let mut recent = Recent::default();
    for at in 0..(RECENT_MAX + 3) as u64 {
        recent.push(Position(10 * at + 5), Millis(at + 10), &slot(at));
    }
    // One entry is in the newer part of the ring, and the other in the older part.
    for at in [RECENT_MAX as u64 + 1, 7] {
        let position = Position(10 * at + 5);
        assert!(!recent.is_settled(position));
        recent.settle(position);
        assert!(recent.is_settled(position));
        assert_eq!(recent.before(position, Millis(at + 10)), None, "{at}");
        let next = Position(10 * (at + 1) + 5);
        assert!(recent.before(next, Millis(at + 11)).is_some(), "{at}");
    }
    recent.settle(Position(6));
    assert!(!recent.is_settled(Position(6)), "no allocation's record");
}
