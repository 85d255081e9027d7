//! `ringwell backup`: copies a data directory and its databases while the server serves.
//!
//! Decides the order in which files are copied, and writes the list `backup.json`.
//! `ringwell journal verify` checks the contents of the copied journal. Invariant: each shard's
//! copy is an exact prefix of the shard's journal, and contains every frame that the copied
//! snapshots need. The backup's directory gets its final name only after the backup has been
//! checked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use ringwell_config::{DEMO_LIST, Database, Overrides, load};
use ringwell_node::disk::{create_directory, replaced_journal};
use ringwell_store::{StoreError, check_sqlite, copy_sqlite, file_exists};
use serde::{Deserialize, Serialize};

use crate::data_files;
use crate::environment::{cores, variable};
use crate::faults::show_of_file;
use crate::journal::{self, BACKUP_LIST as LIST, verify_directory};
use crate::print::{print, print_note};
use crate::progress::Progress;
use crate::usage::WrongUsage;

pub(crate) const HELP: &str = "\
Backs up a running server, then reads the copy back and verifies it. The copy contains the \
journals, the snapshots, the secret for web pages, the SQLite databases of pools and calls, and \
call reports that are not in the call log yet. It does not contain the configuration, or \
the lists and secrets that the configuration names.

Back up PostgreSQL with pg_dump. In a cluster, back up each node. The copy contains allocations \
with their parameters: protect it like the data directory.

Examples:
  ringwell backup --config /etc/ringwell/ringwell.toml \\
    --to /backup/ringwell-2026-11-22
  ringwell backup --data ./demo-data --to ./demo-backup
  ringwell backup --verify /backup/ringwell-2026-11-22";

/// The databases in a backup: the directory of ring pools, and the call log.
pub(crate) const DATABASES: [&str; 2] = ["directory.sqlite", data_files::CALLS];

/// Small files in a data directory that are copied if they exist. Call reports that are not in the
/// call log yet are copied before the call log, so that each report is in at least one of the two
/// copies.
const SMALL: [&str; 10] = [
    data_files::WAITING,
    data_files::UNREAD,
    "cluster-map.json",
    "gaps.json",
    "journal-erase.todo",
    "lifetimes.json",
    "overflow-numbers.json",
    "overflow-periods.json",
    "site-secret",
    "webhook-time",
];

/// The format version of the list `backup.json`.
const FORMAT: u32 = 1;

/// The maximum number of attempts to copy a shard. An attempt fails if the server drops segments,
/// or writes to them, faster than they are copied.
const TRIES: u32 = 5;

/// The number of bytes that are copied at once. It is small because the server keeps writing: a
/// piece may contain a later write but lack an earlier one. Verification of the copy then fails,
/// and the shard is copied again.
const PIECE: usize = 64 << 10;

#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true),
    override_usage = "ringwell backup <--config FILE|--data DIR> --to DIR\n       \
        ringwell backup --verify DIR"
)]
pub(crate) struct Args {
    /// The server's configuration, which names the data directory and the databases
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: Option<PathBuf>,
    /// The data directory; overrides the configuration
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A new directory for the backup
    #[arg(long, value_name = "DIR", group = "what")]
    to: Option<PathBuf>,
    /// Check an existing backup
    #[arg(long, value_name = "DIR", group = "what")]
    verify: Option<PathBuf>,
}

/// The contents of `backup.json`.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    format: u32,
    /// The version of the program that wrote the list.
    version: String,
    /// The time when the backup began, in RFC 3339 format.
    taken_at: String,
    files: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The path relative to the backup's directory.
    path: PathBuf,
    bytes: u64,
    blake3: String,
}

