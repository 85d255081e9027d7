//! The storage of a shard's groups: the trait [`Store`], and its implementations.
//!
//! Owns the data directory, which contains the segments and snapshots of each shard's journal, and
//! a few other files. Does not depend on allocation: the engine defines the meaning of records.
//! `ringwell-journal` defines their encoding. Accesses files only through [`Files`].
//!
//! ```text
//! DATA/LOCK                                 locked by the process that serves
//! DATA/site-secret                          signs the visitors' ids and leases that pages store
//! DATA/cluster-map.json                     only on a cluster's node: the buckets served here
//! DATA/identity.json                        the name of this data directory
//! DATA/peers.json                           the records of other nodes' journals
//! DATA/lifetimes.json                       the longest lifetimes of the lists of pools
//! DATA/overflow-numbers.json                only on a cluster's node: the overflow numbers served
//! DATA/gaps.json                            periods for which answered allocations may be missing
//! DATA/RESTORED                             a copy: all pools are held at the next start
//! DATA/.restoring                           an incomplete restore: servers refuse to start
//! DATA/unflushed.json                       the boot and mount of unflushed answers
//! DATA/journal/<shard>/<segment:016>.rpj    segments; fixed size, used again under a new name
//! DATA/journal/<shard>/<k:016>.spare        zero-filled or dropped segments, for reuse
//! DATA/journal/<shard>/<frame:020>.rps      snapshots; the name is the first frame to replay
//! ```
//!
//! Invariant: nothing is reported as stored before it is as durable as configured. After a write or
//! flush has failed for a reason other than a full disk, nothing more is stored. Source:
//! docs/spec/journal.md, "Files".

mod aligned;
mod dated;
mod either;
mod files;
mod frames;
mod gaps;
mod identity;
mod index;
mod inline;
mod interface;
mod journal;
mod known_nodes;
mod log;
mod memory;
mod overflow_periods;
mod read_error;
mod seen;
mod segments;
mod served;
mod served_overflow;
mod shard;
mod snapshots;
mod spares;
mod stats;
mod unflushed;
mod unreadable;

pub use dated::{Dated, Dating};
pub use either::Either;
pub use files::{Access, FileError, Files, flush_found_names, read_whole, write_whole};
pub use frames::Frames;
pub(crate) use gaps::UNDONE_MAX;
pub use gaps::{Gap, Gaps};
pub use identity::{
    FoundJournal, Identity, RESTORED, WrittenJournal, is_restored, mark_restored, unmark_restored,
};
pub use index::JournalReader;
pub use inline::{Inline, InlineJournal, Unstored};
pub use interface::{Appended, Damage, Draft, Part, Reader, Store};
pub use journal::{Dropped, Journal};
pub use known_nodes::{KnownNode, read_nodes, write_nodes};
pub use log::{
    APART, Appending, Ask, BEAT_EVERY, Beat, Before, Fate, Fenced, FoundLog, HistoryLimits,
    KeptNotes, LastHeartbeat, LastOwner, Log, LogDraft, LogEnd, LogNotes, LogReader, LogStore,
    Logs, NotAppended, Numbered, Peak, Places, Prefix, Reached, SharedLog, Sign, Silence,
    SnapshotIndex, SnapshotStore, Unreached, Waiting, indexes as snapshot_indexes, lost_logs,
    reached_ends,
};
pub(crate) use log::{STALE_MAX, append as append_to_log};
pub use memory::{Memory, MemoryReader};
pub use overflow_periods::OverflowPeriods;
pub use read_error::ReadError;
pub use ringwell_journal::Recovered;
pub use seen::SeenJournals;
pub use segments::{SegmentFiles, journal_found, segment_path};
pub use served::{Leaving, ServedMap, read_lifetimes, write_lifetimes};
pub use served_overflow::ServedOverflow;
pub(crate) use served_overflow::overflow_numbers;
pub use shard::{OpenError, ShardStore};
pub use snapshots::{
    SnapshotFile, SnapshotRef, SnapshotSource, list as list_snapshots, read as read_snapshot,
};
pub use spares::Spares;
pub use stats::Stats;
pub use unflushed::{Unkept, end_unflushed, may_lack_groups, note_unflushed, settle_unflushed};
pub use unreadable::unreadable_files;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ringwell_config::{Config, Durability};
use ringwell_core::Millis;
use ringwell_directory::Directory;

