//! Tests with the clocks of two nodes.

use super::*;

fn allocated(at: u64) -> Slot {
    let number = PromoNumber::from_e164(18_885_550_142).unwrap();
    Slot { allocated_at: Millis(at), ..Slot::new(number) }
}

#[test]
fn a_foreign_allocation_has_a_local_time_until_the_next_one() {
    let (first, next) = (allocated(90), allocated(120));
    let mut times = ForeignTimes::default();
    assert_eq!(times.local_at(&first), Millis(90), "no other clock has dated it");
    times.note(first.number, Millis(90), Millis(110));
    assert_eq!(times.local_at(&first), Millis(110));
    assert_eq!(times.local_at(&next), Millis(120), "that is of another allocation");
    times.forget(first.number);
    assert_eq!(times.local_at(&first), Millis(90));
}

#[test]
fn only_allocations_with_different_clocks_are_kept() {
    let slot = allocated(90);
    let mut times = ForeignTimes::default();
    times.note(slot.number, Millis(90), Millis(90));
    assert_eq!(times.iter().count(), 0);
    times.note(slot.number, Millis(90), Millis(110));
    assert_eq!(times.iter().collect::<Vec<_>>(), [(slot.number, Millis(90), Millis(110))]);
    times.note(slot.number, Millis(90), Millis(90));
    assert_eq!(times.iter().count(), 0, "it is known better now");
}
