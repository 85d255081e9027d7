//! Files: where groups are stored, read back and forgotten.
//!
//! Owns the data directory: its lock, the segments and snapshots of each shard's journal, and one
//! thread a shard that stores groups one at a time. Knows nothing of allocation: what a record
//! means is the engine's. What the bytes mean is ringwell-journal's.
//!
//! ```text
//! DATA/LOCK                                 held by the one process that serves
//! DATA/site-secret                          signs what pages keep of their visitors
//! DATA/cluster-map.json                     buckets served here, of a node of a cluster
//! DATA/identity.json                        the name of this data directory, drawn once
//! DATA/peers.json                           what was seen of other nodes' journals
//! DATA/RESTORED                             this is a copy: the next start holds all pools
//! DATA/journal/<shard>/<segment:016>.rpj    segments; fixed size, used again under a new name
//! DATA/journal/<shard>/<k:016>.spare        zero-filled or dropped segments that wait for use
//! DATA/journal/<shard>/<frame:020>.rps      snapshots; the name is the first frame to replay
//! ```
//!
//! Invariant: nothing is reported as stored before it is as durable as configured, and nothing is
//! ever stored after a write or flush has failed for another reason than a full disk.
//! Source: docs/spec/journal.md, "Files".

mod buffer;
mod file;
mod flusher;
mod identity;
mod index;
mod inline;
mod journal;
mod lock;
mod map;
mod memory;
mod probe;
mod secret;
mod seen;
mod segments;
mod snapshots;
mod spares;
mod stats;
mod store;

pub(crate) use file::write_whole;
pub use file::{FileError, create_directory, warn_of_mode};
pub(crate) use flusher::random;
pub use flusher::{Flushed, OnFlushed};
pub use identity::{Identity, is_restored, mark_restored, unmark_restored};
pub use index::{JournalReader, ReadError, SegmentRef};
pub use inline::{InlineJournal, Unstored};
pub use journal::{CloseError, Dropped, Journal};
pub use lock::{DataLock, LockError};
pub use map::ServedMap;
pub use probe::{Probe, probe};
pub use ringwell_journal::Recovered;
pub(crate) use secret::kept_secret;
pub use seen::SeenJournals;
pub use segments::SegmentFiles;
pub use snapshots::{
    SnapshotFile, SnapshotRef, SnapshotSource, list as list_snapshots, read as read_snapshot,
};
pub use stats::Stats;
pub use store::{OpenError, ShardStore};

use std::path::PathBuf;

use ringwell_core::Millis;
use ringwell_journal::Durability;

/// How frames reach the disk. Both are equally durable.
///
/// Measured on a virtual disk with ext4, frames of 2.6, 20 and 170 KB one after the other, medians
/// of four runs: direct 9,600, 7,900 and 3,900 frames/s, buffered 9,000, 6,500 and 2,300; half of
/// the smallest were stored within 97 us direct and 103 us buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Through the page cache, then `fdatasync`.
    Buffered,
    /// Past the page cache (`O_DIRECT|O_DSYNC`); `Buffered` where the file system refuses that.
    Direct,
}

/// Where and how journals are kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory.
    pub data: PathBuf,
    /// What must have happened before a group counts as stored.
    pub durability: Durability,
    /// How frames reach the disk, if `durability` is `Disk`.
    pub write_mode: WriteMode,
    /// Length of a segment's file.
    pub segment_bytes: u64,
    /// Segments that are made ahead, so that a full disk is met before a frame needs the room.
    pub spare_segments: usize,
    /// History beyond this many bytes may be dropped. In memory it is the bound of what is kept.
    pub history_bytes: u64,
    /// History older than this may be dropped.
    pub history_age: Option<Millis>,
}

impl Settings {
    /// The defaults: direct writes, 64 MiB a segment, one ahead, 4 GiB of history of any age.
    #[must_use]
    pub fn new(data: PathBuf, durability: Durability) -> Self {
        Self {
            data,
            durability,
            write_mode: WriteMode::Direct,
            segment_bytes: 64 << 20,
            spare_segments: 1,
            history_bytes: 4 << 30,
            history_age: None,
        }
    }

    /// How long a segment is written to, and a snapshot is the newest, while anything is written: an
    /// eighth of the age that history is kept for.
    #[must_use]
    pub fn segment_span(&self) -> Option<Millis> {
        self.history_age.map(|Millis(age)| Millis(age / 8))
    }

    /// Where a shard's journal lies.
    #[must_use]
    pub fn shard_directory(&self, shard: u32) -> PathBuf {
        self.data.join("journal").join(shard.to_string())
    }
}

#[cfg(test)]
mod tests;
