use super::*;

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn the_assumed_callers_are_late_as_often_as_documented() {
    let callers = Callers::assumed();
    let delays = [10, 30, 60, 24 * 60].map(|minutes| callers.later_than(minutes * MINUTE));
    let expected = [0.185, 0.101, 0.063, 0.000_9];
    for (delay, expected) in delays.into_iter().zip(expected) {
        assert!((delay - expected).abs() <= 0.000_5, "{delay} is not {expected}");
    }
}

#[test]
fn shares_with_a_wrong_sum_are_refused_and_rounded_ones_are_not() {
    let thirds = [(0.333, MINUTE), (0.333, 2 * MINUTE), (0.333, 3 * MINUTE)];
    assert!(Callers::new(&thirds).is_ok());
    assert!(matches!(Callers::new(&thirds[..2]), Err(CallersError::Sum(_))));
    assert_eq!(Callers::new(&[(0.0, MINUTE), (1.0, MINUTE)]), Err(CallersError::Share));
    assert_eq!(Callers::new(&[(1.0, Duration::ZERO)]), Err(CallersError::Delay));
}
