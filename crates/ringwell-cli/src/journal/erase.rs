//! `ringwell journal erase`: overwrites parameters of allocations in place.
//!
//! Decides what is written and removed. All of it is first stored in a separate file (`todo.rs`).
//! If a crash interrupts the command after that, running it again or starting the server completes
//! the whole erasure. No frame stays partly overwritten. `ringwell_journal::erase` computes the
//! bytes to write. Source: docs/spec/journal.md, "Erasure".

mod todo;

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use ringwell_calls::digest::{Sha256, hex};
use ringwell_calls::log::fingerprint;
use ringwell_calls::number::promo_number;
use ringwell_core::PromoNumber;
use ringwell_journal::{
    BLOCK_BYTES, FrameFault, Record, SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, Segments,
    Step, Walk, encode_end, has_stamp, parameters_in, pieces,
};
use ringwell_node::disk::{DataLock, Identity, OsFiles};
use ringwell_wire::params;

use self::todo::{State, TODO, Todo, Work};
use super::files::{BACKUP_LIST, ShardFiles, shards_in};
use crate::call_log::erase::{pair, read_list};
use crate::print::counted;

pub(crate) const HELP: &str = "\
Overwrites the parameters of allocations in all segments; numbers, times, lockouts, checksums and \
hashes stay the same. Spare files, which may contain data from older segments, are removed. Stop \
the server first.

The command first plans the whole erasure. If it is interrupted after that, run it again, or start \
the server: either completes the erasure. If it is interrupted while it plans, nothing was erased: \
run it again. The server logs a warning at each start until you do, and erasures of other \
parameters are refused.

Backups still contain the parameters: delete the backups, and take new ones.

If an allocation's parameters have four bytes or fewer in total, they cannot be overwritten. The \
command prints the count of such allocations.

Examples:
  ringwell journal erase /var/lib/ringwell/data --list erase.list
  ringwell journal erase ./data --parameter gclid=Cj0KCQ";

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Options {
    /// A stopped server's data directory
    directory: PathBuf,
    /// Erase allocations that contain this parameter, decoded or as `ringwell journal inspect`
    /// prints it; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, group = "what")]
    parameter: Vec<(String, String)>,
    /// A list of allocations written by `ringwell calls erase --journal-list`
    #[arg(long, value_name = "FILE", group = "what")]
    list: Option<PathBuf>,
}

/// The allocations to erase.
struct Wanted<'a> {
    parameters: &'a [(String, String)],
    listed: Vec<(PromoNumber, String)>,
}

#[derive(Debug, Default)]
struct Counts {
    erased: u64,
    too_short: u64,
}

