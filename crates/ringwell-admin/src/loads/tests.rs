use super::*;

const POOL: PoolId = PoolId(1);
const START: Millis = Millis(1_767_225_600_000);
const LIFETIME: Millis = Millis(1_800_000);
const STEP: Millis = Millis(10_000);

fn asked(numbers: u32, allocated: u32, exhausted: u32) -> PoolAsked {
    kept(numbers, allocated, exhausted, 0)
}

fn kept(numbers: u32, allocated: u32, exhausted: u32, lengthened: i64) -> PoolAsked {
    let (kept, lifetime, is_held) = (0, LIFETIME, false);
    PoolAsked { pool: POOL, numbers, lifetime, allocated, exhausted, kept, lengthened, is_held }
}

/// Simulates `steps` steps, beginning with step `from`, with `rate` allocations in each step.
fn watch(loads: &mut Loads, from: u64, steps: u64, rate: u32, counted: &mut u32) {
    for step in from..from + steps {
        loads.take(Millis(START.0 + step * STEP.0), &[asked(100, *counted, 0)]);
        *counted = counted.wrapping_add(rate);
    }
}

#[test]
fn the_load_is_the_count_of_requests_in_the_last_lifetime() {
    let mut loads = Loads::default();
    let mut counted = u32::MAX - 100;
    loads.take(START, &[asked(100, counted, 0)]);
    assert_eq!(loads.of(POOL), None, "nobody has looked twice");
    // With a lifetime of half an hour, two allocations every ten seconds make a load of 360. The
    // load is correct after only a few measurements.
    watch(&mut loads, 0, 10, 2, &mut counted);
    assert!((loads.of(POOL).unwrap().load - 360.0).abs() < 0.1, "{loads:?}");
    watch(&mut loads, 10, 1000, 2, &mut counted);
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 360.0).abs() < 0.1, "{load:?}");
    assert!(load.over >= LIFETIME && load.over.0 <= LIFETIME.0 * 9 / 8 + STEP.0, "{load:?}");
    assert!(loads.0[&POOL].marks.len() <= MARKS_MAX + 2);
    // After one lifetime without requests the load is zero, but the busiest hour is kept for a day.
    watch(&mut loads, 1010, 250, 0, &mut counted);
    let load = loads.of(POOL).unwrap();
    assert!(load.load < 0.1 && (load.busiest - 360.0).abs() < 1.0, "{load:?}");
    watch(&mut loads, 1260, 25 * 360, 0, &mut counted);
    assert!(loads.of(POOL).unwrap().busiest < 1.0);
}

#[test]
fn keep_alives_count_as_load_and_releases_do_not() {
    // Two visitors arrive every ten seconds. In the first case, each keeps the number for 5
    // minutes, so the lockout lasts 35 minutes. In the second case, each releases the number after
    // 10 minutes.
    for (added, seconds) in [(300_000, 2_100), (-1_200_000, 600)] {
        let mut loads = Loads::default();
        for step in 0..1_000_u32 {
            let lengthened = i64::from(2 * step) * added;
            let at = Millis(START.0 + u64::from(step) * STEP.0);
            loads.take(at, &[kept(1_000, 2 * step, 0, lengthened)]);
        }
        let load = loads.of(POOL).unwrap();
        assert!((load.load - f64::from(seconds) * 0.2).abs() < 0.1, "{load:?}");
        assert!((load.lockout.as_secs_f64() - f64::from(seconds)).abs() < 0.1, "{load:?}");
    }
    // Half of the rows overflow. The visitors without a number would have kept one just as long.
    let mut loads = Loads::default();
    for step in 0..1_000_u32 {
        let at = Millis(START.0 + u64::from(step) * STEP.0);
        loads.take(at, &[kept(1_000, step, step, i64::from(step) * 300_000)]);
    }
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 420.0).abs() < 0.5, "{load:?}");
    // Visitors who stay need numbers even if no new visitors arrive.
    for step in 1_000..1_400_u32 {
        let at = Millis(START.0 + u64::from(step) * STEP.0);
        let kept_by_ten = 300_000_000 + i64::from(step - 999) * 100_000;
        loads.take(at, &[kept(1_000, 999, 999, kept_by_ten)]);
    }
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 10.0).abs() < 0.1 && load.asked == 0, "{load:?}");
}

