use super::*;
use proptest::prelude::*;

/// Parses a printed share, such as `1.84 %` or `3.6e-6`. Returns the share, and a tolerance of half
/// a unit in the last digit.
fn printed(text: &str) -> (f64, f64) {
    let (digits, unit) = if let Some(percent) = text.strip_suffix(" %") {
        (percent, 0.01)
    } else {
        let (digits, exponent) = text.split_once('e').unwrap();
        (digits, 10_f64.powi(exponent.parse().unwrap()))
    };
    let decimals = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
    let half = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
    (digits.parse::<f64>().unwrap() * unit, half * unit * 1.000_001)
}

fn assert_printed(value: f64, text: &str) {
    let (expected, tolerance) = printed(text);
    assert!((value - expected).abs() <= tolerance, "{value} is not {text}");
}

#[test]
fn the_overflow_is_that_of_the_published_tables() {
    let ratios = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5, 2.0];
    let table: [(f64, [&str; 9]); 4] = [
        (
            10.0,
            [
                "1.84 %", "4.31 %", "7.87 %", "12.2 %", "16.8 %", "21.5 %", "26.0 %", "41.0 %",
                "53.8 %",
            ],
        ),
        (
            50.0,
            [
                "3.6e-6", "2.2e-4", "0.33 %", "1.87 %", "5.41 %", "10.5 %", "16.1 %", "35.6 %",
                "50.9 %",
            ],
        ),
        (
            100.0,
            [
                "1.6e-10", "6.1e-7", "1.4e-4", "0.40 %", "2.70 %", "7.57 %", "13.6 %", "34.5 %",
                "50.5 %",
            ],
        ),
        (
            500.0,
            [
                "2e-44", "1.5e-26", "8.8e-15", "1.7e-7", "0.12 %", "3.48 %", "10.5 %", "33.6 %",
                "50.1 %",
            ],
        ),
    ];
    for (numbers, row) in table {
        for (ratio, text) in ratios.into_iter().zip(row) {
            assert_printed(blocking(numbers, numbers * ratio), text);
        }
    }
}

#[test]
fn the_largest_load_for_a_target_is_that_of_the_published_table() {
    let table = [
        (10, [6.22, 4.46, 3.09], 0.005),
        (50, [44.5, 37.9, 32.5], 0.05),
        (100, [95.2, 84.1, 75.2], 0.05),
        (500, [511.8, 474.0, 448.2], 0.05),
    ];
    for (numbers, loads, tolerance) in table {
        for (load, target) in loads.into_iter().zip([0.05, 0.01, 0.001]) {
            let found = load_for(numbers, target);
            assert!((found - load).abs() <= tolerance, "{numbers} at {target}: {found}");
        }
    }
}

#[test]
fn the_fewest_numbers_for_a_target_are_those_of_the_published_table() {
    let table = [
        (1.0, [4, 5, 6]),
        (5.0, [9, 11, 14]),
        (10.0, [15, 18, 21]),
        (20.0, [26, 30, 35]),
        (50.0, [56, 64, 71]),
        (100.0, [105, 117, 128]),
        (200.0, [202, 221, 238]),
        (500.0, [489, 527, 555]),
    ];
    for (load, row) in table {
        let found = [0.05, 0.01, 0.001].map(|target| numbers_for(load, 1.0, target).unwrap());
        assert_eq!(found, row, "load {load}");
    }
}

#[test]
fn a_split_pool_loses_far_more_than_a_single_one() {
    assert_printed(blocking(100.0, 80.0), "0.40 %");
    assert_printed(blocking(50.0, 40.0), "1.87 %");
    assert_printed(blocking(25.0, 20.0), "5.02 %");
}

#[test]
fn no_load_never_overflows_and_no_numbers_always_do() {
    assert!([blocking(3.0, 0.0), blocking(0.5, 0.0)].iter().all(|share| *share <= 0.0));
    assert!([blocking(0.0, 0.0), blocking(0.0, 7.0)].iter().all(|share| *share >= 1.0));
}

#[test]
fn an_unreachable_target_has_no_number_of_numbers() {
    assert_eq!(numbers_for(1e6, 1e6, 0.0), None);
}

/// Simulates a loss system: each arriving visitor either finds a free number or is lost. A random
/// number generator with a fixed seed draws the arrival times, so that every run is the same.
fn simulated(numbers: usize, load: f64) -> f64 {
    let mut state: u64 = 42;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (f64::from(u32::try_from(state >> 32).unwrap()) + 0.5) / 4_294_967_296.0
    };
    let mut locked = std::collections::VecDeque::new();
    let (mut now, mut lost) = (0.0, 0);
    let arrivals = 400_000;
    for _ in 0..arrivals {
        now += -uniform().ln() / load;
        while locked.front().is_some_and(|until| *until <= now) {
            locked.pop_front();
        }
        if locked.len() < numbers { locked.push_back(now + 1.0) } else { lost += 1 }
    }
    f64::from(lost) / f64::from(arrivals)
}

#[test]
fn the_formula_equals_a_simulated_pool_with_a_fixed_lockout() {
    for (numbers, load) in [(10, 8.0), (100, 80.0), (100, 100.0)] {
        let computed = blocking(f64::from(numbers), load);
        let seen = simulated(usize::try_from(numbers).unwrap(), load);
        // Five standard deviations of the share of 400,000 visitors that is lost. Losses come in
        // bursts, so the variance is multiplied by the count of numbers.
        let slack = 5.0 * (computed / 400_000.0 * f64::from(numbers)).sqrt();
        assert!((computed - seen).abs() <= slack, "{numbers} at {load}: {computed} against {seen}");
    }
}

proptest! {
    #[test]
    fn overflow_falls_with_numbers_and_rises_with_load(
        numbers in 0.0..2_000.0_f64, more in 0.001..50.0_f64, load in 0.001..3_000.0_f64,
    ) {
        let here = blocking(numbers, load);
        // For a fractional count of numbers, the integral is only an approximation.
        let slack = here * 1e-6;
        prop_assert!((0.0..=1.0).contains(&here));
        prop_assert!(blocking(numbers + more, load) <= here + slack);
        prop_assert!(blocking(numbers, load + more) >= here - slack);
    }

    #[test]
    fn fractional_numbers_of_numbers_continue_the_whole_ones(
        numbers in 1_u32..300, load in 0.01..400.0_f64,
    ) {
        let whole = blocking(f64::from(numbers), load);
        let beside = blocking(f64::from(numbers) - 1e-9, load);
        prop_assert!((whole - beside).abs() <= whole * 1e-5, "{} and {}", whole, beside);
    }

    #[test]
    fn the_fewest_numbers_are_enough_and_one_less_is_not(
        load in 0.01..2_000.0_f64, together in 1_u32..50, target in 0.0001..0.5_f64,
    ) {
        let together = f64::from(together);
        let numbers = f64::from(numbers_for(load, together, target).unwrap());
        prop_assert!(blocking(numbers / together, load / together) <= target);
        prop_assert!(blocking((numbers - 1.0) / together, load / together) > target);
    }

    #[test]
    fn the_largest_load_keeps_the_target(numbers in 1_u32..1_000, target in 0.0001..0.5_f64) {
        let load = load_for(numbers, target);
        prop_assert!(blocking(f64::from(numbers), load) <= target);
        prop_assert!(blocking(f64::from(numbers), load * 1.001) > target);
    }
}
