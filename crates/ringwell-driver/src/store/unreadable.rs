//! Files beside the journals that cannot be understood: empty after a crash of the file system, or
//! damaged. Each error names the file, the fault and the remedy.

use std::path::Path;

use super::files::{Access, FileError, Files, numbered};
use super::{Gaps, Identity, SeenJournals, ServedMap, read_lifetimes, unflushed};

/// The files in `data` that keep a server from starting.
pub fn unreadable_files(files: &impl Files, data: &Path) -> Vec<FileError> {
    let read = [
        Identity::read(files, data).err(),
        unflushed::read(files, data).err(),
        Gaps::read(files, data).err(),
        read_lifetimes(files, data).err(),
        ServedMap::read(files, data).err(),
        SeenJournals::read(files, data).err(),
    ];
    read.into_iter().flatten().chain(unusable_spares(files, data)).collect()
}

/// Spares that cannot become segments. A shard's start removes only those of another size.
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
