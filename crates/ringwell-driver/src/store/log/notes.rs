//! The notes that are kept with a shard's log, and that outlive its messages. They show whether
//! another shard's log is gone. They list the periods in which answered allocations may be missing,
//! and those in which numbers were overflow numbers.
//!
//! The logs of all of a process's shards are created before any of them gets a message. So if one
//! log has messages, the logs of the other shards must have existed. Source: docs/spec/log.md,
//! "Lost streams".

use std::collections::{BTreeMap, BTreeSet};

use super::end::LogEnd;
use crate::canary::{Bug, planted};
use crate::store::gaps::Gaps;
use crate::store::overflow_periods::OverflowPeriods;

/// The notes of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogNotes {
    /// The shards of the process that created the log, and the shards that later processes added.
    pub shards: BTreeSet<u16>,
    /// Whether the log was created to replace a log that was lost.
    pub is_replacement: bool,
    /// The periods in which answered allocations may be missing.
    pub gaps: Gaps,
    /// The newest periods in which numbers were overflow numbers.
    pub overflow: OverflowPeriods,
    /// The log's last known end when a process detected lost messages; zeros if no process has
    /// detected any.
    pub failed_at: LogEnd,
}

/// The facts that a process keeps in the notes of its logs while it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptNotes {
    /// See [`LogNotes::gaps`].
    pub gaps: Gaps,
    /// See [`LogNotes::overflow`].
    pub overflow: OverflowPeriods,
    /// Set once a journal has failed: the end of each shard's log. See [`LogNotes::failed_at`].
    pub failed_at: BTreeMap<u16, LogEnd>,
}

/// The state of a log before a process uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundLog {
    /// There is no trace of the log.
    Missing,
    /// The log does not exist, but the stream of its snapshots does, which is always created after
    /// the log.
    Lost,
    /// The log exists.
    Found {
        /// The log's notes.
        notes: LogNotes,
        /// The place after the last message that the log has ever had.
        end: u64,
    },
}

impl FoundLog {
    /// Returns the place after the log's last message. If the log is later found to end before this
    /// place, it was replaced.
    #[must_use]
    pub fn end(&self) -> u64 {
        if let Self::Found { end, .. } = self { *end } else { 1 }
    }

    /// Returns the log's notes with `shards` added, and marked as those of a replacement if
    /// `is_lost`.
    #[must_use]
    pub fn notes(&self, shards: &BTreeSet<u16>, is_lost: bool) -> LogNotes {
        let found = match self {
            Self::Found { notes, .. } => notes.clone(),
            Self::Missing | Self::Lost => LogNotes::default(),
        };
        LogNotes {
            shards: found.shards.union(shards).copied().collect(),
            is_replacement: found.is_replacement || is_lost,
            ..found
        }
    }
}

/// The minimum end of a log that counts as having been in use. A node's first startups may be
/// interrupted after some of its logs have received messages, but not this often.
const IN_USE_MIN: u64 = 100;

