//! Compares simulated days with the formula in docs/sizing.md.

use std::time::Duration;

use ringwell_core::{Millis, VisitorId};
use ringwell_plan::{Callers, Demand};

use super::access_log::View;
use super::day::{Day, Found, simulate_day};
use super::made_up;

const VISITORS: u64 = 20_000;
const DAY: Millis = Millis(24 * 60 * 60_000);
const BEGAN: Millis = Millis(1_700_000_000_000);
const NUMBERS: u32 = 500;
const LIFETIME: Millis = Millis(30 * 60_000);

/// Creates one page view for each visitor, at random times of the day.
fn visitors(seed: u64) -> Vec<View> {
    let mut random = blake3::Hasher::new().update(&[1]).update(&seed.to_le_bytes()).finalize_xof();
    let mut views: Vec<View> = (0..VISITORS)
        .map(|visitor| {
            let mut bytes = [0; 8];
            random.fill(&mut bytes);
            let at = BEGAN + Millis(u64::from_le_bytes(bytes) % DAY.0);
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(visitor + 1).to_le_bytes());
            View { at, visitor: VisitorId(id) }
        })
        .collect();
    views.sort_by_key(|view| view.at);
    views
}

fn day(seed: u64, crashes: Option<(Millis, Millis)>) -> Found {
    let callers = Callers::assumed();
    simulate_day(&Day {
        pool: made_up(NUMBERS, LIFETIME).unwrap(),
        views: &visitors(seed),
        calls: 0.03,
        callers: &callers,
        seed,
        crashes,
    })
}

/// Returns the share of misattributed calls according to the formula. Calls to the overflow number
/// are not counted.
fn formula() -> f64 {
    let lifetime = Duration::from_millis(LIFETIME.0);
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let demand = Demand::of_visitors(VISITORS as f64 / 24.0, lifetime).unwrap();
    demand.forecast(NUMBERS, &Callers::assumed()).misattributed
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn wrong(found: &Found) -> f64 {
    found.wrong as f64 / (found.right + found.wrong) as f64
}

/// Simulates 20,000 visitors, of whom about 600 call, and a server that is killed every ten
/// minutes. The mean share of misattributed calls over eight days must match the formula. The share
/// on a single day varies randomly, because the day has only 600 calls.
#[test]
fn misattribution_equals_the_formula_although_the_server_crashes_every_ten_minutes() {
    let days = 8;
    let crashes = Some((Millis(600_000), Millis(2_000)));
    let (mut sum, mut calls) = (0.0, 0);
    for seed in 1..=days {
        let found = day(seed, crashes);
        assert!((142..145).contains(&found.crashes), "{found:?}");
        assert!((500..700).contains(&found.calls), "{found:?}");
        // No allocation that a visitor received is lost: a visitor is found for every call.
        assert_eq!(found.unknown, 0, "{found:?}");
        sum += wrong(&found);
        calls += found.calls;
        // The tolerance is three standard deviations for 600 calls.
        assert!((wrong(&found) - formula()).abs() < 0.035, "seed {seed}: {found:?}");
    }
    let mean = sum / f64::from(u32::try_from(days).unwrap());
    println!("{calls} calls: {mean:.4} misattributed, {:.4} by the formula", formula());
    assert!((mean - formula()).abs() < 0.01, "{mean} instead of {}", formula());
}

#[test]
fn a_repeated_day_has_the_same_results_and_crashes_only_affect_visitors_in_that_time() {
    let crashes = Some((Millis(600_000), Millis(2_000)));
    assert_eq!(day(3, crashes), day(3, crashes));
    let (with, without) = (day(3, crashes), day(3, None));
    assert_eq!(with.visits, without.visits);
    assert!((1..200).contains(&with.unserved_visits), "{with:?}");
    assert!(wrong(&with) < wrong(&without) + 0.02, "{with:?} {without:?}");
}

/// Checks that confidence is calibrated: its mean must match the share of calls that are attributed
/// correctly.
#[test]
fn confidence_matches_the_share_of_right_attributions() {
    let (mut said, mut right, mut named) = (0.0, 0.0, 0.0);
    for seed in 1..=6 {
        let found = day(seed, None);
        said += found.confidence;
        right += f64::from(u32::try_from(found.right).unwrap());
        named += f64::from(u32::try_from(found.right + found.wrong).unwrap());
    }
    let (said, right) = (said / named, right / named);
    println!("confidence {said:.4}, right {right:.4}");
    assert!((said - right).abs() < 0.02, "said {said}, right {right}");
}
