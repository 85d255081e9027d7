use super::*;
use proptest::prelude::*;

fn load(load: f64, minutes: u64) -> Demand {
    Demand::of_load(load, Duration::from_mins(minutes)).unwrap()
}

/// Asserts that `share`, expressed in percent, rounds to `percent` at `decimals` decimal places.
fn assert_percent(share: f64, percent: f64, decimals: i32) {
    let half = 0.5 * 0.1_f64.powi(decimals) * 1.000_001;
    assert!((share * 100.0 - percent).abs() <= half, "{share} is not {percent} %");
}

#[test]
fn bots_take_numbers_from_visitors_as_published() {
    for (bots, percent) in [(0.1, 2.3), (0.3, 16.2), (0.5, 38.5)] {
        assert_percent(load(80.0, 30).with_bots(bots).unwrap().overflow(100), percent, 1);
    }
}

#[test]
fn a_batch_on_one_pool_overflows_nearly_as_in_the_published_simulation() {
    // The published figures are simulated, and the formula is an approximation. They differ by less
    // than one percentage point.
    for (rows, percent) in [(1, 0.4), (5, 6.4), (10, 12.2), (20, 19.7), (40, 30.4)] {
        let forecast = load(80.0, 30).in_batches_of(rows).unwrap().overflow(100);
        assert!((forecast * 100.0 - percent).abs() < 1.0, "{rows} rows: {forecast}");
    }
    let large = load(400.0, 30).in_batches_of(40).unwrap();
    assert!((large.overflow(500) * 100.0 - 10.3).abs() < 1.0);
}

#[test]
fn misattribution_is_that_of_the_published_table() {
    // The count of numbers, the lifetime in minutes, the load per number, and three misattributed
    // shares in percent. The first share applies if the number that has been free longest is handed
    // out next, and the second if a random free number is. The third is the upper limit if the
    // number that became free last is handed out next.
    let table = [
        (100, 30, 0.2, [3.4, 4.6, 10.1]),
        (100, 30, 0.5, [6.3, 7.0, 10.1]),
        (100, 30, 0.8, [8.8, 8.9, 10.1]),
        (100, 10, 0.2, [7.2, 9.2, 18.5]),
        (100, 10, 0.5, [12.6, 13.5, 18.5]),
        (500, 30, 0.1, [2.2, 3.2, 10.1]),
    ];
    for (numbers, lifetime, ratio, [oldest, random, newest]) in table {
        let demand = load(f64::from(numbers) * ratio, lifetime);
        let callers = Callers::assumed();
        let forecast = demand.forecast(numbers, &callers);
        assert_percent(forecast.misattributed, oldest, 1);
        assert_percent(forecast.misattributed_random, random, 1);
        assert_percent(callers.later_than(demand.lifetime()), newest, 1);
    }
}

#[test]
fn a_longer_lockout_costs_numbers_and_hardly_helps_attribution() {
    // For 120 visitors an hour and 100 numbers: the lifetime in minutes; the shares of overflow,
    // misattributed and lost calls in percent; the tolerance. The published figures are simulated:
    // the first four rows are accurate to 0.1 percentage points, the others to 0.4.
    let table = [
        (1, [0.0, 7.3, 7.3], 0.1),
        (10, [0.0, 7.3, 7.3], 0.1),
        (30, [0.0, 7.3, 7.3], 0.1),
        (40, [0.4, 7.2, 7.6], 0.1),
        (50, [7.7, 6.8, 13.9], 0.4),
        (60, [19.8, 6.0, 24.6], 0.4),
    ];
    for (minutes, expected, tolerance) in table {
        let demand = Demand::of_visitors(120.0, Duration::from_mins(minutes)).unwrap();
        let forecast = demand.forecast(100, &Callers::assumed());
        let shares = [forecast.overflow, forecast.misattributed, forecast.lost()];
        for (share, expected) in shares.into_iter().zip(expected) {
            assert!((share * 100.0 - expected).abs() <= tolerance, "{minutes}: {shares:?}");
        }
    }
}

#[test]
fn a_pool_whose_numbers_all_go_out_in_fifty_minutes_reuses_them_after_fifty_minutes() {
    let demand = Demand::of_visitors(120.0, Duration::from_mins(10)).unwrap();
    let reuse = demand.forecast(100, &Callers::assumed()).reuse.unwrap();
    assert!((reuse.as_secs_f64() - 3_000.0).abs() < 0.001, "{reuse:?}");
    assert!((demand.load() - 20.0).abs() < 1e-9);
}

#[test]
fn a_pool_without_requests_loses_no_visitor() {
    let forecast = load(0.0, 30).forecast(10, &Callers::assumed());
    assert_eq!((forecast.overflow, forecast.misattributed, forecast.reuse), (0.0, 0.0, None));
}

#[test]
fn impossible_questions_about_a_pool_are_refused() {
    let minute = Duration::from_mins(1);
    assert!(matches!(Demand::of_load(f64::NAN, minute), Err(DemandError::Load(_))));
    assert_eq!(Demand::of_load(-1.0, minute), Err(DemandError::Load(-1.0)));
    assert_eq!(Demand::of_load(1.0, Duration::ZERO), Err(DemandError::Lifetime));
    assert_eq!(load(1.0, 1).with_bots(1.0), Err(DemandError::Bots(1.0)));
    assert_eq!(load(1.0, 1).in_batches_of(0), Err(DemandError::Together));
}

proptest! {
    #[test]
    fn nearly_all_numbers_of_a_crowded_pool_are_locked_out(
        load in 1e3..1e5_f64, numbers in 1_u32..50, rows in 1_u32..40,
    ) {
        let demand = Demand::of_load(load, Duration::from_mins(30)).unwrap();
        let forecast = demand.in_batches_of(rows).unwrap().forecast(numbers, &Callers::assumed());
        prop_assert!(forecast.locked > 0.9 * f64::from(numbers), "{forecast:?}");
    }

    #[test]
    fn a_forecast_is_made_of_shares(
        load in 0.0..1e5_f64, numbers in 0_u32..3_000, rows in 1_u32..500, bots in 0.0..0.99_f64,
    ) {
        let demand = Demand::of_load(load, Duration::from_mins(30)).unwrap();
        let demand = demand.with_bots(bots).unwrap().in_batches_of(rows).unwrap();
        let forecast = demand.forecast(numbers, &Callers::assumed());
        for share in [forecast.overflow, forecast.misattributed, forecast.misattributed_random, forecast.lost()] {
            prop_assert!((0.0..=1.0).contains(&share), "{forecast:?}");
        }
        prop_assert!(forecast.locked <= f64::from(numbers), "{forecast:?}");
    }
}