/// Takes a backup, or checks one.
///
/// # Errors
/// If something cannot be copied, or the copy is damaged.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.verify {
        let list = verify(path)?;
        let (count, at) = (list.files.len(), &list.taken_at);
        return print(
            format!("{}: sound; {count} files, backed up at {at}\n", path.display()).as_bytes(),
        );
    }
    let to = args.to.as_deref().context("--to must name a new directory")?;
    let sources = match sources(args.config.as_deref(), args.data.clone())? {
        Ok(found) => found,
        Err(code) => return Ok(code),
    };
    ensure!(!to.exists(), "{} already exists: choose a new directory for --to", to.display());
    let data = sources.data.display();
    ensure!(
        !is_inside(to, &sources.data),
        "{} is inside the data directory {data}: choose a directory outside it for --to",
        to.display()
    );
    journal::erase::check_finished(&sources.data)?;
    let partial = partial(to)?;
    let taken = take(&sources, &partial);
    if taken.is_err() {
        // A partial backup must not be mistaken for a complete one.
        let _ = fs::remove_dir_all(&partial);
    }
    let list = taken?;
    fs::rename(&partial, to).with_context(|| format!("cannot create {}", to.display()))?;
    if let Some(parent) = to.parent() {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        File::open(parent)?.sync_all()?;
    }
    let mib = list.files.iter().map(|file| file.bytes).sum::<u64>() >> 20;
    let count = list.files.len();
    let shown = to.display();
    let text = format!("{shown}: {count} files, {mib} MiB, copied and checked\n");
    for (what, database) in
        ["The ring pools are", "The calls are"].into_iter().zip(&sources.databases)
    {
        if matches!(database, Some(Database::Postgres(_))) {
            print_note(format_args!(
                "{what} in PostgreSQL, which this command does not copy: back it up with pg_dump."
            ));
        }
    }
    // A demo has no database of ring pools, because it keeps its pools in files.
    if args.config.is_none() && !sources.data.join(DEMO_LIST).exists() {
        print_note(
            "No database of ring pools was copied. If the server has one, use --config FILE \
             instead of --data.",
        );
    }
    print(text.as_bytes())
}

/// The locations of a server's data.
pub(crate) struct Sources {
    pub(crate) data: PathBuf,
    /// The databases, in the order of [`DATABASES`].
    pub(crate) databases: [Option<Database>; 2],
}

/// Finds a server's data. If the configuration has faults, prints them and returns the exit code.
///
/// # Errors
/// If neither a configuration nor a data directory is specified.
pub(crate) fn sources(
    config: Option<&Path>,
    data: Option<PathBuf>,
) -> anyhow::Result<Result<Sources, ExitCode>> {
    let Some(path) = config else {
        let data = data.ok_or(WrongUsage(
            "set --config to the server's configuration, or --data to its data directory; --help \
             shows examples",
        ))?;
        let calls = Database::File(data.join(data_files::CALLS));
        return Ok(Ok(Sources { data, databases: [None, Some(calls)] }));
    };
    let flags = Overrides { data, ..Overrides::default() };
    Ok(match load(path, variable, flags, cores()) {
        Ok((config, _)) => {
            let calls = config.calls.and_then(|calls| calls.database);
            let calls =
                calls.unwrap_or_else(|| Database::File(config.data.join(data_files::CALLS)));
            Ok(Sources { data: config.data, databases: [config.database, Some(calls)] })
        }
        Err(faults) => Err(show_of_file(&faults, path)),
    })
}

/// Returns whether `path`, which does not exist yet, would be inside `directory`. A backup there
/// would be lost with the data.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = path.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok());
    let directory = fs::canonicalize(directory).ok();
    existing.zip(directory).is_some_and(|(existing, directory)| existing.starts_with(directory))
}

/// Creates the directory in which the backup is built. It is next to the final path, so that a
/// rename completes the backup.
fn partial(to: &Path) -> anyhow::Result<PathBuf> {
    let name = to.file_name().context("--to must name a directory")?;
    let partial = to.with_file_name(format!("{}.partial", name.to_string_lossy()));
    if partial.exists() {
        bail!("{} is left over from an interrupted backup: remove it", partial.display());
    }
    create_directory(&partial)?;
    Ok(partial)
}

