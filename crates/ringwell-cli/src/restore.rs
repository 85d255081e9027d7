//! `ringwell restore`: restores a data directory from a copy.
//!
//! The copied journals lack the numbers that were handed out after the copy was made, and the
//! server cannot detect this from the files. The data directory is therefore first marked as
//! restored. At its next startup, the server records in the journal that the pools are held, and
//! only then removes the mark. Source: docs/operations.md, "Backups".

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use ringwell_config::Database;
use ringwell_core::Millis;
use ringwell_node::disk::{
    OsFiles, RESTORED, ReadLock, create_directory, mark_restored, read_lifetimes,
};

use crate::backup::{DATABASES, Sources, sources, verify_copy};
use crate::database_lock::claim;
use crate::environment::variable;
use crate::journal::BACKUP_LIST;
use crate::usage::WrongUsage;

pub(crate) const HELP: &str = "\
With --config, the SQLite databases in the copy (directory.sqlite, calls.sqlite) replace those \
that the configuration names. The replaced files get names that end in .before-restore. Without \
--config, the databases are only copied into the data directory.

The copy must have been made by `ringwell backup`, from a stopped server, or as a snapshot of the \
file system. It is checked before anything is copied. The next `ringwell serve` answers all rows \
with overflow numbers for the longest lifetime of the pools. After this time, every lockout that \
is missing from the copy has ended.

Examples:
  ringwell restore --config /etc/ringwell/ringwell.toml \\
    /backup/ringwell-2026-11-22
  ringwell restore /backup/ringwell-2026-11-22 ./restored-data
  ringwell journal verify ./restored-data";

/// The suffix that is appended to the names of replaced files.
const REPLACED: &str = ".before-restore";

/// A temporary directory in the data directory: files are first copied into it. Also the temporary
/// suffix of each database whose configured path is not the default path.
const UNFINISHED: &str = ".restoring";

/// The journal directory, which exists in every data directory that a server has used. It is moved
/// into the data directory last.
const JOURNAL: &str = "journal";

/// Suffixes of the files that SQLite keeps next to a database. The `-wal` file contains changes
/// that are not yet in the database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Files that are not restored: the copy's lock, and the list of a backup's files. After the
/// server's first write, the list would no longer match the data.
const LEFT_OUT: [&str; 2] = ["LOCK", BACKUP_LIST];

/// Neither a configuration nor a data directory was given.
const NOWHERE: WrongUsage = WrongUsage(
    "set --config (or RINGWELL_CONFIG) to the server's configuration, or specify a data directory \
     after the copy",
);

#[derive(Debug, clap::Args)]
#[command(override_usage = "ringwell restore --config FILE <COPY>\n       \
        ringwell restore <COPY> <DATA>")]
