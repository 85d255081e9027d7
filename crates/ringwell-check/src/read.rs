//! Turns files into facts, line by line.
//!
//! Defines which members each kind of line requires. Skips unknown members and an incomplete last
//! line, as docs/spec/history.md requires. Never keeps the text of more than one line in memory.

mod answers;
mod journals;
mod members;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use answers::Answers;
use members::{digits, need, put};

use crate::history::{Batch, Fact, Fault, Lookup, SourceLine, Version, Whole};
use crate::line::Line;
use crate::spill::Spill;

/// The version of the history format that can be read.
const VERSION: u64 = 1;

/// The reason why a history cannot be judged.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// The line number, counted from 1; 0 if the file itself cannot be read.
    pub line: u64,
    /// The fault.
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

impl ReadError {
    /// Creates the error for facts that cannot be written to temporary files or read back.
    pub(crate) fn of_spill(error: &io::Error) -> Self {
        let why = format!("cannot use a temporary file in this directory: {error}");
        Self { path: std::env::temp_dir(), line: 0, why }
    }
}

/// Reads all files into one history, and divides its rows and records into `parts` parts.
pub(crate) fn read(paths: &[PathBuf], parts: usize) -> Result<(Whole, Spill), ReadError> {
    let mut reader = Reader {
        whole: Whole { files: paths.to_vec(), ..Whole::default() },
        answers: Answers::default(),
        spill: Spill::new(parts).map_err(|error| ReadError::of_spill(&error))?,
    };
    for (file, path) in (0..).zip(paths) {
        each_line(path, |line, text| {
            let place = SourceLine { file, line };
            let fault = |why| ReadError { path: path.clone(), line, why };
            let parsed = serde_json::from_slice(text);
            let parsed: Line =
                parsed.map_err(|it| fault(format!("not a line of a history file: {it}")))?;
            if line == 1 && parsed.k != "run" {
                return Err(fault("the first line must have the kind `run`".to_owned()));
            }
            reader.whole.lines += 1;
            reader.take(place, parsed).map_err(fault)
        })?;
    }
    reader.finish().map_err(|error| ReadError::of_spill(&error))
}

/// Passes each complete line and its line number to `take`.
pub(crate) fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let failed = |line, error: &io::Error| {
        let why = format!("cannot read the file: {error}");
        ReadError { path: path.to_owned(), line, why }
    };
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

/// The facts collected so far.
struct Reader {
    whole: Whole,
    answers: Answers,
    spill: Spill,
}

impl Reader {
    /// Adds one line's fact.
    fn take(&mut self, place: SourceLine, line: Line) -> Result<(), String> {
        let Self { whole, answers, spill } = self;
        match line.k.as_str() {
            "run" => run(whole, line),
            "cfg" => pool(whole, line),
            "clk" => {
                whole.clocks.push((need(line.t, "t")?, need(line.wall_ms, "wall_ms")?));
                Ok(())
            }
            "inv" if line.op.as_deref().is_none_or(|op| op == "alloc") => {
                answers.asked(whole, spill, place, line)
            }
            "ret" | "unk" => answers.ended(whole, spill, place, line),
            "nem" => {
                let ends = line.phase.as_deref() == Some("end");
                whole.faults.push(Fault { place, t: need(line.t, "t")?, ends });
                Ok(())
            }
            "jrn" => journals::journal(whole, spill, place, line),
            "att" => lookup(whole, spill, place, line),
            "fin" => journals::state(whole, spill, place, line),
            _ => {
                whole.unknown_lines += 1;
                Ok(())
            }
        }
    }

    fn finish(mut self) -> io::Result<(Whole, Spill)> {
        let whole = &mut self.whole;
        self.answers.finish(whole, &mut self.spill)?;
        whole.clocks.sort_unstable();
        whole.faults.sort_by_key(|fault| fault.t);
        for versions in whole.pools.values_mut() {
            versions.sort_by_key(|version| version.t);
        }
        join_attempts(whole);
        Ok((self.whole, self.spill))
    }
}

/// Finds the first attempt of each repeated batch. A later attempt may get the first attempt's
/// answer. The lockouts of the numbers in that answer began at the first attempt.
fn join_attempts(whole: &mut Whole) {
    // For each idempotency key, the time of the first attempt and the count of attempts.
    let mut attempts: HashMap<Box<str>, (i64, u32)> = HashMap::new();
    for Batch { key, t, .. } in &whole.batches {
        if let Some(key) = key {
            let (since, count) = attempts.entry(key.clone()).or_insert((*t, 0));
            *since = (*since).min(*t);
            *count += 1;
        }
    }
    for batch in &mut whole.batches {
        if let Some((since, _)) = batch.key.as_ref().and_then(|key| attempts.get(key)) {
            batch.since = *since;
        }
    }
    let several = attempts.into_iter().filter(|(_, (_, count))| *count > 1);
    whole.retried = several.map(|(key, _)| key).collect();
}

fn run(whole: &mut Whole, line: Line) -> Result<(), String> {
    match need(line.v, "v")? {
        VERSION => {}
        other => {
            return Err(format!(
                "the history has format version {other}, but this program reads only version \
                 {VERSION}"
            ));
        }
    }
    whole.runs.insert(need(line.run, "run")?, line.deadline_ms);
    Ok(())
}

fn pool(whole: &mut Whole, line: Line) -> Result<(), String> {
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
    whole.pools.entry(need(line.pool, "pool")?).or_default().push(version);
    Ok(())
}

fn lookup(
    whole: &mut Whole,
    spill: &mut Spill,
    place: SourceLine,
    line: Line,
) -> Result<(), String> {
    let found = line.par.as_ref().and_then(|par| par.get("rid")).and_then(|rid| rid.as_str());
    let lookup = Lookup {
        place,
        t: need(line.t, "t")?,
        rid: need(line.rid, "rid")?.into(),
        number: digits(&need(line.number, "number")?)?,
        status: need(line.st, "st")?,
        pool: line.pool,
        found: found.map(Box::from),
        outcome: line.outcome.map(Box::from),
    };
    whole.lookups += 1;
    put(spill, lookup.number, &Fact::Lookup(lookup))
}