pub(super) fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let data = &options.directory;
    match fs::metadata(data.join("journal")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(error).with_context(|| format!("cannot read {}", data.display()));
        }
        journal => ensure!(
            journal.is_ok_and(|it| it.is_dir()),
            "{} contains no journal: specify a data directory (`data` in the configuration)",
            data.display()
        ),
    }
    ensure!(
        !data.join(BACKUP_LIST).exists(),
        "{} is a backup, which may also contain calls: delete the backup, and take a new one after \
            the erasure",
        data.display()
    );
    let _lock = DataLock::acquire(data)?;
    let wanted = Wanted::read(options)?;
    let state = todo::state(data)?;
    match state {
        State::None => {}
        State::Planning => {
            ensure!(
                todo::request(data)?.is_none_or(|request| request == wanted.digest()),
                "{}. That command named other parameters. To give it up, remove {}",
                planning(data),
                data.join(TODO).display()
            );
            writeln!(out, "{}", planning(data))?;
        }
        State::Planned => {
            let erased = counted(todo::apply(data)?, "allocation");
            writeln!(out, "an interrupted erasure was completed: {erased} erased")?;
        }
    }
    if wanted.parameters.is_empty() && wanted.listed.is_empty() {
        writeln!(
            out,
            "the list is empty. Lists contain only allocations of erased calls: to erase the \
             parameters of a visitor who never called, use --parameter NAME=VALUE"
        )?;
    }
    let Counts { erased, too_short } = match plan(data, &wanted) {
        Ok(counts) => counts,
        Err(error) => {
            // Nothing has been overwritten yet. If this run repeats an interrupted erasure, that
            // erasure is still incomplete, so its file stays.
            if state != State::Planning {
                let _ = fs::remove_file(data.join(TODO));
            }
            return Err(error.context("nothing was erased"));
        }
    };
    todo::apply(data)?;
    writeln!(out, "{} erased", counted(erased, "allocation"))?;
    // With `engine = "nats"`, only the NATS streams record which journals exist.
    if Identity::read(&OsFiles, data)?.is_none_or(|it| it.journals.is_empty()) {
        writeln!(
            out,
            "identity.json in {} lists no journals. If the server uses `engine = \"nats\"`, the \
             journals here are only copies, and the streams contain the parameters until \
             journal.history_age has passed",
            data.display()
        )?;
        return Ok(ExitCode::FAILURE);
    }
    if too_short > 0 {
        writeln!(out, "allocations whose parameters are too short to be overwritten: {too_short}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Completes an interrupted `ringwell journal erase`. A server calls this before it opens its
/// journals. If the erasure's plan is incomplete, the erasure cannot be completed, and a warning is
/// logged.
///
/// # Errors
/// If a server uses `data`, or files cannot be read or written.
pub(crate) fn finish(data: &Path) -> anyhow::Result<()> {
    match todo::state(data)? {
        State::None => return Ok(()),
        State::Planning => {
            tracing::warn!("{}", planning(data));
            return Ok(());
        }
        State::Planned => {}
    }
    let _lock = DataLock::acquire(data)?;
    let erased = todo::apply(data)?;
    tracing::info!(erased, "completed an interrupted erasure in the journals");
    Ok(())
}

/// Checks that no erasure was interrupted while it was overwriting the journals in `data`.
///
/// # Errors
/// If an erasure was interrupted: frames may then seem to be damaged.
pub(crate) fn check_finished(data: &Path) -> anyhow::Result<()> {
    ensure!(
        todo::state(data)? != State::Planned,
        "`ringwell journal erase` was interrupted while it overwrote the journals in {}: start the \
         server, or run the command again. Either completes the erasure; until then, frames may \
         seem to be damaged",
        data.display()
    );
    Ok(())
}

/// Returns a warning if an erasure in `data` was interrupted before it had erased anything.
///
/// # Errors
/// If its file cannot be read.
pub(crate) fn unplanned(data: &Path) -> anyhow::Result<Option<String>> {
    Ok((todo::state(data)? == State::Planning).then(|| planning(data)))
}

fn planning(data: &Path) -> String {
    format!(
        "`ringwell journal erase` was interrupted before it had erased anything in {}: run that \
         command again with the server stopped",
        data.display()
    )
}

impl<'a> Wanted<'a> {
    fn read(options: &'a Options) -> anyhow::Result<Self> {
        let mut listed = Vec::new();
        if let Some(path) = &options.list {
            for read in read_list(path)? {
                // A listed number that is not a promo number was never allocated.
                listed.extend(promo_number(&read.number).map(|number| (number, read.parameters)));
            }
        }
        Ok(Self { parameters: &options.parameter, listed })
    }

    /// Returns a text that identifies the request.
    fn digest(&self) -> String {
        let listed = self.listed.iter().map(|(number, print)| format!("{number} {print}"));
        let parameters = self.parameters.iter().map(|pair| format!("{pair:?}"));
        let mut lines: Vec<String> = parameters.chain(listed).collect();
        lines.sort();
        let mut sum = Sha256::new();
        sum.update(lines.join("\n").as_bytes());
        sum.hex()
    }

    fn has(&self, record: &Record<'_>, raw: &[u8]) -> bool {
        let number = match record {
            Record::Allocate { number, .. } | Record::Carry { number, .. } => *number,
            _ => return false,
        };
        // All values of a repeated parameter are compared, including those that look-ups do not
        // show.
        if params::decode_all(raw).any(|parameter| self.parameters.contains(&parameter))
            || raw.split(|byte| *byte == b'&').any(|pair| self.has_printed(pair))
        {
            return true;
        }
        let mut listed = self.listed.iter().filter(|(listed, _)| *listed == number).peekable();
        let is_listed = !params::is_erased(raw) && listed.peek().is_some();
        // Lists from earlier releases contain only the last value of a repeated parameter.
        let decoded = is_listed.then(|| [params::decode_each(raw), params::decode(raw)]);
        let prints = decoded.map(|both| both.map(|parameters| fingerprint(&parameters)));
        listed.any(|(_, wanted)| prints.as_ref().is_some_and(|prints| prints.contains(wanted)))
    }

    /// Whether `pair` was specified as `ringwell journal inspect` prints it, with its escapes.
    fn has_printed(&self, pair: &[u8]) -> bool {
        let printed = pair.escape_ascii().to_string();
        let mut given = self.parameters.iter().map(|(name, value)| format!("{name}={value}"));
        given.any(|given| given == printed)
    }
}

fn path_of(files: &ShardFiles, file: &SegmentFile) -> PathBuf {
    files.directory.join(format!("{:016}.rpj", file.segno))
}

fn damaged(path: &Path) -> String {
    format!("{} is damaged: run `ringwell journal verify`", path.display())
}

fn header(files: &ShardFiles, file: &SegmentFile) -> anyhow::Result<SegmentHeader> {
    let mut block = [0; SEGMENT_HEADER_BYTES];
    let got = files.segments.read_at(file.segno, 0, &mut block)?;
    SegmentHeader::decode(&block[..got]).with_context(|| damaged(&path_of(files, file)))
}

/// Plans the whole erasure, and stores the plan durably. Changes no journal.
fn plan(data: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Counts> {
    let mut todo = Todo::create(data, &wanted.digest())?;
    let mut counts = Counts::default();
    for files in shards_in(data)? {
        let mut listed = files.segments.list()?;
        listed.sort_by_key(|file| file.segno);
        for (at, file) in listed.iter().enumerate() {
            let next = listed.get(at + 1).map(|next| header(&files, next)).transpose()?;
            let next = next.map(|next| next.tip.next_n);
            segment((data, &mut todo), wanted, &files, (*file, next), &mut counts)?;
        }
        spares(&files.directory, (data, &mut todo))?;
    }
    todo.finish(counts.erased)?;
    Ok(counts)
}

/// Plans the erasure of the `wanted` allocations' parameters in one segment. `next` is the first
/// group of the next segment, if there is one.
fn segment(
    (data, todo): (&Path, &mut Todo),
    wanted: &Wanted<'_>,
    files: &ShardFiles,
    (file, next): (SegmentFile, Option<u64>),
    counts: &mut Counts,
) -> anyhow::Result<()> {
    let path = path_of(files, &file);
    let name = path.strip_prefix(data)?.to_owned();
    let damaged = || damaged(&path);
    let header = header(files, &file)?;
    let mut walk = Walk::new(&files.segments, file, header.salt);
    let mut expected = header.tip.next_n;
    loop {
        match walk.step(expected)? {
            Step::Frame { offset, header } => {
                let mut body = walk.body().to_vec();
                let found =
                    parameters_in(&header, walk.body(), |record, raw| wanted.has(record, raw));
                for range in found.with_context(damaged)? {
                    if !ringwell_journal::erase(&mut body, range.clone()) {
                        counts.too_short += 1;
                        continue;
                    }
                    counts.erased += 1;
                    for (at, bytes) in pieces(&header, range) {
                        let (offset, hex) = (offset + at as u64, hex(&body[bytes]));
                        todo.add(&Work::Bytes { file: name.clone(), offset, hex })?;
                    }
                }
                expected = header.group.n + 1;
            }
            Step::Fault { fault: FrameFault::NotWritten, .. } => break,
            // A server has cut the journal off here, and has continued in the next segment.
            Step::Fault { fault: FrameFault::Rotten, .. } if next == Some(expected) => break,
            Step::Fault { fault: FrameFault::Rotten, .. } => bail!(damaged()),
        }
    }
    let stale = tail(&path, walk.offset(), (header.salt, expected), next == Some(expected))?;
    for (offset, zeros) in stale {
        todo.add(&Work::Zeros { file: name.clone(), offset, zeros })?;
    }
    Ok(())
}

/// The maximum number of zeros that are written at once.
const ZEROS_MAX: u64 = 1 << 20;

/// Returns the offsets and lengths of the bytes to clear after a segment's last frame. They are
/// frames from an earlier use of the file or, if the journal was cut off here, the frame that was
/// cut off.
fn tail(
    path: &Path,
    from: u64,
    (salt, n): (u64, u64),
    is_cut_off: bool,
) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut stale: Vec<(u64, u64)> = Vec::new();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    for index in 0.. {
        block.clear();
        (&mut file).take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            break;
        }
        ensure!(
            is_cut_off || !has_stamp(&block, salt, n, index),
            "{} ends in an incomplete frame: start and stop the server, then run this command \
            again",
            path.display()
        );
        if block.iter().all(|byte| *byte == 0) || block[..] == encode_end(salt, n)[..] {
            continue;
        }
        let (offset, bytes) = (from + index * BLOCK_BYTES as u64, block.len() as u64);
        match stale.last_mut() {
            Some((start, zeros)) if *start + *zeros == offset && *zeros < ZEROS_MAX => {
                *zeros += bytes;
            }
            _ => stale.push((offset, bytes)),
        }
    }
    Ok(stale)
}

/// Plans the removal of the files that are kept for reuse as new segments. They contain frames of
/// dropped segments.
fn spares(directory: &Path, (data, todo): (&Path, &mut Todo)) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_spare = path.extension().is_some_and(|it| it == "spare" || it == "tmp");
        if is_spare && path.is_file() {
            todo.add(&Work::Spare { spare: path.strip_prefix(data)?.to_owned() })?;
        }
    }
    Ok(())
}