/// The way in which frames are written to the disk. Both ways are equally durable.
///
/// The following figures are medians of four runs on a virtual disk with ext4. For consecutive
/// frames of 2.6, 20 and 170 KB, direct writes stored 9,600, 7,900 and 3,900 frames/s, and buffered
/// writes 9,000, 6,500 and 2,300. The median time to store one of the smallest frames was 97 us
/// with direct writes and 103 us with buffered writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Through the page cache, followed by a flush.
    Buffered,
    /// Bypassing the page cache; `Buffered` if the file system does not support that.
    Direct,
}

/// The minimum history that a shard with `durability = "memory"` keeps in addition to the newest
/// allocation of each number.
const MEMORY_HISTORY_BYTES: u64 = 128 << 20;

/// The history that is kept for each number, in bytes: enough for twice the number's newest
/// allocation. With less, dropping old groups would mean copying most of their contents.
const MEMORY_NUMBER_BYTES: u64 = 128;

/// Returns one eighth of the maximum history age. A segment of this age is replaced by a new one. A
/// snapshot of this age is followed by a new one if records are written.
#[must_use]
pub const fn segment_span(history_age: Millis) -> Millis {
    Millis(history_age.0 / 8)
}

/// The location and the settings of journals.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory.
    pub data: PathBuf,
    /// The durability that a group must reach to count as stored.
    pub durability: Durability,
    /// The way in which frames are written to the disk, if `durability` is `Disk`.
    pub write_mode: WriteMode,
    /// The length of a segment's file.
    pub segment_bytes: u64,
    /// The number of segments that are prepared in advance, so that a full disk is noticed before a
    /// frame needs the space.
    pub spare_segments: usize,
    /// History beyond this many bytes may be dropped. If groups are kept only in memory, this
    /// limits their size.
    pub history_bytes: u64,
    /// History older than this may be dropped.
    pub history_age: Option<Millis>,
    /// Locked while a failed write is recorded. Shards that share these settings may fail at the
    /// same moment and write the same file.
    pub failing: Arc<Mutex<()>>,
}

impl Settings {
    /// Returns the defaults: direct writes, segments of 64 MiB, one prepared segment, and no limits
    /// on the history. The configuration sets these limits.
    #[must_use]
    pub fn new(data: PathBuf, durability: Durability) -> Self {
        Self {
            data,
            durability,
            write_mode: WriteMode::Direct,
            segment_bytes: 64 << 20,
            spare_segments: 1,
            history_bytes: u64::MAX,
            history_age: None,
            failing: Arc::default(),
        }
    }

    /// Returns the settings from the configuration.
    #[must_use]
    pub fn of(config: &Config, directory: &Directory) -> Self {
        let mut settings = Self::new(config.data.clone(), config.durability);
        settings.segment_bytes = config.journal.segment_bytes;
        settings.spare_segments = usize::try_from(config.journal.spare_segments).unwrap_or(1);
        settings.history_bytes = match config.durability {
            Durability::Memory => {
                let numbers = directory.number_count() / u64::from(directory.shards());
                MEMORY_HISTORY_BYTES.max(numbers * MEMORY_NUMBER_BYTES)
            }
            Durability::Disk | Durability::Os => config.journal.history_bytes,
        };
        settings.history_age = Some(config.journal.history_age);
        settings
    }

    /// Returns [`segment_span`] for these settings.
    #[must_use]
    pub fn segment_span(&self) -> Option<Millis> {
        self.history_age.map(segment_span)
    }

    /// Returns a shard's journal directory.
    #[must_use]
    pub fn shard_directory(&self, shard: u32) -> PathBuf {
        self.data.join("journal").join(shard.to_string())
    }
}
