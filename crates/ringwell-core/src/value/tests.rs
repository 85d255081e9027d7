//! Tests edge cases of times, and how values are printed.

use alloc::string::ToString;

use super::*;

#[test]
fn a_time_is_limited_to_its_range_at_both_ends() {
    assert_eq!(Millis(7) + Millis(5), Millis(12));
    assert_eq!(Millis(u64::MAX - 1) + Millis(5), Millis(u64::MAX), "such a lockout never ends");
    assert_eq!(Millis(7) - Millis(5), Millis(2));
    assert_eq!(Millis(5) - Millis(7), Millis::ZERO);
    assert_eq!(Millis(7).since(Millis(5)), Millis(2));
    assert_eq!(Millis(5).since(Millis(7)), Millis::ZERO, "a future time is not long ago");
}

#[test]
fn a_time_prints_with_its_unit_and_a_pool_as_its_id() {
    assert_eq!(Millis(1500).to_string(), "1500 ms");
    assert_eq!(PoolId(4711).to_string(), "4711");
}