pub(crate) struct Args {
    /// The copy of a data directory
    copy: PathBuf,
    /// The data directory; it must be empty, or not exist yet
    data: Option<PathBuf>,
    /// The server's configuration, which names the data directory and the databases [default: the
    /// variable `RINGWELL_CONFIG`, if no DATA is given]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Restores the files of the copy, and flushes them to disk.
///
/// # Errors
/// If the data directory is not empty, if a server uses the copy, or if the copy cannot be read or
/// is damaged.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { copy, data, config } = args;
    // If DATA is given, RINGWELL_CONFIG is ignored, so that the databases named in that
    // configuration are not replaced.
    let usual = || variable("RINGWELL_CONFIG").filter(|_| data.is_none()).map(PathBuf::from);
    let config = &config.clone().or_else(usual);
    if config.is_none() && data.is_none() {
        return Err(NOWHERE.into());
    }
    let Sources { data, databases } = match sources(config.as_deref(), data.clone())? {
        Ok(sources) => sources,
        Err(code) => return Ok(code),
    };
    let data = data.as_path();
    let databases = if config.is_some() { databases } else { [None, None] };
    ensure!(copy.is_dir(), "directory {} does not exist", copy.display());
    check_copy(copy)?;
    if place(data)?.starts_with(place(copy)?) {
        bail!("{} is inside the copy: choose a directory outside the copy", data.display());
    }
    check_empty(data)?;
    let _no_server = ReadLock::acquire(copy)?;
    let targets = targets(copy, data, &databases)?;
    // The configuration may place a database inside the data directory under a name other than the
    // default.
    if targets.iter().any(|(_, target)| target.starts_with(data)) {
        create_directory(data)?;
    }
    let claims = targets.iter().map(|(_, target)| claim(target, "ring pools or calls"));
    let _claims = claims.collect::<anyhow::Result<Vec<_>>>()?;
    verify_copy(copy).context(
        "the copy is damaged, and nothing was restored: use another copy. If you have no other \
         copy, put the files of the damaged copy into the data directory yourself (for example \
         with `cp -a`), and start the server once with `ringwell serve --restored`",
    )?;
    let unfinished = data.join(UNFINISHED);
    create_directory(data)?;
    begin(&unfinished)?;
    mark_restored(&OsFiles, data)?;
    let files = copy_all(copy, &unfinished)?;
    for (name, target) in &targets {
        set_aside(&unfinished.join(name), target)?;
    }
    for (_, target) in &targets {
        let is_kept = replace(target)?;
        println!("{}: restored", target.display());
        if is_kept {
            let kept = with_ending(target, REPLACED);
            println!(
                "{} is the replaced file: remove it once the server works with the restored one",
                kept.display()
            );
        }
    }
    finish(&unfinished, data)?;
    if config.is_none() {
        for path in DATABASES.map(|name| data.join(name)).iter().filter(|path| path.is_file()) {
            let path = path.display();
            println!(
                "{path}: if the configuration sets another path for this database, restore with \
                 --config"
            );
        }
    }
    println!(
        "{files} files restored. After the next start, all rows get overflow numbers {}. After \
         this time, every lockout that is missing from the copy has ended. `/readyz` lists the \
         pools that still hand out only overflow numbers",
        hold(copy)
    );
    Ok(ExitCode::SUCCESS)
}

/// Checks that the data directory is empty, except for the files of a failed restore.
fn check_empty(data: &Path) -> anyhow::Result<()> {
    if data.join(UNFINISHED).is_dir() && !data.join(JOURNAL).exists() {
        return Ok(());
    }
    let cannot_read = || format!("cannot read {}", data.display());
    let entries = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(cannot_read)?,
    };
    for entry in entries {
        let name = entry.with_context(cannot_read)?.file_name();
        // Two files are accepted: the lock of a database in this directory, and the mark of a
        // restore that was killed.
        let is_lock = Path::new(&name).extension().is_some_and(|ending| ending == "lock");
        if !is_lock && name != RESTORED {
            // If a server uses this directory, this check fails with a more helpful error than the
            // next one.
            let _no_server = ReadLock::acquire(data)?;
            bail!("{} is not empty: move its files away first", data.display());
        }
    }
    Ok(())
}

/// Describes how long the server will answer with overflow numbers after its next startup, based on
/// the copy's `lifetimes.json`.
fn hold(copy: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let longest = read_lifetimes(&OsFiles, copy).ok().flatten().map(|them| them.longest(now));
    match longest.filter(|longest| *longest > Millis::ZERO) {
        Some(Millis(longest)) => {
            let longest = humantime::format_duration(Duration::from_millis(longest));
            format!("for {longest}, the longest lifetime of the copy's ring pools")
        }
        None => "for the longest lifetime of the copy's ring pools".to_owned(),
    }
}

/// Creates the directory for the copied files, and removes the files of a failed restore from it.
/// The directory itself is never removed here, because it shows that the restore is not complete.
fn begin(unfinished: &Path) -> anyhow::Result<()> {
    create_directory(unfinished)?;
    let cannot = || format!("cannot empty {}", unfinished.display());
    for entry in fs::read_dir(unfinished).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let is_directory = entry.file_type().with_context(cannot)?.is_dir();
        let remove = if is_directory { fs::remove_dir_all } else { fs::remove_file };
        remove(entry.path()).with_context(cannot)?;
    }
    Ok(())
}

/// Refuses a data directory that is incomplete because a restore was interrupted.
///
/// # Errors
/// If the restore was interrupted.
pub(crate) fn check_complete(data: &Path) -> anyhow::Result<()> {
    let unfinished = data.join(UNFINISHED);
    ensure!(
        !unfinished.is_dir() || data.join(JOURNAL).exists(),
        "{}: a restore was interrupted, and this data directory does not contain all files of the \
         copy. Run `ringwell restore` again with the same copy. To start without the copy instead, \
         remove {} and start the server once with `ringwell serve --restored`",
        data.display(),
        unfinished.display()
    );
    Ok(())
}

