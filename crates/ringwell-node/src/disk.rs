//! The files of a server: the store from `ringwell-driver`, on the operating system's file system.

use std::path::Path;

pub use ringwell_driver::store::{
    Damage, Draft, FileError, Gaps, Identity, Inline, Leaving, OpenError, RESTORED, ReadError,
    Reader, SeenJournals, ServedMap, Settings, SnapshotRef, Stats, Store, WriteMode, is_restored,
    list_snapshots, mark_restored, read_lifetimes, read_snapshot, unmark_restored, write_whole,
};
use ringwell_driver::{open, store};
pub use ringwell_os::{
    DataLock, Journal, LockError, OsFiles, Probe, RESTORING, ReadLock, check_complete, check_lock,
    check_secret, create_directory, is_incomplete, kept_secret, probe, random, warn_of_mode,
};

/// The file in the data directory that contains a signing key. The key signs the strings that web
/// pages store in the browser.
pub(crate) const SECRET: &str = "site-secret";

/// Reads stored groups, and may be used on any thread.
pub type JournalReader = store::JournalReader<OsFiles>;
/// The segments in a directory, opened only for reading.
pub type SegmentFiles = store::SegmentFiles<OsFiles>;
/// One shard's journal, before it is opened.
pub type ShardStore = store::ShardStore<OsFiles>;
/// A snapshot that is being written.
pub type SnapshotFile = store::SnapshotFile<OsFiles>;

/// Lists the unusable files that prevent a server from starting. The journals are not checked. Each
/// entry names the file, the fault and the remedy.
#[must_use]
pub fn unreadable_files(data: &Path) -> Vec<String> {
    let unreadable = store::unreadable_files(&OsFiles, data);
    let unreadable = unreadable.iter().map(ToString::to_string);
    let secret = check_secret(&data.join(SECRET)).err();
    unreadable.chain(secret.map(|error| error.to_string())).collect()
}

/// Finds a shard whose journal in `data` is missing or was replaced.
///
/// # Errors
/// [`FileError`]
pub fn replaced_journal(data: &Path) -> Result<Option<u16>, FileError> {
    open::replaced_journal(&OsFiles, data)
}

/// Returns the shards with journals in `data` that this data directory did not write.
///
/// # Errors
/// [`FileError`]
pub fn unnamed_journals(data: &Path) -> Result<Vec<u16>, FileError> {
    open::unnamed_journals(&OsFiles, data)
}
