//! Bugs that are planted on purpose: each must be found within a budget of seeds.
//!
//! A simulator that finds nothing has shown nothing, unless it is known that it could. Most of them
//! are in production code, which has them only if it is built for it: `planted_bugs.rs` does that.
#![cfg(canary)]

use ringwell_sim::{Bug, Kind, Options, run};

/// Seeds that a bug may take.
const SEEDS_MAX: u64 = 400;

/// Plants a bug where these kinds of faults are frequent; it must show as one of these promises.
fn found(bug: Bug, on: &[Kind], rules: &[&str]) {
    let of = |seed| Options { seed, on: on.to_vec(), bug: Some(bug), ..Options::default() };
    let broken = (0..SEEDS_MAX).find_map(|seed| run(&of(seed)).violation.map(|it| (seed, it)));
    let Some((seed, broken)) = broken else { panic!("{bug:?} was not found") };
    println!("{bug:?}: seed {seed}, {}: {}", broken.rule, broken.text);
    assert!(rules.contains(&broken.rule), "{bug:?} showed as {broken:?}");
}

#[test]
fn answers_that_do_not_wait_for_the_disk_are_found() {
    found(Bug::ReplyBeforeFlush, &[Kind::Power], &["forgotten"]);
}

#[test]
fn a_flush_that_is_tried_again_is_found() {
    let rules = ["forgotten", "refused", "attribution"];
    found(Bug::FlushAgain, &[Kind::FlushError, Kind::Power, Kind::Kill], &rules);
}

#[test]
fn a_journal_that_is_cut_in_its_middle_is_found() {
    let rules = ["forgotten", "double", "not live"];
    found(Bug::CutAtBadFrame, &[Kind::Rot, Kind::Power], &rules);
}

#[test]
fn a_rotten_end_without_a_hold_is_found() {
    found(Bug::NoHoldAfterRot, &[Kind::RotAtEnd, Kind::Kill], &["not held", "double"]);
}

#[test]
fn a_rename_that_does_not_last_is_found() {
    found(Bug::NoNameFlush, &[Kind::Power], &["forgotten", "refused"]);
}

#[test]
fn files_that_are_used_again_with_the_same_salt_are_found() {
    found(Bug::OneSalt, &[Kind::Power, Kind::CrashAtCall], &["refused", "forgotten"]);
}

#[test]
fn a_snapshot_that_misses_a_group_is_found() {
    let rules = ["forgotten", "attribution", "double in shard time", "another answer"];
    found(Bug::SnapshotMissesGroup, &[Kind::SlowDisk, Kind::Kill], &rules);
}

#[test]
fn a_snapshot_that_counts_too_early_is_found() {
    let rules = ["refused", "forgotten", "attribution", "panic"];
    found(Bug::SnapshotTooEarly, &[Kind::SlowDisk, Kind::Kill], &rules);
}

#[test]
fn a_snapshot_that_misses_the_numbers_that_moved_is_found() {
    let rules = [
        "double",
        "double in shard time",
        "forgotten",
        "attribution",
        "another answer",
        "visitor moved",
    ];
    let on = [Kind::Move, Kind::Manage, Kind::CrashAtCall, Kind::Kill];
    found(Bug::SnapshotMissesMoved, &on, &rules);
}

#[test]
fn history_that_is_dropped_without_a_copy_is_found() {
    found(Bug::NoCarry, &[Kind::Visitor], &["attribution", "forgotten"]);
}

#[test]
fn shard_time_by_the_wall_clock_is_found() {
    let rules = ["double", "visitor moved", "another answer", "kept too short"];
    found(Bug::WallClock, &[Kind::ClockForward], &rules);
}

#[test]
fn a_lockout_that_is_short_by_a_part_of_a_millisecond_is_found() {
    found(Bug::NoRounding, &[], &["wrong lockout"]);
}

#[test]
fn an_owner_that_ignores_deadlines_is_found() {
    found(Bug::DeadlineIgnored, &[Kind::Hurry, Kind::SlowShard], &["granted late"]);
}

