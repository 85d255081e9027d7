//! `ringwell restore`: turns a copy of a data directory into the data directory again.
//!
//! The journals lack answers sent after the copy was made, and the files cannot show that. The mark
//! is therefore made first, and is removed only by a start that has stored its hold. Source:
//! docs/operations.md, "Backups".

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use ringwell_node::disk::{OsFiles, ReadLock, create_directory, mark_restored};

use crate::backup::{DATABASES, verify_copy};

pub(crate) const HELP: &str = "\
Databases of a copy (directory.sqlite, calls.sqlite) come into the data directory with it. If
directory.database or calls.database name other places, copy them there before the start.

The copy must be of a stopped server, or of one moment (`ringwell backup`, a snapshot of the file
system). It is checked before anything is copied. The next
`ringwell serve` answers all rows with overflow numbers until every lockout that the copy cannot
know is over: the longest lifetime of the pools.

Examples:
  ringwell restore /backup/ringwell /var/lib/ringwell
  ringwell journal verify /var/lib/ringwell";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The copy of a data directory
    copy: PathBuf,
    /// The data directory; it must be empty or missing
    data: PathBuf,
}

/// Copies every file, durably.
///
/// # Errors
/// If the data directory is not empty, a server uses the copy, or the copy cannot be read or is
/// damaged.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { copy, data } = args;
    if !copy.join("journal").is_dir() {
        bail!("{} is not a copy of a data directory: it has no journal", copy.display());
    }
    if place(data)?.starts_with(place(copy)?) {
        bail!("{} is inside the copy: name a directory outside of it", data.display());
    }
    let is_empty = match fs::read_dir(data) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", data.display())),
    };
    if !is_empty {
        bail!("{} is not empty: move its files away first", data.display());
    }
    let _no_server = ReadLock::acquire(copy)?;
    verify_copy(copy).context(
        "the copy is damaged, and nothing was restored; if there is no better copy, restore it \
            by other means and start once with serve --restored",
    )?;
    mark_restored(&OsFiles, data)?;
    let files = copy_all(copy, data)?;
    for name in DATABASES.into_iter().filter(|name| data.join(name).is_file()) {
        let path = data.join(name);
        println!(
            "{}: copy it to its place before the start, if the configuration sets another path",
            path.display()
        );
    }
    println!(
        "{files} files; the next start holds all pools until no unknown lockout can be \
        left"
    );
    Ok(ExitCode::SUCCESS)
}

/// The target of a path, with symlinks followed as far as it exists.
fn place(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            part => found.push(part),
        }
        found = fs::canonicalize(&found).unwrap_or(found);
    }
    Ok(found)
}

/// Copies the contents of a folder. Returns the count of files.
fn copy_all(from: &Path, to: &Path) -> anyhow::Result<u64> {
    create_directory(to)?;
    let mut files = 0;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind =
            entry.file_type().with_context(|| format!("cannot read {}", source.display()))?;
        if kind.is_dir() {
            files += copy_all(&source, &target)?;
        } else if kind.is_file() && entry.file_name() != "LOCK" {
            fs::copy(&source, &target)
                .and_then(|_| File::open(&target)?.sync_all())
                .with_context(|| format!("cannot copy {}", source.display()))?;
            files += 1;
        }
    }
    File::open(to).and_then(|to| to.sync_all()).with_context(|| to.display().to_string())?;
    Ok(files)
}