#[test]
fn a_pool_is_busy_when_its_rows_overflow_or_would() {
    let mut loads = Loads::default();
    let mut counted = 0;
    // 36 of 100 numbers are in use, so almost no rows overflow.
    watch(&mut loads, 0, 200, 0, &mut counted);
    for step in 200..400 {
        counted += u32::from(step % 5 == 0);
        loads.take(Millis(START.0 + step * STEP.0), &[asked(100, counted, 0)]);
    }
    assert_eq!(loads.busy(0.01), []);
    // The same load is too high for 40 numbers: 48 are needed to keep overflow below 1 %.
    loads.take(Millis(START.0 + 400 * STEP.0), &[asked(40, counted + 1, 0)]);
    assert_eq!(loads.busy(0.01), [POOL]);
    assert_eq!(loads.busy(0.01), [], "nothing has been asked since");
    // If rows arrive together, some overflow even though the load is small.
    loads.take(Millis(START.0 + 401 * STEP.0), &[asked(100, counted + 2, 1)]);
    assert_eq!(loads.busy(0.01), [POOL]);
}

#[test]
fn visitors_who_repeat_their_refused_rows_count_once() {
    let mut loads = Loads::default();
    // In ten seconds, one visitor gets a number and three do not; each repeats the request 4 times.
    for step in 0..1_000 {
        let at = Millis(START.0 + u64::from(step) * STEP.0);
        let kept = 4 * step;
        loads.take(at, &[PoolAsked { kept, ..asked(1_000, step, 15 * step) }]);
    }
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 4.0 * 180.0).abs() < 0.5, "{load:?}");
    assert!((load.overflow - 0.75).abs() < 0.001, "{load:?}");
    assert_eq!(loads.busy(0.74), [POOL]);
    let at = Millis(START.0 + 1_000 * STEP.0);
    loads.take(at, &[PoolAsked { kept: 4_000, ..asked(1_000, 1_000, 15_000) }]);
    assert!(loads.busy(0.76).is_empty(), "fifteen of sixteen rows, but three of four visitors");
}

#[test]
fn lockouts_that_are_released_early_do_not_make_the_first_hour_the_busiest() {
    let mut loads = Loads::default();
    for step in 0..700_u32 {
        // Each visitor releases the number after 100 s, 25 minutes before the lifetime ends.
        let lengthened = i64::from(step.saturating_sub(10)) * -1_700_000;
        let at = Millis(START.0 + u64::from(step) * STEP.0);
        loads.take(at, &[kept(1_000, step, 0, lengthened)]);
    }
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 10.0).abs() < 0.1 && load.busiest < 12.0, "{load:?}");
}

#[test]
fn rows_that_a_held_pool_refuses_are_demand_but_do_not_make_it_too_small() {
    let mut loads = Loads::default();
    let held = |exhausted| PoolAsked { is_held: true, ..asked(1_000, 0, exhausted) };
    for step in 0..360 {
        loads.take(Millis(START.0 + u64::from(step) * STEP.0), &[held(step)]);
        assert!(loads.busy(0.01).is_empty(), "the hold ends by itself");
    }
    let load = loads.of(POOL).unwrap();
    assert_eq!(load.exhausted, 0);
    assert!((load.load - 180.0).abs() < 0.5, "{load:?}");
    // These rows arrived between the last reading and the end of the hold.
    let at = Millis(START.0 + 360 * STEP.0);
    loads.take(at, &[asked(1_000, 0, 360)]);
    assert!(loads.busy(0.01).is_empty());
    loads.take(at + STEP, &[asked(1_000, 0, 361)]);
    assert_eq!(loads.busy(0.01), [POOL]);
}

