//! Incomplete and outdated copies of a journal: marks, completes and removes them.

use std::path::Path;

use crate::store::{Access, FileError, Files, Settings};

/// The file in a shard's directory that marks an incomplete copy.
pub(super) const MARK: &str = "UNFINISHED";

/// Removes the copy of a shard if the copy is incomplete. [`super::read_copy`] calls this before it
/// reads the copy.
///
/// # Errors
/// [`FileError`]
pub fn discard_unfinished(
    files: &impl Files,
    settings: &Settings,
    shard: u16,
) -> Result<(), FileError> {
    let directory = settings.shard_directory(u32::from(shard));
    if !files.exists(&directory.join(MARK)) {
        return Ok(());
    }
    tracing::warn!(shard, "removing an incomplete copy of the journal");
    clear(files, &directory)?;
    unmark(files, &directory)
}

/// Renames the files of a copy that is damaged or longer than the log. The files are not removed,
/// because only they show how the copy differs from the log.
pub(super) fn set_aside(
    files: &impl Files,
    settings: &Settings,
    shard: u16,
) -> Result<(), FileError> {
    let directory = settings.shard_directory(u32::from(shard));
    for name in files.list(&directory)? {
        let path = directory.join(name);
        if matches!(extension(&path), Some("rpj" | "rps")) {
            let mut lost = path.as_os_str().to_owned();
            lost.push(".lost");
            files.rename(&path, Path::new(&lost))?;
        }
    }
    files.flush_names(&directory)
}

/// Completes the copy: makes it durable, and then removes the mark.
pub(super) fn fetched(files: &impl Files, directory: &Path) -> Result<(), FileError> {
    for name in files.list(directory)? {
        let path = directory.join(name);
        if extension(&path) == Some("rpj") {
            files.flush(&files.open(&path, Access::Write)?)?;
        }
    }
    unmark(files, directory)
}

fn unmark(files: &impl Files, directory: &Path) -> Result<(), FileError> {
    files.remove(&directory.join(MARK))?;
    files.flush_names(directory)
}

/// Removes all segments and snapshots in the directory.
pub(super) fn clear(files: &impl Files, directory: &Path) -> Result<(), FileError> {
    for name in files.list(directory)? {
        let path = directory.join(name);
        if matches!(extension(&path), Some("rpj" | "rps" | "tmp")) {
            files.remove(&path)?;
        }
    }
    files.flush_names(directory)
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}
