use super::ahead_ms;

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
