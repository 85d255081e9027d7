//! The notes that are kept with a shard's log, and outlive its messages: they show that another
//! shard's log is gone, and for which times answered allocations are missing.
//!
//! The logs of all shards of a process are created before the first of them has a message. So if
//! one has messages, the others have existed. Source: docs/spec/log.md, "Lost streams".

use std::collections::BTreeSet;

use crate::canary::{Bug, planted};
use crate::store::gaps::Gaps;

/// The notes of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogNotes {
    /// The shards of the process that created the log, or that has added shards since.
    pub shards: BTreeSet<u16>,
    /// It was created in place of a log that was lost.
    pub is_replacement: bool,
    /// The times for which answered allocations may be missing.
    pub gaps: Gaps,
}

/// The state of a log before a process uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundLog {
    /// There is no trace of it.
    Missing,
    /// It does not exist, and the place of its snapshots does, which is created after it.
    Lost,
    /// It exists.
    Found {
        /// Its notes.
        notes: LogNotes,
        /// The place after the last message that it has ever had.
        end: u64,
    },
}

impl FoundLog {
    /// The place after its last message. If it ends earlier afterwards, another log has replaced it.
    #[must_use]
    pub fn end(&self) -> u64 {
        if let Self::Found { end, .. } = self { *end } else { 1 }
    }

    /// The notes with which the log is used: its own, and those of this start.
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

/// The shards whose logs were lost, or replace a log that was lost: their numbers may be locked by
/// allocations that nothing shows any more.
#[must_use]
pub fn lost_logs(found: &[(u16, FoundLog)]) -> BTreeSet<u16> {
    let known: BTreeSet<u16> = found
        .iter()
        .filter_map(|(_, log)| match log {
            FoundLog::Found { notes, end } if *end > 1 => Some(&notes.shards),
            FoundLog::Found { .. } | FoundLog::Missing | FoundLog::Lost => None,
        })
        .flatten()
        .copied()
        .collect();
    let is_lost = |(shard, log): &&(u16, FoundLog)| match log {
        FoundLog::Missing => known.contains(shard) && !planted(Bug::LostLogIgnored),
        FoundLog::Lost => true,
        FoundLog::Found { notes, .. } => notes.is_replacement,
    };
    found.iter().filter(is_lost).map(|(shard, _)| *shard).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shards: &[u16], is_replacement: bool, has_messages: bool) -> FoundLog {
        let shards = shards.iter().copied().collect();
        let notes = LogNotes { shards, is_replacement, gaps: Gaps::default() };
        FoundLog::Found { notes, end: if has_messages { 9 } else { 1 } }
    }

    fn lost(logs: &[FoundLog]) -> Vec<u16> {
        let logs: Vec<_> = (0..).zip(logs.iter().cloned()).collect();
        lost_logs(&logs).into_iter().collect()
    }

    #[test]
    fn a_log_is_lost_if_another_one_that_was_created_with_it_has_messages() {
        assert_eq!(lost(&[found(&[0, 1], false, true), FoundLog::Missing]), [1]);
        assert_eq!(lost(&[FoundLog::Missing, found(&[0, 1], false, true)]), [0]);
        assert_eq!(lost(&[found(&[0, 1], false, true), FoundLog::Lost]), [1]);
        // It has been replaced, and perhaps nothing has been recorded since.
        assert_eq!(lost(&[found(&[0, 1], false, true), found(&[0, 1], true, true)]), [1]);
    }

    #[test]
    fn a_first_start_that_was_interrupted_or_an_added_shard_is_no_loss() {
        assert_eq!(lost(&[FoundLog::Missing, FoundLog::Missing]), [0; 0]);
        assert_eq!(lost(&[found(&[0, 1], false, false), FoundLog::Missing]), [0; 0]);
        let taken = found(&[0, 1], false, true);
        assert_eq!(lost(&[taken.clone(), found(&[0, 1], false, false)]), [0; 0]);
        assert_eq!(lost(&[taken.clone(), taken, FoundLog::Missing]), [0; 0], "the third is new");
    }
}
