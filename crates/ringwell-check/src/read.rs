//! From files to facts, line by line.
//!
//! Owns what a line must have to be understood. Passes over what it does not know and over a last
//! line without its end, as docs/spec/history.md wants it. Never holds more than one line as text.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::history::{
    Answer, Asked, Batch, End, Fault, Frame, Got, Held, History, Kind, Lookup, Place, Record,
    Segment, Version, What,
};
use crate::line::{Line, Row};

/// The format that this reads.
const VERSION: u64 = 1;

/// Why a history cannot be judged.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; 0 if the file as a whole cannot be read.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.why),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.why),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads all files into one history.
pub(crate) fn read(paths: &[PathBuf]) -> Result<History, ReadError> {
    let mut history = History { files: paths.to_vec(), ..History::default() };
    for (file, path) in paths.iter().enumerate() {
        each_line(path, |line, text| {
            let place = Place { file, line };
            let fault = |why| ReadError { path: path.clone(), line, why };
            let parsed: Line = serde_json::from_slice(text).map_err(|it| fault(it.to_string()))?;
            if line == 1 && parsed.k != "run" {
                return Err(fault("a history begins with a line of kind `run`".to_owned()));
            }
            history.lines += 1;
            take(&mut history, place, parsed).map_err(fault)
        })?;
    }
    history.clocks.sort_unstable();
    history.faults.sort_by_key(|fault| fault.t);
    for versions in history.pools.values_mut() {
        versions.sort_by_key(|version| version.t);
    }
    join_attempts(&mut history);
    Ok(history)
}

/// An answer to a later attempt may be that of the first one, whose lockouts are older.
fn join_attempts(history: &mut History) {
    let mut first: HashMap<&str, i64> = HashMap::new();
    for Batch { key, t, .. } in &history.batches {
        if let Some(key) = key {
            first.entry(key).and_modify(|first| *first = (*first).min(*t)).or_insert(*t);
        }
    }
    let since = |batch: &Batch| batch.key.as_deref().map_or(batch.t, |key| first[key]);
    let since: Vec<i64> = history.batches.iter().map(since).collect();
    for (batch, since) in history.batches.iter_mut().zip(since) {
        batch.since = since;
    }
}

/// Gives each whole line to `take`, with its number.
pub(crate) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let failed =
        |line, error: &io::Error| ReadError { path: path.to_owned(), line, why: error.to_string() };
    let mut file = BufReader::new(File::open(path).map_err(|error| failed(0, &error))?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        file.read_until(b'\n', &mut text).map_err(|error| failed(line, &error))?;
        match text.strip_suffix(b"\n") {
            Some(whole) => take(line, whole)?,
            None => break,
        }
    }
    Ok(())
}

/// Adds one line's fact.
fn take(history: &mut History, place: Place, line: Line) -> Result<(), String> {
    match line.k.as_str() {
        "run" => run(history, line),
        "cfg" => pool(history, line),
        "clk" => {
            history.clocks.push((need(line.t, "t")?, need(line.wall_ms, "wall_ms")?));
            Ok(())
        }
        "inv" if line.op.as_deref().is_none_or(|op| op == "alloc") => batch(history, place, line),
        "ret" => {
            let answer = answer(&line)?;
            end(history, place, line, Some(answer))
        }
        "unk" => end(history, place, line, None),
        "nem" => {
            let ends = line.phase.as_deref() == Some("end");
            history.faults.push(Fault { place, t: need(line.t, "t")?, ends });
            Ok(())
        }
        "jrn" => journal(history, place, line),
        "att" => lookup(history, place, line),
        "fin" => state(history, place, line),
        _ => {
            history.unknown_lines += 1;
            Ok(())
        }
    }
}

fn run(history: &mut History, line: Line) -> Result<(), String> {
    match need(line.v, "v")? {
        VERSION => {}
        other => return Err(format!("this is format {other}, and only {VERSION} is known here")),
    }
    history.runs.insert(need(line.run, "run")?, line.deadline_ms);
    Ok(())
}

fn pool(history: &mut History, line: Line) -> Result<(), String> {
    let ranges: Vec<(String, String)> =
        serde_json::from_value(need(line.numbers, "numbers")?).map_err(|it| it.to_string())?;
    let ranges: Result<_, String> =
        ranges.iter().map(|(first, last)| Ok((digits(first)?, digits(last)?))).collect();
    let version = Version {
        t: need(line.t, "t")?,
        lifetime_ms: need(line.lifetime_ms, "lifetime_ms")?,
        overflow: line.overflow.as_deref().map(digits).transpose()?,
        ranges: ranges?,
    };
    history.pools.entry(need(line.pool, "pool")?).or_default().push(version);
    Ok(())
}

fn batch(history: &mut History, place: Place, line: Line) -> Result<(), String> {
    let asked = |row: Row| {
        Ok(Asked { pool: need(row.pool, "rows[].pool")?, rid: need(row.rid, "rows[].rid")? })
    };
    let rows: Result<Vec<_>, String> = need(line.rows, "rows")?.into_iter().map(asked).collect();
    let t = need(line.t, "t")?;
    history.batches.push(Batch {
        place,
        id: need(line.id, "id")?,
        t,
        since: t,
        key: line.key,
        deadline_ms: line.deadline_ms,
        rows: rows?,
    });
    Ok(())
}