#[test]
fn a_few_rows_after_a_start_are_no_flood() {
    let mut loads = Loads::default();
    let at = |seconds: u64| Millis(START.0 + seconds * 1000);
    loads.take(at(0), &[asked(11, 0, 0)]);
    loads.take(at(60), &[asked(11, 1, 0)]);
    let load = loads.of(POOL).unwrap();
    assert!((load.load - 30.0).abs() < 0.1 && load.at_least() < 0.1, "{load:?}");
    assert_eq!(loads.busy(0.01), []);
    assert!(loads.outlook(POOL).unwrap().at_least_in_an_hour() < 0.1);
    // By the most cautious estimate, nine allocations in a minute are too many for eleven numbers.
    loads.take(at(61), &[asked(11, 9, 0)]);
    assert_eq!(loads.busy(0.01), [POOL]);
    assert!(loads.outlook(POOL).unwrap().at_least_in_an_hour() > 100.0);
}

#[test]
fn a_pool_that_restarts_on_another_shard_is_not_a_flood() {
    let mut loads = Loads::default();
    loads.take(START, &[kept(100, 1_000_000, 50, 90_000_000)]);
    loads.take(START + STEP, &[kept(100, 7, 0, 60_000)]);
    let load = loads.of(POOL).unwrap();
    assert_eq!((load.asked, load.exhausted), (7, 0));
    assert!((load.load - (7.0 * 1_800.0 + 60.0) / 10.0).abs() < 0.1, "{load:?}");
    loads.take(START + STEP, &[]);
    assert_eq!(loads.of(POOL), None, "another node's now");
}

#[test]
fn the_night_equals_the_day_before_scaled_by_today() {
    const HOUR_STEPS: u64 = HOUR.0 / STEP.0;
    let mut loads = Loads::default();
    let (mut counted, mut step) = (0, 0);
    // The rate is ten allocations in ten seconds from 6:00 to 9:00, and two in ten seconds
    // otherwise.
    let rate = |hour: u64| if (6..9).contains(&(hour % 24)) { 10 } else { 2 };
    for hour in 0..24 {
        watch(&mut loads, step, HOUR_STEPS, rate(hour), &mut counted);
        step += HOUR_STEPS;
    }
    let night = |loads: &Loads| loads.outlook(POOL).unwrap().night().collect::<Vec<_>>();
    assert_eq!(night(&loads), [], "a day is not enough to compare today with");
    assert!(loads.watched() < Loads::WATCHED_MIN);
    // On the second day, the rate is one and a half times that of the first day. The first hour of
    // the second day is over.
    watch(&mut loads, step, HOUR_STEPS, 3, &mut counted);
    step += HOUR_STEPS;
    watch(&mut loads, step, 10, 3, &mut counted);
    assert!(loads.watched() >= Loads::WATCHED_MIN);
    let night = night(&loads);
    assert_eq!(night.len(), NIGHT);
    // The time is between 1:00 and 2:00 on the second day, so the next hour begins at 2:00.
    assert_eq!(night[0].0, Millis(START.0 + 26 * HOUR.0));
    // At 2:00 on the first day, the load was 360: the rate times the lifetime of half an hour. The
    // rate is now one and a half times as high, so the load will reach 540. The forecast may be
    // lower than 540, because the load lags behind the rate by one lifetime.
    assert!((470.0..560.0).contains(&night[0].1), "{night:?}");
    // In the forecast, the busiest hours are at the same time of day as on the previous day.
    let (_, most) = night[6];
    assert_eq!(night[6].0, Millis(START.0 + 32 * HOUR.0));
    assert!((2_300.0..2_800.0).contains(&most), "{night:?}");
    assert!(night.iter().all(|(_, load)| *load <= most), "{night:?}");
}
