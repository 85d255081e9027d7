use super::*;

const GROUPS_MAX: u64 = (1 << 44) - 1;

#[test]
fn a_position_names_its_group_and_offset_up_to_the_limits_of_both() {
    assert_eq!(BODY_BYTES_MAX, 1_048_576);
    let last = BODY_BYTES_MAX - 1;
    for (n, offset) in [(0, 0), (0, 1), (1, 0), (1, last), (5, 7), (GROUPS_MAX, last)] {
        assert_eq!(position_parts(position(n, offset)), (n, offset));
    }
    assert!(position(1, last) < position(2, 0), "positions rise as records are written");
}

#[test]
#[should_panic(expected = "offset outside the body")]
fn no_record_begins_after_the_longest_body() {
    let _ = position(1, BODY_BYTES_MAX);
}

#[test]
#[should_panic(expected = "group number too large")]
fn no_group_has_a_number_of_more_than_44_bits() {
    let _ = position(GROUPS_MAX + 1, 0);
}
