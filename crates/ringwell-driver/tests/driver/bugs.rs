//! Planted bugs that the simulator does not find within a few seeds, with the tests that find them.

use std::panic::catch_unwind;

use ringwell_driver::Bug;
use ringwell_driver::canary::plant;

use crate::{
    appends, arrivals, belongs, changes, clocks, conflict, disk, first_starts, held_buckets,
    holder, journals, link, moves, moves_agreed, moves_back, newer, open, returned, shard_counts,
    snapshots, withheld, witness,
};

const FOUND_BY: [(Bug, fn()); 53] = [
    (
        Bug::ReturnedUnseen,
        returned::a_start_holds_pools_whose_numbers_were_handed_out_elsewhere_in_the_meantime,
    ),
    (
        Bug::OtherLifetimesIgnored,
        returned::a_hold_lasts_as_long_as_an_earlier_lifetime_that_only_another_node_knows,
    ),
    (
        Bug::SnapshotMissesMoved,
        snapshots::a_snapshot_has_a_step_for_numbers_that_moved_while_it_was_taken,
    ),
    (
        Bug::ThroughTooEarly,
        snapshots::a_snapshot_covers_the_groups_that_were_added_while_it_was_taken,
    ),
    (
        Bug::LengthenedUnsaved,
        snapshots::a_snapshot_waits_ten_seconds_for_a_log_that_stores_slowly_and_not_for_a_full_disk,
    ),
    (
        Bug::ListChangedUnseen,
        moves_agreed::buckets_stay_if_their_list_changes_after_the_next_owner_has_agreed,
    ),
    (
        Bug::AdoptUnstored,
        moves_agreed::lockouts_that_arrive_are_stored_before_they_are_confirmed,
    ),
    (Bug::UnreadUnreported, holder::an_allocation_without_its_record_may_not_be_the_newest),
    (
        Bug::FormerShardBelieved,
        journals::a_doubted_journal_holds_buckets_that_another_shard_of_the_node_now_has,
    ),
    (
        Bug::RecordAskedAgain,
        holder::a_node_that_has_answered_with_the_record_is_not_asked_for_it_again,
    ),
    (
        Bug::AbortNotCompleted,
        moves_agreed::buckets_come_back_although_the_answer_of_the_node_that_agreed_to_it_was_lost,
    ),
    (
        Bug::DoubtForgotten,
        holder::a_visitor_whose_allocation_was_in_doubt_when_its_pool_moved_hides_no_later_one,
    ),
    (
        Bug::DoubtsStayBehind,
        arrivals::an_old_allocation_of_a_number_that_enters_a_pool_in_transit_is_not_sent_as_the_newest,
    ),
    (Bug::StaleTake, moves_back::buckets_on_their_way_back_are_not_taken_back_without_their_lockouts),
    (Bug::TakenNotHeld, moves::holds_of_buckets_and_gaps_in_the_history_move_along),
    (Bug::ReportGivenUp, witness::a_report_whose_sender_has_gone_is_recorded),
    (Bug::StopUnflushed, disk::the_end_of_a_journal_flushes_the_groups_that_were_not),
    (
        Bug::CopiesUnflushed,
        disk::copies_of_old_records_are_flushed_before_the_originals_are_dropped,
    ),
    (Bug::FoundNamesUnflushed, disk::a_startup_makes_the_files_that_it_finds_durable),
    (
        Bug::HiddenIgnored,
        appends::another_server_leads_if_the_leader_lacks_the_message_at_this_place,
    ),
    (
        Bug::LogPastIgnored,
        first_starts::a_node_that_continues_from_its_logs_on_another_machine_waits_for_silent_nodes,
    ),
    (
        Bug::FirstStartSilent,
        first_starts::a_first_start_asks_for_all_numbers_but_waits_for_no_node,
    ),
    (Bug::ConflictIgnored, conflict::numbers_in_pools_of_another_nodes_list_are_not_handed_out),
    (Bug::ConflictForgotten, conflict::a_node_that_falls_silent_has_not_corrected_its_list),
    (
        Bug::StartUnconfirmed,
        conflict::a_node_that_starts_with_an_old_list_does_not_hand_out_numbers_of_other_nodes,
    ),
    (Bug::TransitUnreported, changes::a_number_of_a_pool_in_transit_is_not_free_for_another_pool),
    (Bug::LockoutOutlastsDoubt, changes::a_lockout_that_outlasts_the_hold_of_its_bucket_is_in_doubt),
    (
        Bug::BackWithoutState,
        moves_back::buckets_on_their_way_back_are_not_taken_back_without_their_lockouts,
    ),
    (Bug::ReturnLate, moves_back::buckets_that_come_back_to_older_data_bring_lockouts_and_answers),
    (
        Bug::ListsBeforeHolds,
        changes::holds_are_recorded_where_their_pools_enter_even_if_they_are_over,
    ),
    (Bug::StartingAnswers, holder::a_starting_node_names_no_visitor),
    (
        Bug::ServedAdopts,
        moves_back::state_that_arrives_again_while_a_shard_already_serves_the_buckets_is_ignored,
    ),
    (
        Bug::ArrivalsUnconfirmed,
        conflict::a_node_whose_list_goes_back_asks_whether_the_others_have_followed,
    ),
    (
        Bug::NewOverflowUnasked,
        withheld::a_running_node_asks_the_others_about_new_overflow_numbers,
    ),
    (
        Bug::LogCopyBelieved,
        belongs::copies_of_a_shared_log_may_lack_answers_if_they_are_used_without_it,
    ),
    (
        Bug::LaterIgnored,
        holder::an_owner_without_allocations_knows_the_newest_visitor_before_the_numbers_arrived,
    ),
    (Bug::OwnerNotBelieved, holder::the_owner_knows_the_newest_visitor_even_if_a_clock_is_wrong),
    (Bug::LostWithGaps, holder::a_lost_period_hides_no_allocation_that_followed_it),
    (
        Bug::GapsNotDated,
        clocks::the_gap_before_a_startup_is_known_after_the_wall_clock_is_corrected,
    ),
    (Bug::GapsNotDated, clocks::an_overflow_period_is_known_after_the_wall_clock_is_corrected),
    (
        Bug::OtherVisitorIgnored,
        arrivals::a_number_that_is_locked_here_for_a_former_visitor_is_in_doubt,
    ),
    (
        Bug::TakenOverwritten,
        arrivals::a_change_of_the_list_is_recorded_without_losing_newer_owners_and_not_during_a_start,
    ),
    (
        Bug::CopyKeepsName,
        witness::a_disk_that_cannot_record_a_lost_journal_causes_a_refusal_and_is_not_trusted,
    ),
    (
        Bug::LifetimesNotKept,
        witness::a_hold_lasts_as_long_as_a_lifetime_of_the_list_before_the_last,
    ),
    (
        Bug::ExtensionDropped,
        shard_counts::an_extension_is_kept_if_its_number_changes_shards_twice_and_snapshots_are_lost,
    ),
    (
        Bug::HeldBucketsForgotten,
        held_buckets::a_pool_that_got_numbers_from_a_held_bucket_is_held_after_a_restart,
    ),
    (Bug::OtherListIgnored, held_buckets::a_hold_lasts_as_long_as_a_lifetime_of_another_node_s_list),
    (Bug::VersionUnasked, newer::a_running_node_notices_that_a_newer_file_omits_it),
    (Bug::OlderFileNames, newer::a_node_with_an_older_file_names_no_visitor),
    (Bug::FormerUninformed, link::a_node_that_a_newer_file_omits_is_informed_at_its_former_address),
    (Bug::OwnShardsBelieved, newer::a_running_node_notices_that_a_newer_file_gives_its_shards_away),
    (
        Bug::DroppedForgotten,
        open::a_cluster_file_without_a_shard_leaves_a_gap_in_the_history,
    ),
    (
        Bug::OverflowBelieved,
        withheld::an_overflow_number_that_was_not_served_as_one_is_in_doubt_also_after_a_restart,
    ),
];

#[test]
fn tests_find_bugs_that_the_simulator_misses() {
    let is_missed = |(bug, test): &(Bug, fn())| {
        test();
        plant(Some(*bug));
        let found = catch_unwind(test).is_err();
        plant(None);
        !found
    };
    let missed: Vec<Bug> = FOUND_BY.iter().filter(|it| is_missed(it)).map(|it| it.0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
