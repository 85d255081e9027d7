//! Table-driven tests of the decisions about clocks at startup.

use super::*;

const BOOT: u64 = 7;
const HOUR: u64 = 3_600_000;
const DAY: Millis = CLOCK_GAP_MAX;
/// The correct time at which the machine booted.
const BOOTED: u64 = 1_800_000_000_000;
const MINUTE: Millis = Millis(60_000);

/// Returns the clocks of a machine whose wall clock and shard time are correct.
fn right(boot: u64) -> Clocks {
    let offset = BOOTED.cast_signed();
    Clocks { boot, shard_offset: offset, wall_offset: offset }
}

fn recorded(since_boot: u64, clocks: Clocks) -> Recorded {
    Recorded { last_at: clocks.shard(Millis(since_boot)), clocks: Some(clocks) }
}

fn read(boot: u64, since_boot: u64, wall_error: i64) -> Reading {
    let wall = Millis((BOOTED + since_boot).saturating_add_signed(wall_error));
    Reading { boot, since_boot: Millis(since_boot), wall }
}

/// Returns shard time minus true time after startup, in milliseconds.
fn ahead(reading: &Reading, recorded: &[Recorded]) -> i64 {
    let now = reading.resume(recorded).shard(reading.since_boot);
    now.0.cast_signed() - (BOOTED + reading.since_boot.0).cast_signed()
}

#[test]
fn within_a_boot_the_wall_clock_does_not_matter() {
    let before = [recorded(10_000, right(BOOT))];
    for error in [0, 13_000, 3_600_000, -3_600_000, 40 * 86_400_000, -400 * 86_400_000] {
        let reading = read(BOOT, 12_345, error);
        assert_eq!(ahead(&reading, &before), 0, "{error} ms");
        let clocks = reading.resume(&before);
        let newest = clocks.shard(reading.since_boot);
        assert_eq!(doubtful(before[0], newest, Some(clocks), MINUTE), Millis::ZERO);
        assert_eq!(clocks.wall_less_shard(), error);
    }
}

#[test]
fn after_a_boot_the_wall_clock_measures_the_stop() {
    let before = [recorded(10_000, right(BOOT))];
    for (error, wanted) in [(0, 0), (3_600_000, 3_600_000), (-1_000, -1_000)] {
        assert_eq!(ahead(&read(BOOT + 1, 12_000, error), &before), wanted, "{error} ms");
    }
    // Shard time never goes back.
    assert_eq!(ahead(&read(BOOT + 1, 12_000, -3_600_000), &before), -2_000);
    let now = |ms| before[0].last_at + Millis(ms);
    let by = |ms| doubtful(before[0], now(ms), Some(right(BOOT + 1)), MINUTE);
    assert_eq!(by(20), Millis(20), "no longer than it may have been");
    let twice = MINUTE + MINUTE;
    assert_eq!(by(HOUR), twice, "the clock was behind before the boot, and is ahead now");
    assert_eq!(by(DAY.0), twice);
    assert_eq!(by(DAY.0 + 1), Millis(DAY.0 + 1), "not believed");
}

#[test]
fn a_difference_between_shard_time_and_wall_clock_survives_a_boot() {
    // Before the reboot, shard time was an hour ahead of the wall clock.
    let off = Clocks { shard_offset: right(BOOT).shard_offset + 3_600_000, ..right(BOOT) };
    let reading = read(BOOT + 1, 50_000, 0);
    assert_eq!(ahead(&reading, &[recorded(10_000, off)]), 3_600_000);
    assert_eq!(reading.resume(&[recorded(10_000, off)]).wall_less_shard(), -3_600_000);
}

#[test]
fn all_shards_of_a_process_have_the_same_time() {
    let early = recorded(1_000, right(BOOT));
    let late = recorded(9_000, right(BOOT));
    let of_another_boot = recorded(2_000, right(BOOT - 1));
    let reading = read(BOOT, 10_000, 5_000);
    assert_eq!(ahead(&reading, &[late, early, of_another_boot]), 0);
    // If one shard's recorded time is ahead of the others, shard time jumps forward for the other
    // shards, so their lockouts are lengthened.
    let ahead_of_all = Recorded { last_at: Millis(BOOTED + HOUR), clocks: None };
    let clocks = reading.resume(&[late, ahead_of_all]);
    let now = clocks.shard(reading.since_boot);
    assert_eq!(now, ahead_of_all.last_at);
    let jump = now.0 - BOOTED - 10_000;
    assert_eq!(doubtful(late, now, Some(clocks), MINUTE), Millis(jump - 1));
}

/// Shard time has lost a few milliseconds since the idle shard's last record. If startup continued
/// from the clocks in that record, the other shard's lockouts would end that much too early.
#[test]
fn a_start_continues_from_the_newest_clocks_and_not_from_those_of_an_idle_shard() {
    let mut waited = Clocks { wall_offset: 0, ..right(BOOT) };
    for _ in 0..5 {
        waited = slewed(waited);
    }
    let recorded = [recorded(9_000, right(BOOT)), recorded(20_000, waited)];
    assert_eq!(ahead(&read(BOOT, 20_500, 0), &recorded), -5);
    // Shard time never goes back.
    assert_eq!(ahead(&read(BOOT, 9_001, 0), &recorded), 20_000 - 5 - 9_001);
}

#[test]
fn a_journal_without_clocks_is_continued_by_the_wall_clock() {
    let old = Recorded { last_at: Millis(BOOTED + 5_000), clocks: None };
    assert_eq!(ahead(&read(BOOT, 9_000, 0), &[old]), 0);
    assert_eq!(ahead(&read(BOOT, 9_000, -6_000), &[old]), -4_000);
    let nothing = Recorded { last_at: Millis::ZERO, clocks: None };
    assert_eq!(ahead(&read(BOOT, 9_000, 77), &[nothing]), 77);
}

#[test]
fn shard_time_rejoins_the_wall_clock_slowly_and_lockouts_allow_for_it() {
    let seen = right(BOOT).wall_offset + 3_600_000;
    let mut clocks = observed(right(BOOT), seen);
    assert_eq!(clocks.wall_less_shard(), 3_600_000);
    assert_eq!(observed(clocks, seen - 4).wall_offset, seen, "two clocks are not read at once");
    let before = clocks.shard_offset;
    for _ in 0..10 {
        clocks = slewed(clocks);
    }
    assert_eq!(clocks.shard_offset, before + 10);
    let behind = Clocks { wall_offset: clocks.shard_offset - 3, ..clocks };
    assert_eq!(slewed(behind).wall_less_shard(), -2);
    assert_eq!(slewed(right(BOOT)), right(BOOT));
    for lifetime in (0..5_000).chain([30 * 60_000, 30 * 86_400_000]) {
        let lockout = lockout(Millis(lifetime));
        // The lockout exceeds the shard time that can pass within the lifetime.
        assert!(lockout.0 > lifetime + lifetime.div_ceil(SLEW_EVERY.0), "{lifetime} ms");
        assert_eq!(super::lifetime(lockout), Millis(lifetime));
    }
}
