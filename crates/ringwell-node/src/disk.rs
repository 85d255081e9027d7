//! The files of a server: the driver's store on the operating system's files.

use std::path::Path;

pub use ringwell_driver::store::{
    Damage, Draft, FileError, Gaps, Identity, Inline, Leaving, OpenError, ReadError, Reader,
    SeenJournals, ServedMap, Settings, SnapshotRef, Stats, Store, WriteMode, is_restored,
    list_snapshots, mark_restored, read_snapshot, unmark_restored, write_whole,
};
use ringwell_driver::{open, store};
pub use ringwell_os::{
    DataLock, Journal, LockError, OsFiles, Probe, ReadLock, create_directory, kept_secret, probe,
    random, warn_of_mode,
};

/// Reads stored groups, from any thread.
pub type JournalReader = store::JournalReader<OsFiles>;
/// The segments in a directory, read only.
pub type SegmentFiles = store::SegmentFiles<OsFiles>;
/// One shard's journal before it is opened.
pub type ShardStore = store::ShardStore<OsFiles>;
/// A snapshot that is being written.
pub type SnapshotFile = store::SnapshotFile<OsFiles>;

/// A shard whose journal in `data` is missing, or another one than was written last.
///
/// # Errors
/// [`FileError`]
pub fn replaced_journal(data: &Path) -> Result<Option<u16>, FileError> {
    open::replaced_journal(&OsFiles, data)
}