fn take(sources: &Sources, to: &Path) -> anyhow::Result<List> {
    let Sources { data, databases } = sources;
    let taken_at = jiff::Timestamp::now().to_string();
    let shards = shards(data)?;
    if let Some(shard) = replaced_journal(data)? {
        bail!(
            "the journal that shard {shard} wrote last is missing from {}, so the backup would \
             lack its allocations. Put that journal back (`ringwell doctor` shows details)",
            data.display()
        );
    }
    for shard in &shards {
        copy_shard(&data.join("journal").join(shard), &to.join("journal").join(shard))?;
    }
    for name in SMALL {
        copy_small(&data.join(name), &to.join(name))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (name, database) in DATABASES.into_iter().zip(databases) {
        // The call log exists only once a server has recorded calls.
        if let Some(Database::File(path)) = database
            && (file_exists(path)? || name != data_files::CALLS)
        {
            let copied = runtime.block_on(copy_sqlite(path, &to.join(name)));
            copied.map_err(|error| match error {
                StoreError::File(fault) if name == data_files::CALLS => anyhow!(fault.of_calls()),
                error => anyhow!(error).context(format!("cannot copy {}", path.display())),
            })?;
        }
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let list = List { format: FORMAT, version, taken_at, files: entries(to)? };
    let mut out =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(to.join(LIST))?;
    out.write_all((serde_json::to_string_pretty(&list)? + "\n").as_bytes())?;
    out.sync_all()?;
    verify(to)
}

/// Copies a file if it exists. It is not an error if the file is removed during the copy.
fn copy_small(from: &Path, to: &Path) -> anyhow::Result<()> {
    let shown = from.display();
    match copy(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        copied => copied.with_context(|| format!("cannot copy {shown}")),
    }
}

/// Returns the names of the shards' journal directories, sorted by shard.
fn shards(data: &Path) -> anyhow::Result<Vec<String>> {
    let journal = data.join("journal");
    let listed = fs::read_dir(&journal).with_context(|| {
        format!(
            "{} contains no journal: specify a data directory (`data` in the configuration)",
            data.display()
        )
    })?;
    let mut shards = Vec::new();
    for entry in listed {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            shards.push(name);
        }
    }
    ensure!(!shards.is_empty(), "{} contains no shard directories", journal.display());
    shards.sort_by_key(|name| name.parse::<u32>().unwrap_or(u32::MAX));
    Ok(shards)
}

/// Copies a shard's files. Starts again if a segment was dropped during the copy, or if the copy is
/// damaged.
fn copy_shard(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut trouble = String::new();
    for _ in 0..TRIES {
        let _ = fs::remove_dir_all(to);
        create_directory(to)?;
        match copy_files(from, to) {
            Ok(()) => {}
            // The segment was dropped after it was listed and before it was opened.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                trouble = String::from("the shard's files changed too quickly to be copied");
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("copying {}", from.display())),
        }
        let mut said = Vec::new();
        if verify_directory(to, &mut said)? {
            return Ok(());
        }
        trouble = String::from_utf8_lossy(&said).into_owned();
    }
    bail!(
        "{} was copied {TRIES} times, but no copy was sound: check the original with `ringwell \
         journal verify`. The last attempt:\n{trouble}",
        from.display()
    )
}

/// Copies snapshots first, then segments from the newest to the oldest, each from its end to its
/// beginning. If the copy contains a frame, it also contains everything that was written before the
/// frame.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    let snapshots = files(from, "rps")?;
    for name in &snapshots {
        copy(&from.join(name), &to.join(name))?;
    }
    let mut segments = files(from, "rpj")?;
    segments.reverse();
    for name in &segments {
        copy(&from.join(name), &to.join(name))?;
    }
    // If a segment was dropped during the copy, its file may already have been reused. The copy
    // then mixes two segments.
    let now = files(from, "rpj")?;
    let is_gone = segments.iter().any(|name| !now.contains(name));
    if is_gone { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
}

