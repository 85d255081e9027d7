use super::*;
use crate::group::Tip;

fn clocks(boot: u64, shard_offset: i64, wall_offset: i64) -> Clocks {
    Clocks { boot, shard_offset, wall_offset }
}

fn head(clocks: Option<Clocks>) -> SegmentHeader {
    let tip = Tip { clocks, ..Tip::FIRST };
    SegmentHeader { shard: 0, journal: [0; 16], segno: 1, salt: 0, tip, file_bytes: None }
}

#[test]
fn times_are_of_three_clocks() {
    let clocks = clocks(1, 1_000, 1_300);
    assert_eq!(clocks.since_boot(Millis(1_700)), Millis(700));
    assert_eq!(clocks.shard(Millis(700)), Millis(1_700));
    assert_eq!(clocks.wall(Millis(1_700)), Millis(2_000));
}

#[test]
fn a_wall_clock_that_was_corrected_counts_for_all_since_the_boot() {
    let then = Some(clocks(7, 1_000, 3_601_000));
    let now = Some(clocks(7, 990, 1_000));
    assert_eq!(wall_less_shard(then, now, [].iter()), 0);
    let other = Some(clocks(8, 0, 50));
    assert_eq!(wall_less_shard(then, other, [].iter()), 3_600_000, "as it was written down");
    let heads = [head(other), head(Some(clocks(7, 995, 1_500))), head(then), head(None)];
    assert_eq!(wall_less_shard(then, other, heads.iter()), 500, "as that boot had it last");
    assert_eq!(wall_less_shard(None, now, heads.iter()), 0);
}

#[test]
fn clocks_of_any_value_are_read_back_and_overflow_nothing() {
    for shard_offset in [i64::MIN, -1, 0, i64::MAX] {
        for wall_offset in [i64::MIN, 0, i64::MAX] {
            let clocks = clocks(u64::MAX, shard_offset, wall_offset);
            let bytes = clocks.encode();
            assert_eq!(Clocks::decode(bytes), Some(clocks));
            for at in [0, 1, u64::MAX] {
                let _ = (clocks.wall(Millis(at)), clocks.since_boot(Millis(at)));
                let _ = (clocks.shard(Millis(at)), wall_less_shard(Some(clocks), None, [].iter()));
            }
        }
    }
}

#[test]
fn a_wall_clock_that_leaps_ahead_makes_no_history_old_before_a_day_has_passed() {
    const DAY: u64 = 86_400_000;
    let head_at = |last_at: u64, clocks: Clocks| {
        let tip = Tip { last_at: Millis(last_at), clocks: Some(clocks), ..Tip::FIRST };
        SegmentHeader { tip, ..head(None) }
    };
    let right = clocks(7, 0, 1_000 * DAY.cast_signed());
    let leapt = clocks(7, 0, 1_040 * DAY.cast_signed());
    let believed =
        |now, clocks, heads: &[SegmentHeader]| believed_wall(Millis(now), clocks, heads.iter()).0;
    // Set while the machine ran, and noted by segments since.
    let heads = [head_at(5 * DAY, right)];
    assert_eq!(believed(5 * DAY + 9, right, &heads), 1_005 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, leapt, &heads), 1_005 * DAY + 9);
    let heads = [head_at(5 * DAY + 5, leapt), heads[0]];
    assert_eq!(believed(5 * DAY + 9, leapt, &heads), 1_005 * DAY + 9);
    assert_eq!(believed(6 * DAY + 9, leapt, &heads), 1_046 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, clocks(7, 0, 3), &heads), 5 * DAY + 12, "set back");
    // Wrong when the machine had been booted.
    let heads = [head_at(5 * DAY, right)];
    let booted = |wall: u64| clocks(8, 5 * DAY.cast_signed(), wall.cast_signed());
    assert_eq!(believed(5 * DAY + 9, booted(1_005 * DAY), &heads), 1_005 * DAY + 9);
    assert_eq!(believed(5 * DAY + 9, booted(1_040 * DAY), &heads), 1_006 * DAY + 9);
    assert_eq!(believed(6 * DAY + 9, booted(1_040 * DAY), &heads), 1_041 * DAY + 9);
    assert_eq!(believed(9, right, &[]), 1_000 * DAY + 9);
}
