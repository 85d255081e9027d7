use super::*;

fn clocks(boot: u64, shard_offset: i64, wall_offset: i64) -> Clocks {
    Clocks { boot, shard_offset, wall_offset }
}

fn noted(at: u64, clocks: Clocks) -> Noted {
    Noted { at: Millis(at), clocks }
}

#[test]
fn times_are_of_three_clocks() {
    let clocks = clocks(1, 1_000, 1_300);
    assert_eq!(clocks.since_boot(Millis(1_700)), Millis(700));
    assert_eq!(clocks.shard(Millis(700)), Millis(1_700));
    assert_eq!(clocks.wall(Millis(1_700)), Millis(2_000));
}

#[test]
fn a_corrected_wall_clock_applies_to_all_times_since_the_boot() {
    let then = Some(clocks(7, 1_000, 3_601_000));
    let now = Some(clocks(7, 990, 1_000));
    let none = || std::iter::empty();
    assert_eq!(wall_less_shard(then, now, none()), 0);
    let other = Some(clocks(8, 0, 50));
    assert_eq!(wall_less_shard(then, other, none()), 3_600_000, "as it was written down");
    let ends = [(9, other), (8, Some(clocks(7, 995, 1_500))), (7, then)];
    let ends = ends.into_iter().filter_map(|(at, clocks)| clocks.map(|clocks| noted(at, clocks)));
    assert_eq!(wall_less_shard(then, other, ends.clone()), 500, "as that boot had it last");
    assert_eq!(wall_less_shard(None, now, ends), 0);
}

#[test]
fn a_boot_with_another_date_than_those_before_and_after_it_had_a_wrong_clock() {
    const YEAR: i64 = 365 * 86_400_000;
    let (first, second, third) = (clocks(1, 0, 100), clocks(2, 0, 200 - YEAR), clocks(3, 0, 300));
    let ends = [noted(1_900, first), noted(2_900, second)];
    let date = |then, now, ends: &[Noted]| wall_less_shard(Some(then), now, ends.iter().copied());
    assert_eq!(date(second, Some(third), &ends), 300);
    assert_eq!(date(first, Some(third), &ends), 100);
    // The settings of the second and the third boot agree, so neither is replaced, although both
    // may be wrong.
    assert_eq!(date(first, Some(clocks(3, 0, 300 - YEAR)), &ends), 100);
    assert_eq!(date(second, Some(clocks(3, 0, 300 - YEAR)), &ends), 200 - YEAR);
    // No setting is replaced if the clocks of the first boot, or the current clocks, are unknown.
    assert_eq!(date(second, Some(third), &ends[1..]), 200 - YEAR);
    assert_eq!(date(second, None, &ends), 200 - YEAR);
    assert_eq!(date(second, Some(clocks(2, 0, 7)), &ends), 7);
}

#[test]
fn an_event_is_dated_by_the_clocks_of_its_boot_wherever_they_were_recorded() {
    let (first, second, third) = (clocks(1, 0, 100), clocks(2, 0, 200), clocks(3, 0, 300));
    let ends = [noted(1_500, first), noted(1_900, first), noted(2_900, second)];
    let date = |at, recorded_at, then| {
        let times = (Millis(at), Millis(recorded_at));
        wall_less_shard_at(times, Some(then), Some(third), ends.into_iter())
    };
    for (at, wanted) in [(1_000, 100), (1_900, 100), (1_901, 200), (2_900, 200), (2_901, 300)] {
        assert_eq!(date(at, 5_000, third), Some(wanted), "of {at}, recorded in the third boot");
    }
    // No clocks were noted between the event and its record.
    assert_eq!(date(1_000, 1_200, first), Some(100));
    assert_eq!(date(1_950, 2_000, second), Some(200));
}

#[test]
fn an_event_after_the_last_record_of_its_boot_is_not_dated_by_a_boot_that_began_later() {
    let (first, second) = (clocks(1, 0, 100), clocks(2, 1_600, -7_000));
    let ends = [noted(1_500, first), noted(1_900, second)];
    let date = |at, ends: &[Noted]| {
        let times = (Millis(at), Millis(2_000));
        wall_less_shard_at(times, Some(second), Some(second), ends.iter().copied())
    };
    for (at, wanted) in [(1_499, 100), (1_500, 100), (1_501, 100), (1_599, 100)] {
        assert_eq!(date(at, &ends), Some(wanted), "{at}");
    }
    assert_eq!((date(1_600, &ends), date(1_950, &ends)), (Some(-8_600), Some(-8_600)));
    // Old history was dropped, including the clocks of the event's boot.
    assert_eq!((date(1_599, &ends[1..]), date(1_600, &ends[1..])), (None, Some(-8_600)));
    // It is still known, however, that the event happened before the second boot.
    let by = |at| {
        let times = (Millis(at), Millis(2_000));
        wall_before(times, Some(second), Some(second), ends[1..].iter().copied())
    };
    let far = clocks(2, 1_600, 10_000);
    assert_eq!((by(1_599), by(1_600)), (Some(Millis(0)), None));
    let ends = [noted(1_900, far)].into_iter();
    let times = (Millis(1_599), Millis(2_000));
    assert_eq!(wall_before(times, Some(far), Some(far), ends), Some(Millis(10_000)));
}

#[test]
fn clocks_of_any_value_are_read_back_without_overflow() {
    for shard_offset in [i64::MIN, -1, 0, i64::MAX] {
        for wall_offset in [i64::MIN, 0, i64::MAX] {
            let clocks = clocks(u64::MAX, shard_offset, wall_offset);
            let bytes = clocks.encode();
            assert_eq!(Clocks::decode(bytes), Some(clocks));
            for at in [0, 1, u64::MAX] {
                let _ = (clocks.wall(Millis(at)), clocks.since_boot(Millis(at)));
                let _ =
                    (clocks.shard(Millis(at)), wall_less_shard(Some(clocks), None, [].into_iter()));
            }
        }
    }
}

#[test]
fn a_wall_clock_that_leaps_ahead_makes_no_history_old_before_a_day_has_passed() {
    const DAY: u64 = 86_400_000;
    let right = clocks(7, 0, 1_000 * DAY.cast_signed());
    let leapt = clocks(7, 0, 1_040 * DAY.cast_signed());
    let believed =
        |now, clocks, ends: &[Noted]| believed_wall(Millis(now), clocks, ends.iter().copied()).0;
    // The clock was set while the machine was running, and segments have recorded the new setting
    // since.
    let ends = [noted(5 * DAY, right)];
    assert_eq!(believed(5 * DAY + 9, right, &ends), 1_005 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, leapt, &ends), 1_005 * DAY + 9);
    let ends = [noted(5 * DAY + 5, leapt), ends[0]];
    assert_eq!(believed(5 * DAY + 9, leapt, &ends), 1_005 * DAY + 9);
    assert_eq!(believed(6 * DAY + 9, leapt, &ends), 1_046 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, clocks(7, 0, 3), &ends), 5 * DAY + 12, "set back");
    // The clock was wrong when the machine booted.
    let ends = [noted(5 * DAY, right)];
    let booted = |wall: u64| clocks(8, 5 * DAY.cast_signed(), wall.cast_signed());
    assert_eq!(believed(5 * DAY + 9, booted(1_005 * DAY), &ends), 1_005 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, booted(1_040 * DAY), &ends), 1_006 * DAY + 9);
    assert_eq!(believed(6 * DAY + 9, booted(1_040 * DAY), &ends), 1_041 * DAY + 9);
    assert_eq!(believed(9, right, &[]), 1_000 * DAY + 9);
}
