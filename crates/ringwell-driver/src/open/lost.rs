//! Reports lost groups when a take-over reveals them, and decides whether pools must be held.
//!
//! Source: docs/spec/log.md, "Lost groups", "Lost streams".

use ringwell_journal::Tip;

use crate::store::{LogEnd, Places, SnapshotIndex};

/// Whether the log has lost groups. `taken_n` is the take-over's place in the log. Groups are lost
/// if the copy or a snapshot already had a group at that place. They are also lost if `is_other` is
/// set: the log then has a different group at the place of the copy's last group.
pub(super) fn report_lost(
    shard: u16,
    taken_n: u64,
    copied: u64,
    ahead: &[(u64, SnapshotIndex)],
    is_other: bool,
) -> bool {
    let proven = ahead.iter().map(|it| it.1.through).fold(copied, u64::max);
    if proven < taken_n && !is_other {
        return false;
    }
    tracing::error!(
        shard,
        lost_from = taken_n,
        lost_to = proven,
        "the journal's log has lost acknowledged writes: all pools of the shard answer with \
         overflow numbers for the longest lifetime, then resume by themselves. Find out why: check \
         the sync_interval of the journal's servers, and whether a disk was restored from a copy"
    );
    true
}

/// Whether the last message before the take-over comes from another program. The message may be a
/// group that was damaged beyond recognition; no later group shows otherwise.
pub(super) fn report_foreign(shard: u16, taken_n: u64, places: &Places) -> bool {
    let messages = places.foreign_before(taken_n);
    if messages > 0 {
        tracing::error!(
            shard,
            messages,
            "the journal's stream ends with messages from another program: all pools of the shard \
             answer with overflow numbers for the longest lifetime, then resume by themselves"
        );
    }
    messages > 0
}

/// Whether the shard continues with group `begins` but without a snapshot of the groups before it.
/// If so, logs this.
pub(super) fn report_past(shard: u16, begins: Option<u64>) -> bool {
    if begins.is_some() {
        tracing::error!(
            shard,
            begins,
            "no snapshot beside the journal's log can be read, and the log's beginning was \
             dropped: the shard continues with the part of the log that remains. All its pools \
             answer with overflow numbers for the longest lifetime, then resume by themselves; \
             look-ups for earlier times answer \"not kept\". Check the disks of the journal's \
             servers"
        );
    }
    begins.is_some()
}

/// Whether the log was created to replace one that was lost and does not yet contain a record of a
/// hold. A snapshot is taken only after such a record is written.
pub(super) fn report_replacement(shard: u16, is_new: bool) -> bool {
    if is_new {
        tracing::error!(
            shard,
            "the journal's stream of this shard is gone, although streams of other shards exist \
             or another process has just served this shard: the stream was deleted. The shard's \
             allocations are lost, and look-ups cannot find them. All pools of the shard answer \
             with overflow numbers for the longest lifetime, then resume by themselves. Stop the \
             server before you restore the shard's two streams from a backup. Find out who \
             deleted the streams"
        );
    }
    is_new
}

/// Whether another process reported groups that are missing from this log. `tip` is the end of the
/// log after the take-over.
pub(super) fn report_other(shard: u16, tip: &Tip, (reached, failed_at): (LogEnd, LogEnd)) -> bool {
    let taken_n = tip.next_n - 1;
    let is_beyond = reached.is_beyond(tip.epoch, taken_n);
    // If a process has taken the log over since the failure was noted, it has already held the
    // pools.
    let is_after = tip.epoch <= failed_at.epoch.saturating_add(1);
    let has_failed = is_after && failed_at.group >= taken_n;
    let is_other = is_beyond || has_failed;
    if is_other {
        let LogEnd { epoch, group } = if is_beyond { reached } else { failed_at };
        tracing::error!(
            shard,
            lost_from = taken_n,
            reported_group = group,
            reported_epoch = epoch,
            "the journal's stream of this shard ends before the last group that an earlier \
             process reported: the stream has lost acknowledged writes, or was deleted and created \
             again. All pools of the shard answer with overflow numbers for the longest lifetime, \
             then resume by themselves. Find out why: check the sync_interval of the journal's \
             servers, and who may delete streams"
        );
    }
    is_other
}
