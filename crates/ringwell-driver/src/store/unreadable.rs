//! Finds unreadable files in a data directory, apart from segments and snapshots. Such files are
//! damaged, or are empty after a crash of the file system. Each error names the file, the fault and
//! the remedy.

use std::path::Path;

use super::files::{Access, FileError, Files, numbered};
use super::{Gaps, Identity, SeenJournals, ServedMap, ServedOverflow, read_lifetimes, unflushed};

/// Returns an error for each file in `data` that keeps a server from starting.
pub fn unreadable_files(files: &impl Files, data: &Path) -> Vec<FileError> {
    let read = [
        Identity::read(files, data).err(),
        unflushed::read(files, data).err(),
        Gaps::read(files, data).err(),
        read_lifetimes(files, data).err(),
        ServedMap::read(files, data).err(),
        SeenJournals::read(files, data).err(),
        ServedOverflow::read(files, data).err(),
    ];
    read.into_iter().flatten().chain(unusable_spares(files, data)).collect()
}

/// Returns an error for each spare that cannot be opened. A shard's startup removes spares of the
/// wrong size, but it fails if a spare cannot be opened.
fn unusable_spares(files: &impl Files, data: &Path) -> Vec<FileError> {
    let journal = data.join("journal");
    let mut unusable = Vec::new();
    for shard in files.list(&journal).unwrap_or_default() {
        for (_, spare) in numbered(files, &journal.join(shard), "spare").unwrap_or_default() {
            unusable.extend(files.open(&spare, Access::Read).err());
        }
    }
    unusable
}
