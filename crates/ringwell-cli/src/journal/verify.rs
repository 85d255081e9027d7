//! `ringwell journal verify`: checks every frame, the chain of hashes and the snapshots, and prints
//! a verdict.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringwell_journal::{
    GroupHeader, Records, RecoveryPlan, Segments, Snapshot, SnapshotError, Verdict, recover,
};
use ringwell_node::disk::{
    FileError, OsFiles, SnapshotRef, list_snapshots, read_snapshot, replaced_journal,
    unreadable_files,
};

use super::erase;
use super::files::{ShardFiles, readable, shards_in};
use super::replay::first_frame;
use crate::print::counted;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// A data directory, or one shard's directory in it.
    directory: PathBuf,
}

pub(super) fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let sound = directory(&options.directory, out)?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks whether every journal and snapshot in `path` is sound.
pub(super) fn directory(path: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    // `path` may be one shard's directory, DATA/journal/0.
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for data in full.ancestors().take(3) {
        if let Err(error) = erase::check_finished(data) {
            writeln!(out, "{error:#}")?;
            return Ok(false);
        }
        if let Some(warning) = erase::unplanned(data)? {
            writeln!(out, "{warning}")?;
        }
    }
    let unreadable = unreadable_files(path);
    for error in &unreadable {
        writeln!(out, "{error}")?;
    }
    let mut sound = unreadable.is_empty();
    // A replaced journal can be detected only if the data directory's identity can be read.
    if let Ok(Some(shard)) = replaced_journal(path) {
        sound = false;
        writeln!(
            out,
            "the journal that shard {shard} wrote last is missing from {}: put it back before the \
             next start. Otherwise, all ring pools hand out only overflow numbers for the longest \
             lifetime of any pool",
            path.display()
        )?;
    }
    for files in shards_in(path)? {
        sound &= shard(&files, out)?;
    }
    Ok(sound)
}

/// A complete snapshot, and whether it matches a frame of the journal.
struct Whole {
    file: SnapshotRef,
    snapshot: Snapshot,
    fits: bool,
}

fn shard(files: &ShardFiles, out: &mut impl Write) -> anyhow::Result<bool> {
    writeln!(out, "shard {} in {}", files.shard, files.directory.display())?;
    let mut sound = true;
    if let Some(expected) = files.expected.filter(|expected| *expected != files.shard) {
        sound = false;
        writeln!(
            out,
            "  REFUSED: this is the directory of shard {expected}, but the journal in it belongs \
             to shard {}: move it away",
            files.shard
        )?;
    }
    let mut snapshots = Vec::new();
    for file in list_snapshots(&OsFiles, &files.directory)? {
        match read_whole(&file) {
            Ok(snapshot) => snapshots.push(Whole { file, snapshot, fits: false }),
            Err(error) => {
                sound = false;
                writeln!(out, "  snapshot {}: {error}", file.path.display())?;
            }
        }
    }
    let plan = RecoveryPlan { shard: files.shard, from: first_frame(files)?, snapshot: None };
    let mut records = 0_u64;
    let checked = recover(&files.segments, &plan, |header, body| {
        for record in Records::new(header.n, header.at, body) {
            record?;
            records += 1;
        }
        compare(&mut snapshots, header);
        Ok(())
    });
    let recovered = match checked {
        Ok(recovered) => recovered,
        Err(error) => {
            writeln!(out, "  REFUSED: {error}")?;
            return Ok(false);
        }
    };
    let bytes: u64 = files.segments.list()?.iter().map(|file| file.bytes).sum();
    writeln!(
        out,
        "  {} with {bytes} bytes in total, frames {} to {}, {} up to {}",
        counted(recovered.segments.len() as u64, "segment"),
        plan.from,
        recovered.tip.next_n - 1,
        counted(records, "record"),
        readable(recovered.tip.last_at)
    )?;
    for Whole { file, snapshot, fits } in &snapshots {
        let is_next = snapshot.header.replay_from == recovered.tip.next_n;
        let fits =
            if is_next { snapshot.header.prev_hash == recovered.tip.prev_hash } else { *fits };
        let journal = Some(snapshot.header.journal) == recovered.journal;
        let fits = fits && journal && snapshot.through < recovered.tip.next_n;
        sound &= fits;
        let verdict = if fits { "fits the journal" } else { "DOES NOT FIT the journal" };
        writeln!(
            out,
            "  snapshot {}: {} {}, {verdict}",
            file.path.display(),
            snapshot.entries,
            if snapshot.entries == 1 { "entry" } else { "entries" }
        )?;
    }
    writeln!(out, "  verdict: {}", recovered.verdict)?;
    // An incomplete last frame is not damage: it results from a power cut, and no answer was sent
    // for its records.
    Ok(sound && !matches!(recovered.verdict, Verdict::Rotten(_)))
}

/// Sets `fits` for each snapshot that matches the frame of `header`. Replay after such a snapshot
/// begins with this frame, and both contain the same hash of the previous frame.
fn compare(snapshots: &mut [Whole], header: &GroupHeader) {
    for Whole { snapshot, fits, .. } in snapshots {
        let said = &snapshot.header;
        *fits |= said.replay_from == header.n && said.prev_hash == header.prev_hash;
    }
}

fn read_whole(file: &SnapshotRef) -> Result<Snapshot, SnapshotError<FileError>> {
    let mut reader = read_snapshot(&OsFiles, file)?;
    while reader.next_chunk()?.is_some() {}
    // The snapshot's end has been read, because `next_chunk` returned `None`.
    reader.end().copied().ok_or(SnapshotError::Hash)
}
