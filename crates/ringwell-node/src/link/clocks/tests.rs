use super::{Estimate, ahead_ms};

#[test]
fn only_a_certain_difference_counts() {
    for (theirs, ahead) in [
        (1_300, 0),
        (1_500, 0),
        (1_900, 0),
        (1_901, 1),
        (3_900, 2_000),
        (1_299, -1),
        (0, -1_300),
        (u64::MAX, i64::MAX),
    ] {
        assert_eq!(ahead_ms(theirs, 1_300, 1_900), ahead, "{theirs}");
    }
    // This machine's clock was set back between request and answer.
    assert_eq!(ahead_ms(500, 1_300, 400), 100 - 800);
}

#[test]
fn an_estimate_changes_only_if_a_better_one_arrives_or_a_clock_is_set() {
    let mut estimate = Estimate::default();
    for (measured, error, expected) in [
        (3_000, 40, 3_000),
        (3_030, 60, 3_000),
        (2_990, 1, 2_990),
        (2_991, 1, 2_990),
        (2_970, 30, 2_990),
        (2_940, 1, 2_940),
        (-5, 300, -5),
        (2, 1, 2),
    ] {
        estimate.update(measured, error);
        assert_eq!(estimate.ahead_ms, expected, "{measured} {error}");
    }
}
