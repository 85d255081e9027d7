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
        recent.push(Position(10 * at + 5), &slot(at));
    }
    let before = |at: u64| recent.before(Position(10 * at + 5)).map(|before| before.allocated_at);
    for at in 0..more as u64 {
        assert_eq!(before(at), None, "{at}");
    }
    for at in more as u64..(RECENT_MAX + more) as u64 {
        assert_eq!(before(at), Some(Millis(at)), "{at}");
    }
    assert_eq!(recent.before(Position(6)), None, "no allocation's record");
}

#[test]
fn a_foreign_allocation_keeps_its_local_time() {
    let mut recent = Recent::default();
    recent.push(Position(7), &slot(3));
    recent.foreign_time(Position(7), Millis(2));
    let wanted = Before {
        allocated_at: Millis(3),
        local_at: Millis(2),
        locked_until: Millis(13),
        position: Position(3),
    };
    assert_eq!(recent.before(Position(7)), Some(wanted));
}