/// Moves the copied files into the data directory.
fn finish(unfinished: &Path, data: &Path) -> anyhow::Result<()> {
    let failed = |path: &Path| format!("cannot move {}", path.display());
    let entries = fs::read_dir(unfinished).with_context(|| failed(unfinished))?;
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    let mut names = names.with_context(|| failed(unfinished))?;
    names.sort_by_key(|name| name == JOURNAL);
    for name in names {
        let (from, to) = (unfinished.join(&name), data.join(&name));
        if to.is_dir() {
            fs::remove_dir_all(&to).with_context(|| failed(&from))?;
        }
        fs::rename(&from, &to).with_context(|| failed(&from))?;
    }
    fs::remove_dir(unfinished).with_context(|| failed(unfinished))?;
    File::open(data).and_then(|data| data.sync_all()).with_context(|| failed(unfinished))
}

/// Finds the databases in the copy whose configured paths are not the default paths in the data
/// directory. Returns, for each database, its name in the copy and its configured path.
fn targets(
    copy: &Path,
    data: &Path,
    databases: &[Option<Database>; 2],
) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let mut targets = Vec::new();
    for (name, database) in DATABASES.into_iter().zip(databases) {
        let Some(Database::File(target)) = database else { continue };
        if !copy.join(name).is_file() || place(target)? == place(&data.join(name))? {
            continue;
        }
        let replaced = with_ending(target, REPLACED);
        ensure!(
            !replaced.exists() || !target.exists(),
            "{} already exists: move it away first",
            replaced.display()
        );
        targets.push((name, target.clone()));
    }
    Ok(targets)
}

/// Moves the database at `source` next to `target`. Does not change `target`.
fn set_aside(source: &Path, target: &Path) -> anyhow::Result<()> {
    let target = with_ending(target, UNFINISHED);
    for ending in BESIDE.into_iter().chain([""]) {
        let (from, to) = (with_ending(source, ending), with_ending(&target, ending));
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
            fs::remove_file(&from).with_context(|| format!("cannot remove {}", from.display()))?;
        }
    }
    Ok(())
}

/// Replaces `target` with the copied database. An existing database is renamed, with the files next
/// to it, because SQLite would otherwise write the changes in those files into the restored
/// database. Returns whether a database existed at `target`.
fn replace(target: &Path) -> anyhow::Result<bool> {
    let is_kept = target.exists();
    let failed = |path: &Path| format!("cannot replace {}", path.display());
    for ending in BESIDE.into_iter().chain([""]) {
        let (old, kept) =
            (with_ending(target, ending), with_ending(&with_ending(target, REPLACED), ending));
        if old.exists() {
            fs::rename(&old, kept).with_context(|| failed(&old))?;
        }
    }
    let copied = with_ending(target, UNFINISHED);
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

/// Returns `path` with `ending` appended to its name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Returns the absolute form of `path`. Resolves symlinks as far as the path exists.
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

/// Copies the contents of a directory. Returns the number of files copied.
fn copy_all(from: &Path, to: &Path) -> anyhow::Result<u64> {
    create_directory(to)?;
    let mut files = 0;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        // Symlinks are followed, because parts of a copy may be on other volumes.
        let kind = fs::metadata(&source);
        let kind = kind.with_context(|| format!("cannot read {}", source.display()))?;
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            files += copy_all(&source, &target)?;
        } else {
            ensure!(kind.is_file(), "{} is not a file: remove it from the copy", source.display());
            fs::copy(&source, &target)
                .and_then(|_| File::open(&target)?.sync_all())
                .with_context(|| format!("cannot copy {}", source.display()))?;
            files += 1;
        }
    }
    File::open(to).and_then(|to| to.sync_all()).with_context(|| to.display().to_string())?;
    Ok(files)
}

fn check_copy(copy: &Path) -> anyhow::Result<()> {
    let journal = fs::metadata(copy.join("journal"));
    if let Err(error) = &journal
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        bail!(
            "cannot read {}: {error}. The user who runs `ringwell restore` must own the copy",
            copy.display()
        );
    }
    if !journal.is_ok_and(|it| it.is_dir()) {
        bail!("{} is not a copy of a data directory: it has no journal", copy.display());
    }
    Ok(())
}
