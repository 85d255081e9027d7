//! Files beside the journals that cannot be understood: empty after a crash of the file system, or
//! damaged. Each error names the file, the fault and the remedy.

use std::path::Path;

use super::files::{FileError, Files};
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
    read.into_iter().flatten().collect()
}
