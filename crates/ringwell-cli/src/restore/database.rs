//! The restored databases whose configured paths differ from the default paths in the data
//! directory.
//!
//! A replaced database is kept under another name. A database that an interrupted restore put in
//! place is not kept.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ringwell_config::Database;
use ringwell_node::disk::RESTORING;

use super::mark::Mark;
use super::place::place;
use crate::backup::DATABASES;

/// The suffix that is appended to the names of replaced files.
const REPLACED: &str = ".before-restore";

/// Suffixes of the files that SQLite keeps next to a database. The `-wal` file contains changes
/// that are not yet in the database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// A database that is restored to its configured path.
pub(super) struct Target {
    /// The database's name in the copy.
    pub(super) name: &'static str,
    /// The configured path.
    pub(super) path: PathBuf,
}

/// Finds the databases in the copy whose configured paths differ from the default paths in the data
/// directory.
///
/// # Errors
/// If a database that is being replaced would overwrite one that an earlier restore has kept.
pub(super) fn targets(
    copy: &Path,
    data: &Path,
    databases: &[Option<Database>; 2],
    mark: &Mark,
) -> anyhow::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (name, database) in DATABASES.into_iter().zip(databases) {
        let Some(Database::File(path)) = database else { continue };
        if !copy.join(name).is_file() || place(path)? == place(&data.join(name))? {
            continue;
        }
        // A link at the path itself is not resolved: the link is renamed.
        let absolute = std::path::absolute(path)?;
        let (folder, file) = (absolute.parent().unwrap_or(&absolute), absolute.file_name());
        let target = Target { name, path: place(folder)?.join(file.unwrap_or_default()) };
        let replaced = target.replaced();
        ensure!(
            !replaced.exists() || !path.exists() || mark.has_placed(&target.path),
            "{} already exists: move it away first",
            replaced.display()
        );
        targets.push(target);
    }
    Ok(targets)
}

impl Target {
    /// The path of the replaced database.
    pub(super) fn replaced(&self) -> PathBuf {
        with_ending(&self.path, REPLACED)
    }

    /// All files that are written for this database, except replaced ones.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let paths = [self.path.clone(), with_ending(&self.path, RESTORING)];
        let files =
            |path: PathBuf| BESIDE.into_iter().chain([""]).map(move |it| with_ending(&path, it));
        paths.into_iter().flat_map(files)
    }

    /// Moves the copied database from `staged` next to its configured path. Does not change the
    /// database there.
    pub(super) fn set_aside(&self, staged: &Path) -> anyhow::Result<()> {
        let (source, target) = (staged.join(self.name), with_ending(&self.path, RESTORING));
        for ending in BESIDE.into_iter().chain([""]) {
            let (from, to) = (with_ending(&source, ending), with_ending(&target, ending));
            if to.exists() {
                fs::remove_file(&to).with_context(|| format!("cannot replace {}", to.display()))?;
            }
            // The shared-memory file is not copied, because SQLite creates it again.
            if from.is_file() && ending != BESIDE[1] {
                fs::copy(&from, &to)
                    .and_then(|_| fs::set_permissions(&to, fs::Permissions::from_mode(0o600)))
                    .and_then(|()| File::open(&to)?.sync_all())
                    .with_context(|| format!("cannot write {}", to.display()))?;
            }
            if from.exists() {
                fs::remove_file(&from)
                    .with_context(|| format!("cannot remove {}", from.display()))?;
            }
        }
        Ok(())
    }

    /// Replaces the database with the copied one. An existing database is renamed, with the files
    /// next to it, because SQLite would otherwise apply the changes in those files to the restored
    /// database. `was_placed` is true if an interrupted restore began to replace the database.
    /// Returns whether the replaced database is kept.
    pub(super) fn replace(&self, was_placed: bool) -> anyhow::Result<bool> {
        let target = &self.path;
        let replaced = self.replaced();
        // A database is renamed after the files next to it. If it was renamed, all files at its
        // path come from the interrupted restore.
        let is_ours = was_placed && replaced.exists();
        let is_kept = is_ours || target.exists();
        let failed = |path: &Path| format!("cannot replace {}", path.display());
        for ending in BESIDE.into_iter().chain([""]) {
            let (old, kept) = (with_ending(target, ending), with_ending(&replaced, ending));
            if old.exists() {
                let moved = if is_ours { fs::remove_file(&old) } else { fs::rename(&old, kept) };
                moved.with_context(|| failed(&old))?;
            }
        }
        let copied = with_ending(target, RESTORING);
        for ending in [BESIDE[0], ""] {
            let (from, to) = (with_ending(&copied, ending), with_ending(target, ending));
            if from.is_file() {
                fs::rename(&from, &to).with_context(|| failed(&to))?;
            }
        }
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| failed(target))?;
        Ok(is_kept)
    }
}

/// Returns `path` with `ending` appended to its name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
