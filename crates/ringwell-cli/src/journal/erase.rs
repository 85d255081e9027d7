//! `ringwell journal erase`: overwrites parameters of allocations in place.
//!
//! Decides which files are written, and in which order. The bytes to write are first stored in a
//! separate file. If a crash interrupts the command, running it again completes the erasure, so no
//! frame stays partly overwritten. `ringwell_journal::erase` computes the bytes to write. Source:
//! docs/spec/journal.md, "Erasure".

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use ringwell_calls::digest::{hex, sha256_hex};
use ringwell_calls::log::fingerprint;
use ringwell_calls::number::promo_number;
use ringwell_core::PromoNumber;
use ringwell_journal::{
    BLOCK_BYTES, FrameFault, Record, SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, Segments,
    Step, Walk, encode_end, has_stamp, parameters_in, pieces,
};
use ringwell_node::disk::{DataLock, Identity, OsFiles};
use ringwell_store::file_exists;
use ringwell_wire::params;
use serde::{Deserialize, Serialize};

use super::files::{BACKUP_LIST, ShardFiles, shards_in};
use crate::call_log::erase::{pair, read_list};
use crate::print::counted;

pub(crate) const HELP: &str = "\
Overwrites the parameters of allocations in all segments; numbers, times, lockouts, checksums and \
hashes stay the same. Spare files, which may contain data of older segments, are removed. Stop the \
server first. If the command is interrupted, run it again, or start the server: either completes \
the erasure.

Backups still contain the parameters: delete the backups, and take new ones.

If the parameters of an allocation have four bytes or fewer in total, they cannot be overwritten. \
The command prints the count of such allocations.

Examples:
  ringwell journal erase /var/lib/ringwell/data --list erase.list
  ringwell journal erase ./data --parameter gclid=Cj0KCQ";

/// The file in the data directory that stores the planned bytes until they are written.
pub(crate) const INTENT: &str = "journal-erase.todo";

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Options {
    /// The data directory of a stopped server
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

/// Bytes to write, with their file and offset.
#[derive(Debug, Serialize, Deserialize)]
struct Patch {
    /// The path relative to the data directory.
    file: PathBuf,
    offset: u64,
    hex: String,
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
    apply_intent(data)?;
    let wanted = Wanted::read(options)?;
    if wanted.parameters.is_empty() && wanted.listed.is_empty() {
        writeln!(
            out,
            "the list is empty. Lists contain only allocations of erased calls: to erase the \
             parameters of a visitor who never called, use --parameter NAME=VALUE"
        )?;
    }
    let mut counts = Counts::default();
    for files in shards_in(data)? {
        let mut listed = files.segments.list()?;
        listed.sort_by_key(|file| file.segno);
        for (at, file) in listed.iter().enumerate() {
            let next = listed.get(at + 1).map(|next| header(&files, next)).transpose()?;
            let next = next.map(|next| next.tip.next_n);
            segment(data, &wanted, &files, (*file, next), &mut counts)?;
        }
        remove_spares(&files.directory)?;
    }
    let Counts { erased, too_short } = counts;
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
/// journals.
///
/// # Errors
/// If a server uses `data`, or files cannot be read or written.
pub(crate) fn finish(data: &Path) -> anyhow::Result<()> {
    if !data.join(INTENT).exists() {
        return Ok(());
    }
    let _lock = DataLock::acquire(data)?;
    apply_intent(data)
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
        // Lists of earlier releases contain only the last value of a repeated parameter.
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

/// Erases the parameters of the `wanted` allocations in one segment. `next` is the first group of
/// the next segment, if there is one.
fn segment(
    data: &Path,
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
    let mut writes = Vec::new();
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
                        writes.push(Patch { file: name.clone(), offset, hex });
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
    write_intent(data, &writes)?;
    apply_intent(data)?;
    clear_tail(&path, walk.offset(), (header.salt, expected), next == Some(expected))
}

/// Overwrites the bytes after the last frame of a segment. They are frames from an earlier use of
/// the file or, if the journal was cut off here, the frame that was cut off.
fn clear_tail(
    path: &Path,
    from: u64,
    (salt, n): (u64, u64),
    is_cut_off: bool,
) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut stale = Vec::new();
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
        if block.iter().any(|byte| *byte != 0) && block[..] != encode_end(salt, n)[..] {
            stale.push((index, block.len()));
        }
    }
    for (index, len) in &stale {
        file.write_all_at(&vec![0; *len], from + index * BLOCK_BYTES as u64)?;
    }
    if !stale.is_empty() {
        file.sync_all()?;
    }
    Ok(())
}

/// Removes the files that are kept for reuse as new segments. They contain frames of dropped
/// segments.
fn remove_spares(directory: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_spare = path.extension().is_some_and(|it| it == "spare" || it == "tmp");
        if is_spare && path.is_file() {
            fs::remove_file(&path)?;
        }
    }
    Ok(File::open(directory)?.sync_all()?)
}

/// Stores the planned bytes durably, with a checksum at their end.
fn write_intent(data: &Path, writes: &[Patch]) -> anyhow::Result<()> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for write in writes {
        text += &serde_json::to_string(write)?;
        text.push('\n');
    }
    let sum = sha256_hex(text.as_bytes());
    text += &sum;
    let path = data.join(INTENT);
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        File::open(data)?.sync_all()
    };
    write().with_context(|| {
        let bytes = text.len();
        format!(
            "cannot write {}: the erasure is incomplete, and some segments still contain the \
             parameters. Free {bytes} bytes of disk space, and run the command again",
            path.display()
        )
    })
}

/// Writes the planned bytes if they were stored completely. Otherwise, the segment for which they
/// were planned has not been changed yet.
fn apply_intent(data: &Path) -> anyhow::Result<()> {
    let path = data.join(INTENT);
    if !file_exists(&path)? {
        return Ok(());
    }
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // Bytes that are not UTF-8 result from an unfinished write, and so does a checksum that does
    // not match.
    let text = String::from_utf8(bytes).unwrap_or_default();
    let lines = text.len().checked_sub(64).filter(|at| text.is_char_boundary(*at));
    let lines = lines.map(|at| text.split_at(at));
    if let Some((lines, _)) = lines.filter(|(lines, sum)| sha256_hex(lines.as_bytes()) == *sum) {
        let mut open: Option<(PathBuf, File)> = None;
        for line in lines.lines() {
            let Patch { file, offset, hex } = serde_json::from_str(line)?;
            if open.as_ref().is_none_or(|(path, _)| *path != file) {
                let opened = OpenOptions::new().write(true).open(data.join(&file));
                let opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
                open = Some((file, opened));
            }
            if let Some((_, file)) = &open {
                file.write_all_at(&from_hex(&hex)?, offset)?;
            }
        }
        if let Some((_, file)) = open {
            file.sync_all()?;
        }
    }
    fs::remove_file(&path)?;
    Ok(File::open(data)?.sync_all()?)
}

fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    let byte = |pair: &[u8]| {
        let text = str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    text.as_bytes().chunks(2).map(byte).collect::<Option<_>>().context("no hexadecimal digits")
}