fn answer(line: &Line) -> Result<Answer, String> {
    let got = |row: &Row| {
        let what = match (&row.num, &row.err) {
            (Some(number), _) if row.ovf => What::Overflow(digits(number)?),
            (Some(number), _) => What::Own(digits(number)?),
            (None, Some(error)) => What::Error(error.clone()),
            (None, None) => return Err("a row has neither `num` nor `err`".to_owned()),
        };
        Ok(Got { rid: row.rid.clone(), what })
    };
    let rows: Result<Vec<_>, String> = line.rows.iter().flatten().map(got).collect();
    Ok(Answer { status: need(line.st, "st")?, bad: line.bad.clone(), rows: rows? })
}

fn end(
    history: &mut History,
    place: Place,
    line: Line,
    answer: Option<Answer>,
) -> Result<(), String> {
    let end = End { place, t: need(line.t, "t")?, answer };
    history.ends.entry(need(line.id, "id")?).or_default().push(end);
    Ok(())
}

fn journal(history: &mut History, place: Place, line: Line) -> Result<(), String> {
    let owner = (line.node.clone().unwrap_or_default(), need(line.shard, "shard")?);
    let journal = history.journals.entry(owner).or_default();
    if line.record.is_some() {
        let record = Record {
            place,
            frame: need(line.frame, "frame")?,
            position: need(line.position, "position")?,
            at: need(line.at_ms, "at_ms")?,
            kind: kind(&line)?,
        };
        journal.records.push(record);
    } else if let Some(number) = line.frame {
        let at = need(line.at_ms, "at_ms")?;
        journal.frames.push(Frame {
            place,
            number,
            epoch: need(line.epoch, "epoch")?,
            at,
            last_at: line.last_at_ms.unwrap_or(at),
            records: need(line.records, "records")?,
            names_the_one_before: line.previous_hash.is_some_and(|hash| hash.len() == 16),
        });
    } else if line.segment.is_some() && line.first_frame.is_some() {
        journal.segments.push(Segment {
            place,
            journal: need(line.journal, "journal")?,
            first_frame: need(line.first_frame, "first_frame")?,
            epoch: need(line.epoch, "epoch")?,
        });
    } else {
        // What else a dump says is that, and where, it ends before its time.
        journal.damaged = true;
    }
    Ok(())
}

fn kind(line: &Line) -> Result<Kind, String> {
    let number = || digits(line.number.as_deref().ok_or("`number` is missing")?);
    let rid = line.params.as_deref().and_then(rid_in);
    let until = || need(line.until_ms, "until_ms");
    Ok(match line.record.as_deref() {
        Some("allocate") => Kind::Allocate {
            number: number()?,
            pool: need(line.pool, "pool")?,
            lockout: need(line.lockout_ms, "lockout_ms")?,
            rid,
        },
        Some("extend") => Kind::Until { number: number()?, until: until()?, ends: false },
        Some("release") => Kind::Until { number: number()?, until: until()?, ends: true },
        Some("carry") => Kind::Carry {
            number: number()?,
            pool: need(line.pool, "pool")?,
            allocated: need(line.allocated_at_ms, "allocated_at_ms")?,
            until: need(line.locked_until_ms, "locked_until_ms")?,
            rid,
        },
        Some("hold") => Kind::Hold { pool: line.pool, until: until()? },
        _ => Kind::Other,
    })
}

/// The parameter `rid` of a query.
fn rid_in(params: &str) -> Option<String> {
    params.split('&').find_map(|part| part.strip_prefix("rid=")).map(str::to_owned)
}

fn lookup(history: &mut History, place: Place, line: Line) -> Result<(), String> {
    let found = line.par.as_ref().and_then(|par| par.get("rid")).and_then(|rid| rid.as_str());
    history.lookups.push(Lookup {
        place,
        t: need(line.t, "t")?,
        rid: need(line.rid, "rid")?,
        number: digits(&need(line.number, "number")?)?,
        status: need(line.st, "st")?,
        pool: line.pool,
        found: found.map(str::to_owned),
        outcome: line.outcome,
    });
    Ok(())
}

fn state(history: &mut History, place: Place, line: Line) -> Result<(), String> {
    let owner = (line.node.unwrap_or_default(), need(line.shard, "shard")?);
    let state = history.states.entry(owner).or_default();
    let Some(number) = line.number else {
        let count = line.numbers.and_then(|numbers| numbers.as_u64());
        state.count = Some((place, need(count, "numbers")?));
        return Ok(());
    };
    state.numbers.push(Held {
        place,
        number: digits(&number)?,
        pool: line.pool,
        allocated: need(line.allocated_at_ms, "allocated_at_ms")?,
        until: need(line.locked_until_ms, "locked_until_ms")?,
    });
    Ok(())
}

fn need<T>(member: Option<T>, name: &str) -> Result<T, String> {
    member.ok_or_else(|| format!("`{name}` is missing"))
}

fn digits(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|_| text.len() == 10 && text.is_ascii());
    number.ok_or_else(|| format!("`{text}` is no number of ten digits"))
}
