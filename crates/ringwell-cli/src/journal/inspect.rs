//! `ringwell journal inspect`: prints segments, frames and records as stored in the files.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use ringwell_core::{Position, PromoNumber};
use ringwell_journal::{
    FrameFault, FrameHeader, Record, Records, RowKey, SegmentFile, SegmentHeader, Segments, Step,
    Walk, position_parts,
};
use serde_json::{Value, json};

use super::files::{ShardFiles, readable, shards_in};

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// A data directory, or one shard's directory in it.
    directory: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Show only records of this number: ten digits, or + with a country code.
    #[arg(long, value_parser = |text: &str| PromoNumber::parse(text))]
    number: Option<PromoNumber>,
}

pub(super) fn run(options: &Options, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    for files in shards_in(&options.directory)? {
        let mut listed = files.segments.list()?;
        listed.sort_by_key(|file| file.segno);
        for file in listed {
            segment(options, &files, file, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn segment(
    options: &Options,
    files: &ShardFiles,
    file: SegmentFile,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let path = files.directory.join(format!("{:016}.rpj", file.segno));
    let mut block = [0; ringwell_journal::SEGMENT_HEADER_BYTES];
    let got = files.segments.read_at(file.segno, 0, &mut block)?;
    let header = SegmentHeader::decode(&block[..got])
        .with_context(|| format!("{} is not a segment", path.display()))?;
    let next_n = header.tip.next_n;
    if options.json {
        let line = json!({
            "segment": file.segno, "file": path.display().to_string(), "bytes": file.bytes,
            "shard": header.shard, "journal": hex(&header.journal), "first_frame": next_n,
            "epoch": header.tip.epoch,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "{}: {} bytes, shard {}, from frame {next_n}, epoch {}, journal {}",
            path.display(),
            file.bytes,
            header.shard,
            header.tip.epoch,
            hex(&header.journal)
        )?;
    }
    let mut walk = Walk::new(&files.segments, file, header.salt);
    let mut expected = next_n;
    loop {
        match walk.step(expected)? {
            Step::Frame { offset, header } => {
                frame(options, file.segno, offset, &header, walk.body(), out)
                    .with_context(|| format!("{} at offset {offset}", path.display()))?;
                expected = header.group.n + 1;
            }
            Step::Fault { fault: FrameFault::NotWritten, .. } => return Ok(()),
            Step::Fault { offset, fault: FrameFault::Rotten } => {
                let what = format!("frame {expected} at offset {offset} is damaged");
                if options.json {
                    writeln!(out, "{}", json!({ "segment": file.segno, "damage": what }))?;
                } else {
                    writeln!(out, "  {what}: run `ringwell journal verify`")?;
                }
                return Ok(());
            }
        }
    }
}

fn frame(
    options: &Options,
    segno: u64,
    offset: u64,
    header: &FrameHeader,
    body: &[u8],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let group = &header.group;
    let records = Records::new(group.n, group.at, body).collect::<Result<Vec<_>, _>>()?;
    let shown =
        |record: &Record<'_>| options.number.is_none_or(|number| number_of(record) == Some(number));
    if options.number.is_some() && !records.iter().any(|(_, record)| shown(record)) {
        return Ok(());
    }
    if options.json {
        let line = json!({
            "frame": group.n, "segment": segno, "offset": offset, "bytes": header.bytes,
            "epoch": group.epoch, "at_ms": group.at.0, "last_at_ms": group.last_at.0,
            "body_bytes": group.body_len, "records": records.len(),
            "previous_hash": format!("{:016x}", group.prev_hash),
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "  frame {} at offset {offset}: {} records in {} bytes, epoch {}, {}",
            group.n,
            records.len(),
            group.body_len,
            group.epoch,
            readable(group.at)
        )?;
    }
    for (place, record) in records.iter().filter(|(_, record)| shown(record)) {
        if options.json {
            writeln!(out, "{}", as_json(*place, record))?;
        } else {
            writeln!(out, "    {}", as_text(*place, record))?;
        }
    }
    Ok(())
}

fn number_of(record: &Record<'_>) -> Option<PromoNumber> {
    match *record {
        Record::Allocate { number, .. }
        | Record::Extend { number, .. }
        | Record::Release { number, .. }
        | Record::Carry { number, .. }
        | Record::Adopt { number, .. } => Some(number),
        Record::Answer { number, .. } => number,
        Record::Hold { .. } | Record::Tick { .. } => None,
    }
}

fn as_text(place: Position, record: &Record<'_>) -> String {
    let (_, offset) = position_parts(place);
    let at = readable(record.at());
    let what = match *record {
        Record::Allocate {
            at,
            pool,
            number,
            lockout,
            was_doubted,
            visitor,
            idempotency,
            params,
            ..
        } => {
            let until = readable(at + lockout);
            let doubt = if was_doubted { ", which was in doubt" } else { "" };
            let visitor = if visitor.is_some() { ", with a visitor id" } else { "" };
            let row = idempotency.map(|row| of_batch(&row)).unwrap_or_default();
            let tail = tail(params);
            format!("allocate {number}{doubt} from pool {pool} until {until}{visitor}{row}{tail}")
        }
        Record::Extend { number, until, .. } => {
            format!("extend {number} until {}", readable(until))
        }
        Record::Release { number, until, restored, forgotten, .. } => {
            let seen = if restored.is_some() { " (which no client received)" } else { "" };
            let row = forgotten.map(|row| of_batch(&row)).unwrap_or_default();
            format!("release {number}{seen} at {}{row}", readable(until))
        }
        Record::Answer { pool, row, number: Some(number), .. } => {
            format!("answer with {number} of pool {pool} again{}", of_batch(&row))
        }
        Record::Answer { pool, row, number: None, .. } => {
            format!("answer with the overflow number of pool {pool}{}", of_batch(&row))
        }
        Record::Carry { number, pool, allocated_at, locked_until, params, .. } => {
            let (from, until) = (readable(allocated_at), readable(locked_until));
            format!("carry {number} of pool {pool} from {from} until {until}{}", tail(params))
        }
        Record::Adopt { number, pool, allocated_at, locked_until, .. } => {
            let (from, until) = (readable(allocated_at), readable(locked_until));
            format!("adopt {number} of pool {pool} from {from} until {until}")
        }
        Record::Hold { pool: Some(pool), until, .. } => {
            format!("hold pool {pool} until {}", readable(until))
        }
        Record::Hold { pool: None, until, .. } => format!("hold all until {}", readable(until)),
        Record::Tick { .. } => "tick".to_owned(),
    };
    format!("{offset:>7} {at} {what}")
}

/// Formats the row's identity, which is recorded only if the client sent an idempotency key with
/// its batch.
fn of_batch(RowKey { batch, row }: &RowKey) -> String {
    format!(", row {row} of batch {}", hex(batch))
}

/// Formats the parameters. They come from a client, so control characters are escaped to protect
/// the terminal.
fn tail([params, _]: [&[u8]; 2]) -> String {
    if params.is_empty() { String::new() } else { format!(" ({})", params.escape_ascii()) }
}

fn as_json(place: Position, record: &Record<'_>) -> Value {
    let (n, offset) = position_parts(place);
    let (kind, fields) = match *record {
        Record::Allocate {
            pool,
            number,
            lockout,
            previous,
            was_doubted,
            visitor,
            idempotency,
            params,
            ..
        } => (
            "allocate",
            json!({
                "number": number.to_string(), "pool": pool.0, "lockout_ms": lockout.0,
                "previous": previous.0, "was_doubted": was_doubted,
                "sticky": visitor.is_some(), "batch": idempotency.map(|row| hex(&row.batch)),
                "row": idempotency.map(|it| it.row), "params": params[0].escape_ascii().to_string(),
            }),
        ),
        Record::Extend { number, until, previous, .. } => (
            "extend",
            json!({ "number": number.to_string(), "until_ms": until.0, "previous": previous.0 }),
        ),
        Record::Release { number, until, previous, restored, forgotten, .. } => (
            "release",
            json!({
                "number": number.to_string(), "until_ms": until.0, "previous": previous.0,
                "allocated_at_ms": restored.map(|restored| restored.allocated_at.0),
                "batch": forgotten.map(|row| hex(&row.batch)),
                "row": forgotten.map(|row| row.row),
            }),
        ),
        Record::Answer { pool, row, number, .. } => (
            "answer",
            json!({
                "pool": pool.0, "batch": hex(&row.batch), "row": row.row,
                "number": number.map(|number| number.to_string()),
            }),
        ),
        Record::Carry { number, pool, allocated_at, locked_until, visitor, params, .. } => (
            "carry",
            json!({
                "number": number.to_string(), "pool": pool.0, "allocated_at_ms": allocated_at.0,
                "locked_until_ms": locked_until.0, "sticky": visitor.is_some(),
                "params": params[0].escape_ascii().to_string(),
            }),
        ),
        Record::Adopt { number, pool, allocated_at, locked_until, visitor, previous, .. } => (
            "adopt",
            json!({
                "number": number.to_string(), "pool": pool.0, "allocated_at_ms": allocated_at.0,
                "locked_until_ms": locked_until.0, "sticky": visitor.is_some(),
                "previous": previous.0,
            }),
        ),
        Record::Hold { pool, until, .. } => {
            ("hold", json!({ "pool": pool.map(|pool| pool.0), "until_ms": until.0 }))
        }
        Record::Tick { .. } => ("tick", json!({})),
    };
    let mut line = json!({
        "record": kind, "frame": n, "body_offset": offset, "position": place.0,
        "at_ms": record.at().0,
    });
    if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
        line.extend(fields);
    }
    line
}

fn hex(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}