/// Lists the names of the files with the extension `extension`, sorted.
fn files(directory: &Path, extension: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|found| found == extension) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Copies a file from its end to its beginning. Blocks of zeros become holes in the copy.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !file_exists(from)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    let source = File::open(from)?;
    let bytes = source.metadata()?.len();
    let target = File::create_new(to)?;
    target.set_permissions(fs::Permissions::from_mode(0o600))?;
    target.set_len(bytes)?;
    let mut progress = Progress::new(format!("copying {}", from.display()), bytes);
    let mut piece = vec![0; PIECE];
    let mut end = bytes;
    while end > 0 {
        let begin = (end - 1) / PIECE as u64 * PIECE as u64;
        let length = usize::try_from(end - begin).unwrap_or(PIECE);
        source.read_exact_at(&mut piece[..length], begin)?;
        if piece[..length].iter().any(|byte| *byte != 0) {
            target.write_all_at(&piece[..length], begin)?;
        }
        progress.add(end - begin);
        end = begin;
    }
    target.sync_all()
}

/// Lists all files in a backup except `backup.json`, sorted by path, each with its size and hash.
fn entries(root: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let below = path.strip_prefix(root)?.to_owned();
            if path.is_dir() {
                File::open(&path)?.sync_all()?;
                waiting.push(path);
            } else if below != Path::new(LIST) {
                let (bytes, blake3) = digest(&path)?;
                entries.push(Entry { path: below, bytes, blake3 });
            }
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    ensure!(file_exists(path)?, "{} is a link to a missing file", path.display());
    let mut file = File::open(path)?;
    let total = file.metadata()?.len();
    let mut progress = Progress::new(format!("checking {}", path.display()), total);
    let (mut hasher, mut buffer, mut bytes) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return Ok((bytes, hasher.finalize().to_hex().to_string()));
        }
        hasher.update(&buffer[..got]);
        bytes += got as u64;
        progress.add(got as u64);
    }
}

/// Compares every file in a backup with the list in `backup.json`, and verifies the journals and
/// databases.
fn verify(root: &Path) -> anyhow::Result<List> {
    let shown = root.display();
    let text = fs::read(root.join(LIST))
        .with_context(|| format!("{shown} is not a backup: {LIST} cannot be read"))?;
    let list: List = serde_json::from_slice(&text).with_context(|| format!("{shown}/{LIST}"))?;
    ensure!(
        list.format == FORMAT,
        "{shown} has format {}, but this program reads format {FORMAT}",
        list.format
    );
    let found = entries(root)?;
    for entry in &list.files {
        let path = entry.path.display();
        match found.iter().find(|found| found.path == entry.path) {
            None => bail!("{shown}: {path} is missing"),
            Some(found) => ensure!(found == entry, "{shown}: {path} has changed since the backup"),
        }
    }
    ensure!(
        found.len() == list.files.len(),
        "{shown} contains files that are not listed in {LIST}"
    );
    verify_contents(root)?;
    Ok(list)
}

/// Checks a copy of a data directory before it is used. A backup is checked against its list, and
/// any other copy only by its contents.
///
/// # Errors
/// Returns the first fault.
pub(crate) fn verify_copy(root: &Path) -> anyhow::Result<()> {
    if root.join(LIST).exists() { verify(root).map(|_| ()) } else { verify_contents(root) }
}

/// Verifies the journals and databases below `root`.
fn verify_contents(root: &Path) -> anyhow::Result<()> {
    let shown = root.display();
    let mut said = Vec::new();
    let is_sound = verify_directory(root, &mut said)?;
    ensure!(is_sound, "{shown}: a journal is damaged\n{}", String::from_utf8_lossy(&said));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for database in DATABASES.map(|name| root.join(name)) {
        if !database.is_file() {
            continue;
        }
        let checked = runtime.block_on(check_sqlite(&database));
        checked.map_err(|error| match error {
            // Reports the damage without repair advice, because a copy cannot be repaired.
            StoreError::File(fault) => anyhow!(fault.damage().unwrap_or_else(|| fault.to_string())),
            error => anyhow!(error).context(database.display().to_string()),
        })?;
    }
    Ok(())
}
