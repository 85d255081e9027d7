//! What pacing promises: rules one by one, then whole runs in virtual time.

mod simulation;

use core::time::Duration;

use simulation::{History, Outcome, Owner, Scenario, Times, ms, run, us};

use super::{Admission, Ending, Pacing, Shed, Window};

const NO_LAG: Duration = Duration::ZERO;

/// What a run comes to. Printed by every run: `cargo test -p ringwell-mesh pacing -- --nocapture`.
#[derive(Debug)]
struct Figures {
    late_percent: f64,
    overflow_percent: f64,
    good_per_second: f64,
    p50: Duration,
    p90: Duration,
    p99: Duration,
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts of a test")]
fn figures(name: &str, history: &History, from: Duration, to: Duration) -> Figures {
    let rows: Vec<_> = history.rows.iter().filter(|r| r.asked >= from && r.asked < to).collect();
    let good = rows.iter().filter(|row| row.outcome == Outcome::Good).count();
    let late = rows.iter().filter(|row| row.took >= ms(25)).count();
    let mut took: Vec<_> = rows.iter().map(|row| row.took).collect();
    took.sort_unstable();
    let figures = Figures {
        late_percent: share(late, rows.len()),
        overflow_percent: share(rows.len() - good, rows.len()),
        good_per_second: good as f64 / (to - from).as_secs_f64(),
        p50: took[took.len() / 2],
        p90: took[took.len() * 9 / 10],
        p99: took[took.len() * 99 / 100],
    };
    println!("{name}: {figures:?} pings {}", history.pings.len());
    figures
}

#[test]
fn e1_a_healthy_owner_costs_nothing() {
    let history = run(Scenario::healthy());
    let figures = figures("healthy", &history, ms(0), ms(10_000));
    assert_eq!(figures.overflow_percent, 0.0);
    assert!(history.windows.iter().all(|(_, window)| *window == 4.0));
}
#[test]
fn e4_a_limited_owner_gives_most_of_what_it_can() {
    for random in [false, true] {
        let history =
            run(Scenario { owner: Owner::Queue(us(3_333)), random, ..Scenario::healthy() });
        let figures = figures("300/s", &history, ms(0), ms(10_000));
        assert!(figures.good_per_second >= 250.0);
        assert!(figures.p99 <= ms(50));
    }
}
#[test]
fn e2_stall() {
    for seed in 0..5 {
        let stop = Times::once(ms(2_000), ms(10_000));
        let history =
            run(Scenario { stops: stop, length: ms(15_000), seed, ..Scenario::healthy() });
        figures("stall", &history, ms(2_000), ms(12_000));
        figures("after", &history, ms(12_700), ms(15_000));
    }
}
#[test]
fn pauses() {
    for (random, length) in [(false, 20), (true, 20), (false, 40), (true, 40), (false, 1000)] {
        let stop =
            Times::every(ms(1_000), ms(length), ms(if length == 1000 { 2000 } else { 1000 }));
        let history =
            run(Scenario { stops: stop, random, length: ms(20_000), ..Scenario::healthy() });
        figures(&format!("pause {length} {random}"), &history, ms(0), ms(20_000));
        let _ = (
            Admission::Send,
            Shed::Full,
            NO_LAG,
            Pacing::default(),
            Ending::Lost,
            Window::new(Pacing::default(), 1),
        );
    }
}
