//! Acceptance tests: complete runs against all kinds of owners. Their results must stay within the
//! limits in docs/spec/pacing.md.
//!
//! Every run prints its result; to see it, run
//! `cargo test -p ringwell-mesh acceptance -- --nocapture`.

use core::time::Duration;

use super::simulation::{History, Outcome, Owner, Row, Scenario, Times, ms, run, us};
use super::usual;
use crate::pacing::Pacing;

const SECOND: Duration = ms(1_000);
const RECOVERED: Duration = ms(12_000);

/// The owner stops for ten seconds, starting two seconds into the run.
const STALL: Times = Times::once(ms(2_000), ms(10_000));

fn stall(seed: u64, random: bool) -> Scenario {
    Scenario { stops: STALL, random, length: ms(15_000), seed, ..Scenario::healthy() }
}

/// Returns every combination of a seed and an arrival pattern (random or evenly spaced).
fn all_arrivals() -> impl Iterator<Item = (u64, bool)> {
    (1..=20).flat_map(|seed| [(seed, false), (seed, true)])
}

/// The outcomes of all rows in a period.
#[derive(Debug)]
struct Figures {
    late_percent: f64,
    overflow_percent: f64,
    good_per_second: f64,
    /// Percentiles over all rows, in milliseconds.
    p50: f64,
    p90: f64,
    p99: f64,
}

#[expect(clippy::cast_precision_loss, reason = "some thousand rows")]
fn figures(name: &str, history: &History, from: Duration, to: Duration) -> Figures {
    let rows: Vec<&Row> =
        history.rows.iter().filter(|row| (from..to).contains(&row.asked)).collect();
    let count = |test: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| test(row)).count() as f64;
    let mut took: Vec<Duration> = rows.iter().map(|row| row.took).collect();
    took.sort_unstable();
    let percentile = |part: usize| took[took.len() * part / 100].as_secs_f64() * 1000.0;
    let good = count(&|row| row.outcome == Outcome::Good);
    let all = rows.len() as f64;
    let figures = Figures {
        late_percent: 100.0 * count(&|row| row.took >= usual().slow) / all,
        overflow_percent: 100.0 * (all - good) / all,
        good_per_second: good / (to - from).as_secs_f64(),
        p50: percentile(50),
        p90: percentile(90),
        p99: percentile(99),
    };
    println!("{name}: {figures:.2?}");
    figures
}

#[test]
fn e1_a_healthy_owner_costs_nothing() {
    let history = run(Scenario::healthy());
    let figures = figures("healthy", &history, ms(0), SECOND * 10);
    assert!(figures.overflow_percent == 0.0 && figures.p99 <= 0.3);
    assert!(history.windows.iter().all(|(_, window)| (*window - 4.0).abs() < 1e-9));
}

#[test]
fn e1_a_healthy_owner_costs_nothing_with_random_arrivals() {
    for (seed, _) in all_arrivals() {
        let history = run(Scenario { random: true, seed, ..Scenario::healthy() });
        let figures = figures("healthy, random", &history, ms(0), SECOND * 10);
        assert!(figures.overflow_percent == 0.0);
        assert!(history.windows.iter().all(|(_, window)| *window >= 4.0));
    }
}

#[test]
fn e2_hardly_a_row_is_late_in_a_stall_and_attribution_returns_soon_after() {
    for (seed, random) in all_arrivals() {
        let history = run(stall(seed, random));
        let during = figures("stalled 10 s", &history, STALL.first, RECOVERED);
        assert!(during.late_percent <= 0.5);
        for tenth in 0..20 {
            let from = RECOVERED + ms(700) + ms(100) * tenth;
            let after = figures("after the stall", &history, from, from + ms(100));
            assert!(after.overflow_percent < 1.0, "seed {seed}, random {random}, from {from:?}");
        }
    }
}

#[test]
fn e3_a_stalled_owner_gets_few_pings_and_no_rows() {
    for (seed, random) in all_arrivals() {
        let history = run(stall(seed, random));
        let shut = history.shut[0];
        assert!(shut < STALL.first + ms(100), "shut at {shut:?}");
        let while_shut = shut..RECOVERED;
        let sent = history.rows.iter().filter_map(|row| row.sent);
        assert_eq!(sent.filter(|sent| while_shut.contains(sent)).count(), 0);
        // The pause between pings reaches its maximum after five slow pings, and therefore in less
        // than two seconds.
        let full_gap = STALL.first + SECOND * 2..RECOVERED;
        let pings: Vec<_> = history.pings.iter().filter(|at| full_gap.contains(at)).collect();
        assert!(pings.len() <= 20, "{} pings in 8 s", pings.len());
        assert!(pings.windows(2).all(|two| *two[1] - *two[0] >= ms(400)));
    }
}