#[test]
fn numbers_that_are_released_after_their_answer_are_found() {
    found(Bug::ReleaseAnswered, &[Kind::Abort], &["double"]);
}

#[test]
fn a_batch_that_is_applied_twice_is_found() {
    found(Bug::RetryForgotten, &[Kind::Retry], &["another answer"]);
}

#[test]
fn requests_that_are_known_by_their_key_alone_are_found() {
    let on = [Kind::Retry, Kind::SameKey, Kind::Single];
    found(
        Bug::KeyAlone,
        &on,
        &["wrong pool", "double", "another answer", "overflow without cause"],
    );
}

#[test]
fn allocations_that_nobody_saw_and_that_count_are_found() {
    found(Bug::UnseenCounts, &[Kind::Hurry, Kind::Abort], &["attribution"]);
}

#[test]
fn numbers_that_leave_long_after_their_deadline_are_found() {
    let on = [Kind::Pause, Kind::SlowShard];
    found(Bug::ReadyBeatsDeadline, &on, &["number left late", "double"]);
}

#[test]
fn rows_in_the_wrong_order_are_found() {
    found(Bug::RowsMixed, &[], &["phantom"]);
}

#[test]
fn an_overflow_number_in_rotation_is_found() {
    found(Bug::OverflowInRotation, &[], &["wrong pool"]);
}

#[test]
fn an_owner_that_goes_by_an_old_map_is_found() {
    found(Bug::StaleMap, &[Kind::MapChange], &["double", "two owners"]);
}

#[test]
fn pools_that_move_without_a_hold_are_found() {
    found(Bug::NoHoldAfterMove, &[Kind::MapChange], &["double", "forgotten"]);
}

#[test]
fn a_pool_that_appears_after_the_start_and_is_not_held_is_found() {
    let on = [Kind::MapChange, Kind::LateList];
    found(Bug::LatePoolsNotHeld, &on, &["double", "forgotten"]);
}

#[test]
fn a_link_that_never_shuts_is_found() {
    found(Bug::NeverShut, &[Kind::FrameLost, Kind::Partition], &["a link does not shut"]);
}

#[test]
fn a_taker_that_has_stored_nothing_is_found() {
    let rules = ["double", "forgotten", "visitor moved", "another answer"];
    found(Bug::AdoptUnstored, &[Kind::Move, Kind::Power, Kind::SlowDisk], &rules);
}

#[test]
fn a_giver_that_forgets_that_it_gave_is_found() {
    let rules = ["two owners", "not live", "double", "forgotten"];
    found(Bug::GivenNotKept, &[Kind::Move, Kind::Kill], &rules);
}

#[test]
fn buckets_that_are_taken_after_they_have_moved_on_are_found() {
    let rules = ["two owners", "double", "forgotten", "visitor moved", "another answer"];
    found(Bug::StaleTake, &[Kind::Move, Kind::FrameDoubled, Kind::FrameDelayed], &rules);
}

#[test]
fn a_giver_that_leaves_out_the_last_group_is_found() {
    found(Bug::FactsMissGroup, &[Kind::Move], &["forgotten", "double"]);
}

#[test]
fn a_taker_that_forgets_visitors_and_answers_is_found() {
    let rules = ["visitor moved", "another answer"];
    found(Bug::AdoptForgets, &[Kind::Move, Kind::Visitor], &rules);
}

#[test]
fn a_node_that_believes_hearsay_is_found() {
    let rules = ["forgotten", "two owners", "double", "another answer"];
    found(Bug::HearsayBelieved, &[Kind::Move, Kind::FrameDelayed], &rules);
}

#[test]
fn a_start_that_goes_by_the_wall_clock_within_one_boot_is_found() {
    let rules = ["double", "another answer"];
    found(Bug::WallAtStart, &[Kind::ClockForward, Kind::Kill], &rules);
}

#[test]
fn look_ups_by_shard_time_are_found() {
    let on = [Kind::ClockForward, Kind::ClockRight, Kind::Kill];
    found(Bug::ShardTimeInLookups, &on, &["attribution"]);
}
