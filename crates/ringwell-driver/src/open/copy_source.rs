//! The snapshots beside a shared log, for a copy that begins with one of them.

use ringwell_core::PoolSpec;

use super::read::Believed;
use crate::store::{LogEnd, Settings, SnapshotStore};

/// The snapshots beside a log, and everything else that is needed to begin a copy with one of them.
#[derive(Debug)]
pub struct CopySource<'a> {
    /// The snapshots.
    pub snapshots: &'a dyn SnapshotStore,
    /// The settings, which include the location of the copy.
    pub settings: &'a Settings,
    /// The shard's pools.
    pub specs: &'a [PoolSpec],
    /// The limits on how far the copy is trusted.
    pub believed: Believed,
    /// Whether the log was created to replace one that was lost.
    pub is_replacement: bool,
    /// The place after the log's last message when the log was found. If the log ends earlier than
    /// this, it has replaced the log that was found.
    pub end: u64,
    /// The end of the log as reported by other processes.
    pub reached: LogEnd,
    /// The value of [`LogNotes::failed_at`](crate::store::LogNotes::failed_at).
    pub failed_at: LogEnd,
}
