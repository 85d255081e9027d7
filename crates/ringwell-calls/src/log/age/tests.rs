use ringwell_store::Location;

use super::*;
use crate::log::Log;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const NOW: u64 = 20_000 * DAY;
const BELIEVED: Age = Age { at: Millis(NOW), doubted: None };

/// The state of the clock, and the true time.
type State = (Age, u64);

/// Computes the time every ten minutes for `hours`, while the wall clock is ahead by `ahead`.
/// Returns the new state, and the difference between the reference time for ages and the true time.
fn run((mut age, mut now): State, ahead: i64, hours: u64) -> (State, i64) {
    let mut apart = 0;
    for _ in 0..6 * hours {
        now += 10 * MINUTE;
        let wall = Millis(now.saturating_add_signed(ahead));
        age = age.after(Millis(10 * MINUTE), wall);
        apart = age.time(wall).0.cast_signed() - now.cast_signed();
    }
    ((age, now), apart)
}

#[test]
fn a_wall_clock_that_has_leapt_ages_nothing_before_a_day_has_passed() {
    const AHEAD: i64 = 100 * DAY.cast_signed();
    let (state, apart) = run((BELIEVED, NOW), 0, 5);
    assert_eq!(apart, 0);
    let (state, apart) = run(state, AHEAD, 23);
    assert_eq!(apart, 0);
    let (state, apart) = run(state, 0, 1);
    assert_eq!((apart, state.0.doubted), (0, None), "the clock was corrected");
    let (state, apart) = run(state, AHEAD, 24);
    assert_eq!(apart, 0, "the day begins again");
    let (state, apart) = run(state, AHEAD, 1);
    assert_eq!(apart, AHEAD, "believed");
    // If the clock was wrong after all, the corrected clock is trusted in turn.
    assert_eq!(run(state, 0, 30).1, 0);
}

#[test]
fn a_long_downtime_delays_the_ageing_by_a_day_and_a_short_one_does_not() {
    let short = BELIEVED.after(Millis::ZERO, Millis(NOW + HOUR));
    assert_eq!(short, Age { at: Millis(NOW + HOUR), doubted: None });
    let now = NOW + 5 * DAY;
    let state = (BELIEVED.after(Millis::ZERO, Millis(now)), now);
    let (state, apart) = run(state, 0, 23);
    assert_eq!(apart, -5 * DAY.cast_signed());
    assert_eq!(run(state, 0, 2).1, 0);
}

/// A machine without a clock battery boots in the past. Once its clock is corrected, nothing is
/// delayed.
#[test]
fn a_clock_that_was_behind_for_a_while_delays_nothing_afterwards() {
    let behind = -(19_000 * DAY.cast_signed());
    let (state, apart) = run((BELIEVED, NOW), behind, 3);
    assert_eq!(apart, behind);
    assert_eq!(run(state, 0, 1).1, 0);
}

#[tokio::test]
async fn a_restart_does_not_end_the_doubt() {
    let folder = tempfile::TempDir::new().unwrap();
    let opened =
        async || Log::open(&Location::File(folder.path().join("calls.sqlite"))).await.unwrap();
    let log = opened().await;
    assert_eq!(log.age_time(Millis(NOW)), Millis::ZERO, "not read yet");
    assert_eq!(log.note_age_time(Millis(NOW)).await.unwrap(), Millis(NOW));
    assert_eq!(log.age_time(Millis(NOW - 1)), Millis(NOW - 1));
    log.close().await;
    // Less than an hour passes in this test.
    let is_now = |at: Millis| (NOW..NOW + HOUR).contains(&at.0);
    let ahead = Millis(NOW + 100 * DAY);
    for _ in 0..2 {
        let log = opened().await;
        assert!(is_now(log.note_age_time(ahead).await.unwrap()));
        assert!(is_now(log.age_time(ahead)));
        log.close().await;
    }
    let log = opened().await;
    let mut tx = log.database().write().await.unwrap();
    let doubted = stored(&mut tx).await.unwrap().unwrap().doubted;
    assert!(doubted.is_some_and(|it| it < Millis(HOUR)), "{doubted:?}");
    drop(tx);
    log.close().await;
}
