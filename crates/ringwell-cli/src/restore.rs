//! `ringwell restore`: restores a data directory from a copy.
//!
//! The copied journals lack the numbers that were handed out after the copy was made. The server
//! cannot detect this from the files. The data directory is therefore first marked as restored. At
//! its next startup, the server records in the journal that the pools are held, and only then
//! removes the mark. Source: docs/operations.md, "Backups".
//!
//! Invariant: no server uses the data directory during a restore. Before the copy is read, the
//! directory is locked and marked as incompletely restored. It stays locked and marked until the
//! restore has finished.

mod database;
mod mark;
mod place;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use ringwell_config::Database;
use ringwell_core::Millis;
use ringwell_engine::lifetime;
use ringwell_node::disk::{
    OsFiles, RESTORING, ReadLock, ServedMap, create_directory, read_lifetimes,
};

use crate::backup::{DATABASES, Sources, sources, verify_copy};
use crate::database_lock::claim;
use crate::environment::variable;
use crate::journal::{self, BACKUP_LIST};
use crate::print::print_line;
use crate::usage::WrongUsage;
use database::{Target, targets};
use mark::Mark;
use place::place;

pub(crate) const HELP: &str = "\
With --config, the SQLite databases in the copy (directory.sqlite, calls.sqlite) replace those \
that the configuration names. The replaced files get names that end in .before-restore. Without \
--config, the databases are only copied into the data directory.

The copy must have been made by `ringwell backup`, from a stopped server, or as a snapshot of the \
file system. It is checked before anything is copied. No server starts with the data directory \
until the restore is complete. If the restore is interrupted, run it again with the same copy.

The next `ringwell serve` answers all rows with overflow numbers for the pools' longest \
lifetime. After this time, every lockout that is missing from the copy has ended.

Examples:
  ringwell restore --config /etc/ringwell/ringwell.toml \\
    /backup/ringwell-2026-11-22
  ringwell restore /backup/ringwell-2026-11-22 ./restored-data
  ringwell journal verify ./restored-data";

/// Files that are not restored: the copy's locks, an earlier restore's mark, and the list of a
/// backup's files. After the server's first write, the list would no longer match the data.
const LEFT_OUT: [&str; 5] =
    ["LOCK", "directory.sqlite.lock", "calls.sqlite.lock", RESTORING, BACKUP_LIST];

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
/// If the data directory is not empty or is in use, if a server uses the copy, or if the copy
/// cannot be read or is damaged.
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
    let mut mark = Mark::set(data)?;
    let checked = match check(copy, data, &databases, &mark) {
        Ok(checked) => checked,
        Err(error) => {
            mark.take_back();
            return Err(error);
        }
    };
    let files = restore(copy, &checked.targets, &mut mark)?;
    mark.finish()?;
    if config.is_none() {
        for path in DATABASES.map(|name| data.join(name)).iter().filter(|path| path.is_file()) {
            let path = path.display();
            print_line(format_args!(
                "{path}: if the configuration sets another path for this database, restore with \
                 --config"
            ));
        }
    }
    print_line(format_args!(
        "{files} files restored. After the next start, all rows get overflow numbers {}. After \
         this time, every lockout that is missing from the copy has ended. `/readyz` lists the \
         pools that still hand out only overflow numbers",
        hold(copy)
    ));
    if ServedMap::path(data).exists() {
        print_line(
            "The copy belongs to a node of a cluster: start the server with --cluster and --node, \
             as before",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A checked copy, with the locks that are kept until the restore has finished.
struct Checked {
    targets: Vec<Target>,
    _copy: ReadLock,
    _databases: Vec<File>,
}

/// Locks the copy and the databases, and checks the copy. Changes no file, except that lock files
/// are created.
fn check(
    copy: &Path,
    data: &Path,
    databases: &[Option<Database>; 2],
    mark: &Mark,
) -> anyhow::Result<Checked> {
    let no_server = ReadLock::acquire(copy)?;
    let targets = targets(copy, data, databases, mark)?;
    // A server opens its databases before it locks the data directory.
    let claims = DATABASES.into_iter().filter(|name| copy.join(name).is_file()).map(|name| {
        let target = targets.iter().find(|target| target.name == name);
        let path = target.map_or_else(|| data.join(name), |target| target.path.clone());
        claim(&path, "ring pools or calls")
    });
    let claims = claims.collect::<anyhow::Result<Vec<_>>>()?;
    verify_copy(copy).context(
        "the copy is damaged, and nothing was restored: use another copy. If you have no other \
         copy, put the files of the damaged copy into the data directory yourself (for example \
         with `cp -a`), and start the server once with `ringwell serve --restored`",
    )?;
    Ok(Checked { targets, _copy: no_server, _databases: claims })
}

/// Copies the files, and replaces the databases. Returns the number of files copied.
fn restore(copy: &Path, targets: &[Target], mark: &mut Mark) -> anyhow::Result<u64> {
    let staged = mark.clear()?;
    let files = copy_all(copy, &staged)?;
    let of_databases = targets.iter().flat_map(Target::files);
    let of_data = mark.staged_files()?;
    let were_placed: Vec<bool> = targets.iter().map(|it| mark.has_placed(&it.path)).collect();
    mark.record(of_databases.chain(of_data))?;
    for target in targets {
        target.set_aside(&staged)?;
    }
    for (target, was_placed) in targets.iter().zip(were_placed) {
        let path = target.path.display();
        let is_kept = target.replace(was_placed)?;
        print_line(format_args!("{path}: restored"));
        if is_kept {
            print_line(format_args!(
                "{} is the replaced file: remove it once the server works with the restored one",
                target.replaced().display()
            ));
        }
    }
    Ok(files)
}

/// Describes how long the server will answer with overflow numbers after its next startup, based on
/// the copy's `lifetimes.json`.
fn hold(copy: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let longest = read_lifetimes(&OsFiles, copy).ok().flatten().map(|them| them.longest(now));
    match longest.filter(|longest| *longest > Millis::ZERO) {
        Some(longest) => {
            let longest = Duration::from_millis(lifetime(longest).0);
            let longest = humantime::format_duration(longest);
            format!("for {longest}, the longest lifetime of the copy's ring pools")
        }
        None => "for the longest lifetime of the copy's ring pools".to_owned(),
    }
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
    // The copy's frames may seem to be damaged, but the copy is good once the erasure is complete.
    journal::erase::check_finished(copy)
}
