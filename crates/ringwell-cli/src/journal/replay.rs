//! `ringwell journal replay`: shows each number's newest allocation, computed from a snapshot and
//! records.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ringwell_core::{Millis, PoolId, Position, PromoNumber};
use ringwell_journal::{
    Chunk, NumberEntry, Record, Records, RecoveryPlan, SEGMENT_HEADER_BYTES, SegmentHeader,
    Segments, Snapshot, SnapshotError, recover,
};
use ringwell_node::disk::{FileError, OsFiles, SnapshotRef, list_snapshots, read_snapshot};
use serde_json::json;

use super::files::{ShardFiles, readable, shards_in};
use crate::print::print_note;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// A data directory, or one shard's directory in it.
    directory: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Read only records, not snapshots; this requires a journal that still contains its first
    /// frame.
    #[arg(long)]
    without_snapshot: bool,
}

/// A number's known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplayedNumber {
    pool: PoolId,
    allocated_at: Millis,
    locked_until: Millis,
    position: Position,
}

type Numbers = BTreeMap<PromoNumber, ReplayedNumber>;

pub(super) fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    for files in shards_in(&options.directory)? {
        let numbers = shard(&files, options.without_snapshot)?;
        let mut hasher = blake3::Hasher::new();
        for (number, state) in &numbers {
            let ReplayedNumber { pool, allocated_at, locked_until, .. } = state;
            let (from, until) = (allocated_at.0, locked_until.0);
            hasher.update(format!("{number} {pool} {from} {until}\n").as_bytes());
            if options.json {
                let line = json!({
                    "shard": files.shard, "number": number.to_string(), "pool": pool.0,
                    "allocated_at_ms": from, "locked_until_ms": until,
                });
                writeln!(out, "{line}")?;
            } else {
                let (from, until) = (readable(*allocated_at), readable(*locked_until));
                writeln!(out, "{number} pool {pool} allocated {from} locked until {until}")?;
            }
        }
        let hash = hasher.finalize();
        if options.json {
            let (shard, numbers) = (files.shard, numbers.len());
            let hash = hash.to_string();
            writeln!(out, "{}", json!({ "shard": shard, "numbers": numbers, "hash": hash }))?;
        } else {
            writeln!(out, "shard {}: {} numbers, state {hash}", files.shard, numbers.len())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the number of the first frame that the journal still contains.
pub(super) fn first_frame(files: &ShardFiles) -> anyhow::Result<u64> {
    let segments = files.segments.list()?;
    let Some(first) = segments.iter().min_by_key(|file| file.segno) else { return Ok(1) };
    let mut block = [0; SEGMENT_HEADER_BYTES];
    let got = files.segments.read_at(first.segno, 0, &mut block)?;
    // If the header is damaged, recovery reports the damage later.
    Ok(SegmentHeader::decode(&block[..got]).map_or(1, |header| header.tip.next_n))
}

fn shard(files: &ShardFiles, without_snapshot: bool) -> anyhow::Result<Numbers> {
    let mut numbers = Numbers::new();
    let mut newest = None;
    if without_snapshot {
        let first = first_frame(files)?;
        if first > 1 {
            bail!(
                "{}: the journal begins with frame {first}, and older data is only in the \
                 snapshot: omit --without-snapshot",
                files.directory.display()
            );
        }
    } else {
        for file in list_snapshots(&OsFiles, &files.directory)? {
            match load(&file) {
                Ok((snapshot, loaded)) => {
                    newest = Some(snapshot);
                    numbers = loaded;
                    break;
                }
                Err(error) => {
                    print_note(format_args!(
                        "{}: {error}; trying the previous snapshot",
                        file.path.display()
                    ));
                }
            }
        }
    }
    let plan = RecoveryPlan {
        shard: files.shard,
        from: newest.map_or(1, |snapshot| snapshot.header.replay_from),
        snapshot: newest.as_ref().map(Snapshot::mark),
    };
    recover(&files.segments, &plan, |header, body| {
        for record in Records::new(header.n, header.at, body) {
            let (position, record) = record?;
            apply(&mut numbers, position, &record);
        }
        Ok(())
    })
    .with_context(|| format!("the journal in {}", files.directory.display()))?;
    Ok(numbers)
}

fn load(file: &SnapshotRef) -> Result<(Snapshot, Numbers), SnapshotError<FileError>> {
    let mut numbers = Numbers::new();
    let mut reader = read_snapshot(&OsFiles, file)?;
    while let Some(chunk) = reader.next_chunk()? {
        if let Chunk::Numbers(entries) = chunk {
            numbers.extend(entries.map(|entry: NumberEntry| {
                let NumberEntry { number, pool, allocated_at, locked_until, position, .. } = entry;
                (number, ReplayedNumber { pool, allocated_at, locked_until, position })
            }));
        }
    }
    let end = reader.end().copied().ok_or(SnapshotError::Hash)?;
    Ok((end, numbers))
}

/// Applies a record if it is newer than the number's known state.
fn apply(numbers: &mut Numbers, position: Position, record: &Record<'_>) {
    let is_newer = |known: &ReplayedNumber| position > known.position;
    match *record {
        Record::Allocate { at, pool, number, lockout, .. } => {
            if numbers.get(&number).is_none_or(is_newer) {
                let locked_until = at + lockout;
                numbers.insert(
                    number,
                    ReplayedNumber { pool, allocated_at: at, locked_until, position },
                );
            }
        }
        Record::Carry { number, pool, allocated_at, locked_until, .. }
        | Record::Adopt { number, pool, allocated_at, locked_until, .. } => {
            if numbers.get(&number).is_none_or(is_newer) {
                numbers
                    .insert(number, ReplayedNumber { pool, allocated_at, locked_until, position });
            }
        }
        Record::Extend { number, until, .. } | Record::Release { number, until, .. } => {
            if let Some(known) = numbers.get_mut(&number).filter(|known| is_newer(known)) {
                known.locked_until = until;
                known.position = position;
                if let Record::Release { restored: Some(restored), .. } = record {
                    known.allocated_at = restored.allocated_at;
                }
            }
        }
        Record::Answer { .. } | Record::Hold { .. } | Record::Tick { .. } => {}
    }
}
