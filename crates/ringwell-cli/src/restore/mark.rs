//! The mark of an incomplete restore: the directory `.restoring` in the data directory.
//!
//! Owns the lock on the data directory, and the list of the files that the restore writes. If the
//! restore is interrupted, only these files may be replaced when it is run again. The copied files
//! are in the mark's directory until all of them have been copied. Then they are moved into the data
//! directory, the journals last: they complete the restore.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ringwell_node::disk::{
    DataLock, OsFiles, RESTORED, RESTORING, ReadLock, create_directory, is_incomplete,
    mark_restored, write_whole,
};

use super::place::place;

/// The directory for the journals, which exists in every data directory that a server has used.
const JOURNAL: &str = "journal";

/// The list, in the mark's directory.
const LIST: &str = "files.json";

/// The directory for the copied files, in the mark's directory.
const STAGED: &str = "files";

/// The mark, with the lock on the data directory.
pub(super) struct Mark {
    data: PathBuf,
    /// The data directory with all links resolved.
    place: PathBuf,
    directory: PathBuf,
    /// The files that this restore writes, or that an interrupted one has written.
    files: BTreeSet<PathBuf>,
    /// Whether an interrupted restore left the mark.
    is_old: bool,
    /// Whether the data directory was created with the mark.
    is_data_new: bool,
    _lock: DataLock,
}

impl Mark {
    /// Locks the data directory and marks it.
    ///
    /// # Errors
    /// If the data directory is in use, or contains files that are not left over from a restore.
    pub(super) fn set(data: &Path) -> anyhow::Result<Self> {
        // This check takes no lock, so that a directory with other contents is not changed.
        if has_other_files(data)? {
            // If a server uses this directory, the error names its process.
            let _no_server = ReadLock::acquire(data)?;
            bail!(not_empty(data));
        }
        let is_data_new = !data.exists();
        let lock = DataLock::acquire_to_restore(data)?;
        // A server may have used the directory since the first check.
        if has_other_files(data)? {
            bail!(not_empty(data));
        }
        let directory = data.join(RESTORING);
        let (is_old, files) = (directory.is_dir(), listed(data)?);
        // This function flushes the names in the data directory too.
        create_directory(&directory)?;
        let (data, place) = (data.to_owned(), place(data)?);
        Ok(Self { data, place, directory, files, is_old, is_data_new, _lock: lock })
    }

    /// Removes the mark, because nothing was restored. The mark of an interrupted restore stays:
    /// that restore may have replaced some of the files.
    pub(super) fn take_back(self) {
        if self.is_old {
            return;
        }
        // Errors are ignored: if the mark stays, the next start says how to remove it.
        let _ = fs::remove_dir_all(&self.directory);
        if self.is_data_new && !has_other_files(&self.data).unwrap_or(true) {
            for name in names(&self.data).unwrap_or_default() {
                let _ = fs::remove_file(self.data.join(name));
            }
            let _ = fs::remove_dir(&self.data);
        }
    }

    /// Whether an interrupted restore may have written the file at `path`.
    pub(super) fn has_placed(&self, path: &Path) -> bool {
        self.files.contains(path)
    }

    /// Removes what an interrupted restore left in the data directory. Returns the path of a new
    /// directory for the copied files.
    pub(super) fn clear(&self) -> anyhow::Result<PathBuf> {
        let staged = self.directory.join(STAGED);
        let in_data = self.files.iter().filter(|path| path.parent() == Some(&self.place));
        for path in in_data.chain([&staged]) {
            let removed = match fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Ok(found) if found.is_dir() => fs::remove_dir_all(path),
                _ => fs::remove_file(path),
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        mark_restored(&OsFiles, &self.data)?;
        create_directory(&staged)?;
        Ok(staged)
    }

    /// Returns the paths to which the copied files will be moved.
    pub(super) fn staged_files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let staged = names(&self.directory.join(STAGED))?;
        Ok(staged.into_iter().map(|name| self.place.join(name)).collect())
    }

    /// Records the files that are written from now on.
    pub(super) fn record(&mut self, files: impl Iterator<Item = PathBuf>) -> anyhow::Result<()> {
        self.files.extend(files);
        let list = serde_json::to_vec(&self.files)?;
        Ok(write_whole(&OsFiles, &self.directory.join(LIST), &list)?)
    }

    /// Moves the copied files into the data directory, and removes the mark.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        let staged = self.directory.join(STAGED);
        let mut names = names(&staged)?;
        names.sort_by_key(|name| name == JOURNAL);
        for name in names {
            if name == JOURNAL {
                // After a power cut, there must be no journals without the other files.
                self.flush()?;
            }
            let (from, to) = (staged.join(&name), self.data.join(&name));
            fs::rename(&from, &to).with_context(|| format!("cannot move {}", from.display()))?;
        }
        self.flush()?;
        fs::remove_dir_all(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))?;
        self.flush()
    }

    fn flush(&self) -> anyhow::Result<()> {
        File::open(&self.data)
            .and_then(|data| data.sync_all())
            .with_context(|| format!("cannot flush {}", self.data.display()))
    }
}

fn not_empty(data: &Path) -> String {
    format!("{} is not empty: move its files away first", data.display())
}

/// Whether a data directory contains files other than locks and files left over from a restore.
fn has_other_files(data: &Path) -> anyhow::Result<bool> {
    if !data.exists() {
        return Ok(false);
    }
    let (place, listed) = (place(data)?, listed(data)?);
    let is_known = |name: &OsString| {
        let is_lock = name == "LOCK" || Path::new(name).extension().is_some_and(|it| it == "lock");
        let is_mark = name == RESTORED || (name == RESTORING && is_incomplete(data));
        is_lock || is_mark || listed.contains(&place.join(name))
    };
    Ok(!names(data)?.iter().all(is_known))
}

/// Returns the files that an interrupted restore may have written.
fn listed(data: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let path = data.join(RESTORING).join(LIST);
    match fs::read(&path) {
        Ok(list) if is_incomplete(data) => {
            serde_json::from_slice(&list).with_context(|| format!("cannot read {}", path.display()))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot read {}", path.display()))
        }
        _ => Ok(BTreeSet::new()),
    }
}

fn names(directory: &Path) -> anyhow::Result<Vec<OsString>> {
    let names = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    names.with_context(|| format!("cannot read {}", directory.display()))
}