/// Returns the shards whose logs were lost, or were created to replace lost logs. Allocations of
/// these shards' numbers may be lost, so the numbers may still be locked. `reached` contains the
/// ends of logs that other processes reported.
#[must_use]
pub fn lost_logs(found: &[(u16, FoundLog)], reached: &BTreeMap<u16, LogEnd>) -> BTreeSet<u16> {
    let known_to = |end_min: u64| -> BTreeSet<u16> {
        let lists = found.iter().filter_map(|(_, log)| match log {
            FoundLog::Found { notes, end } if *end >= end_min => Some(&notes.shards),
            FoundLog::Found { .. } | FoundLog::Missing | FoundLog::Lost => None,
        });
        lists.flatten().copied().collect()
    };
    let (known, long_known) = (known_to(2), known_to(IN_USE_MIN));
    let had_messages =
        |shard: &u16| reached.get(shard).is_some_and(|end| *end != LogEnd::default());
    let is_lost = |(shard, log): &&(u16, FoundLog)| match log {
        FoundLog::Missing if had_messages(shard) => true,
        FoundLog::Missing => known.contains(shard) && !planted(Bug::LostLogIgnored),
        FoundLog::Lost => true,
        FoundLog::Found { notes, end } => {
            let had_messages = had_messages(shard) || long_known.contains(shard);
            notes.is_replacement || *end == 1 && had_messages
        }
    };
    found.iter().filter(is_lost).map(|(shard, _)| *shard).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shards: &[u16], is_replacement: bool, has_messages: bool) -> FoundLog {
        let shards = shards.iter().copied().collect();
        let notes = LogNotes { shards, is_replacement, ..LogNotes::default() };
        FoundLog::Found { notes, end: if has_messages { 9 } else { 1 } }
    }

    fn lost(logs: &[FoundLog]) -> Vec<u16> {
        lost_after(logs, &[])
    }

    fn lost_after(logs: &[FoundLog], epochs: &[u64]) -> Vec<u16> {
        let logs: Vec<_> = (0..).zip(logs.iter().cloned()).collect();
        let end = |epoch: &u64| LogEnd { epoch: *epoch, group: 0 };
        let reached = (0..).zip(epochs.iter().map(end)).collect();
        lost_logs(&logs, &reached).into_iter().collect()
    }

    #[test]
    fn a_log_is_lost_if_another_one_that_was_created_with_it_has_messages() {
        assert_eq!(lost(&[found(&[0, 1], false, true), FoundLog::Missing]), [1]);
        assert_eq!(lost(&[FoundLog::Missing, found(&[0, 1], false, true)]), [0]);
        assert_eq!(lost(&[found(&[0, 1], false, true), FoundLog::Lost]), [1]);
        // The second log is a replacement that possibly contains no hold yet.
        assert_eq!(lost(&[found(&[0, 1], false, true), found(&[0, 1], true, true)]), [1]);
    }

    #[test]
    fn a_log_keeps_its_notes_and_its_end() {
        let (shards, none) = (BTreeSet::from([1, 2]), BTreeSet::new());
        assert_eq!(found(&[0, 1], false, true).end(), 9);
        assert_eq!((FoundLog::Missing.end(), FoundLog::Lost.end()), (1, 1));
        for (was_lost, is_lost) in [(false, false), (false, true), (true, false), (true, true)] {
            let notes = found(&[0, 1], was_lost, true).notes(&shards, is_lost);
            assert_eq!(notes.shards, BTreeSet::from([0, 1, 2]));
            assert_eq!(notes.is_replacement, was_lost || is_lost);
            assert_eq!(FoundLog::Missing.notes(&none, is_lost).is_replacement, is_lost);
        }
    }

    #[test]
    fn a_log_is_lost_if_another_process_has_served_it() {
        let empty = found(&[0, 1], false, false);
        assert_eq!(lost_after(&[FoundLog::Missing, FoundLog::Missing], &[1, 4]), [0, 1]);
        // Another process has just created the first log again.
        assert_eq!(lost_after(&[empty.clone(), FoundLog::Missing], &[1, 0]), [0]);
        assert_eq!(lost_after(&[found(&[0, 1], false, true), empty], &[1, 0]), [0; 0]);
    }

    #[test]
    fn a_first_start_that_was_interrupted_or_an_added_shard_is_no_loss() {
        assert_eq!(lost(&[FoundLog::Missing, FoundLog::Missing]), [0; 0]);
        assert_eq!(lost(&[found(&[0, 1], false, false), FoundLog::Missing]), [0; 0]);
        let taken = found(&[0, 1], false, true);
        assert_eq!(lost(&[taken.clone(), found(&[0, 1], false, false)]), [0; 0]);
        assert_eq!(lost(&[taken.clone(), taken, FoundLog::Missing]), [0; 0], "the third is new");
        // No first startup is interrupted this often: someone has created the second log again.
        let FoundLog::Found { notes, .. } = found(&[0, 1], false, true) else { unreachable!() };
        let used = FoundLog::Found { notes, end: IN_USE_MIN };
        assert_eq!(lost(&[used, found(&[0, 1], false, false)]), [1]);
    }
}