#[test]
fn e4_a_limited_owner_provides_most_of_its_capacity() {
    for (seed, random) in all_arrivals() {
        let owner = Owner::Queue(us(3_333));
        let history = run(Scenario { owner, random, seed, ..Scenario::healthy() });
        let figures = figures("can do 300/s", &history, ms(0), SECOND * 10);
        assert!(figures.good_per_second >= 250.0);
        assert!(figures.p50 <= 15.0 && figures.p99 <= 50.0);
    }
}

#[test]
fn e5_a_short_pause_each_second_costs_next_to_nothing() {
    for (seed, random) in all_arrivals() {
        let stops = Times::every(SECOND, ms(20), SECOND);
        let scenario = Scenario { stops, random, length: SECOND * 20, seed, ..Scenario::healthy() };
        let figures = figures("pause of 20 ms each second", &run(scenario), ms(0), SECOND * 20);
        assert!(figures.overflow_percent <= 0.2 && figures.p90 < 1.0);
    }
}

#[test]
fn e6_refused_connections_shut_the_link_within_a_few_attempts() {
    for (window_start, attempts) in [(4, 3), (16, 5)] {
        let scenario = Scenario {
            pacing: Pacing { window_start, ..usual() },
            refuses: Times::once(ms(0), SECOND * 5),
            ..Scenario::healthy()
        };
        let history = run(scenario);
        let refused = history.rows.iter().filter(|row| row.asked < SECOND * 5);
        assert_eq!(refused.filter(|row| row.sent.is_some()).count(), attempts);
        let after = figures("after refusals", &history, ms(5_700), SECOND * 10);
        assert!(after.overflow_percent < 1.0);
    }
}

#[test]
fn e7_a_stopped_caller_does_not_blame_its_owner() {
    for (seed, random) in all_arrivals() {
        let caller_stops = Times::every(SECOND, ms(100), SECOND);
        let history = run(Scenario { caller_stops, random, seed, ..Scenario::healthy() });
        let never_falls = history.windows.windows(2).all(|two| two[0].1 <= two[1].1);
        assert!(never_falls, "seed {seed}, random {random}");
    }
}

#[test]
fn e8_sixteen_callers_do_not_overrun_a_returning_owner() {
    for (seed, random) in all_arrivals() {
        let scenario = Scenario { callers: 16, spacing: ms(16), ..stall(seed, random) };
        let history = run(scenario);
        figures("16 callers", &history, RECOVERED, SECOND * 15);
        let back = history.queues.iter().filter(|(at, ..)| *at >= RECOVERED);
        for (at, queue, windows) in back {
            assert!(queue <= windows, "at {at:?}: {queue} > {windows}");
        }
    }
}

#[test]
fn e9_an_owner_that_always_takes_30_ms_is_slow_by_default() {
    let owner = Owner::Delay(ms(30));
    let history = run(Scenario { owner, spacing: ms(2), ..Scenario::healthy() });
    let figures = figures("steady 30 ms, slow at 25", &history, SECOND, SECOND * 10);
    assert!(figures.overflow_percent > 95.0);
    assert!(history.rows.iter().all(|row| !matches!(row.outcome, Outcome::Failed(_))));
}

#[test]
fn e9_an_owner_that_always_takes_30_ms_is_served_in_full_when_40_are_allowed() {
    let pacing = Pacing { slow: ms(40), deadline: ms(80), ..usual() };
    let owner = Owner::Delay(ms(30));
    let history = run(Scenario { pacing, owner, spacing: ms(2), ..Scenario::healthy() });
    figures("steady 30 ms, first second", &history, ms(0), SECOND);
    let figures = figures("steady 30 ms, slow at 40", &history, SECOND, SECOND * 10);
    assert!(figures.overflow_percent == 0.0);
    assert!(history.windows.iter().all(|(_, window)| *window <= 16.0));
}

#[test]
fn an_owner_with_repeated_pauses_makes_hardly_a_row_late() {
    for (name, length, period, overflow) in
        [("pause of 40 ms each second", 40, 1_000, 6.0), ("1 s on, 1 s off", 1_000, 2_000, 70.0)]
    {
        let stops = Times::every(SECOND, ms(length), ms(period));
        let history = run(Scenario { stops, length: SECOND * 20, ..Scenario::healthy() });
        let figures = figures(name, &history, ms(0), SECOND * 20);
        assert!(figures.late_percent < 0.5 && figures.overflow_percent < overflow);
    }
}

#[test]
fn sixteen_callers_with_too_many_requests_get_nearly_all_of_the_owner_s_capacity() {
    // The callers send 5,333 sub-requests per second, but the owner can serve only 3,333.
    let history = run(Scenario { callers: 16, spacing: ms(3), ..Scenario::healthy() });
    let figures = figures("16 callers, too much", &history, ms(0), SECOND * 10);
    assert!(figures.good_per_second >= 3_000.0 && figures.p99 <= 50.0);
}
