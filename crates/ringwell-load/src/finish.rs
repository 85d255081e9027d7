//! Adds the parts of a history that are known only after the run: look-ups, the journal, and the
//! server's final state.
//!
//! The added lines have the format of docs/spec/history.md. The journal is passed in as the output
//! of `ringwell journal inspect --json` and `replay --json`, because this crate cannot read the
//! journal itself.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::answer;
use crate::clock::now_ns;
use crate::target::{Blocking, Target};

/// The time limit for a look-up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why a history could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// The history cannot be read or written.
    #[error("the history {}: {source}", path.display())]
    History {
        /// The history's file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line of the history, or of an added part, is invalid.
    #[error("{what}: {why}")]
    Line {
        /// The line.
        what: String,
        /// The fault.
        why: String,
    },
    /// The server does not answer a look-up.
    #[error("looking up at {target}: {source}")]
    LookUp {
        /// The endpoint.
        target: String,
        /// The error.
        source: io::Error,
    },
}

/// The results of look-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// The count of look-ups.
    pub asked: u64,
    /// The count of look-ups that returned a holder.
    pub allocated: u64,
    /// The count of look-ups with a status other than 200.
    pub refused: u64,
}

/// The server that answers the look-ups, and their count.
#[derive(Clone, Debug)]
pub struct LookUps {
    /// The endpoint.
    pub target: Target,
    /// The management token.
    pub token: String,
    /// The count of rows to look up, spread evenly over the run; 0 for all.
    pub count: usize,
}

/// A row that got a number of its own, not the overflow number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldNumber {
    rid: String,
    number: String,
    at_ms: u64,
}

/// Looks up the holders of the numbers in `history`, and appends the results to it as `att` lines.
///
/// # Errors
/// [`FinishError`]; the history then keeps the look-ups before the failed one.
pub fn look_up(history: &Path, wanted: &LookUps) -> Result<LookedUp, FinishError> {
    cut_tail(history)?;
    let held = held_rows(history)?;
    let count = if wanted.count == 0 { held.len() } else { wanted.count.min(held.len()) };
    let target = wanted.target.to_string();
    let failed = |source| FinishError::LookUp { target: target.clone(), source };
    let mut client = Client::connect(&wanted.target, &wanted.token).map_err(failed)?;
    let mut out = append(history)?;
    let mut looked_up = LookedUp::default();
    for place in 0..count {
        let row = &held[place * held.len() / count];
        let (status, answer) = client.attribution(&row.number, row.at_ms).map_err(failed)?;
        looked_up.asked += 1;
        looked_up.allocated += u64::from(answer["outcome"] == "allocated");
        looked_up.refused += u64::from(status != 200);
        let line = attribution_line(row, &target, status, &answer);
        writeln!(out, "{line}").map_err(|source| of_history(history, source))?;
    }
    out.flush().map_err(|source| of_history(history, source))?;
    Ok(looked_up)
}

fn attribution_line(row: &HeldNumber, node: &str, status: u16, answer: &Value) -> Value {
    let HeldNumber { rid, number, at_ms } = row;
    let mut line = json!({
        "k": "att", "t": now_ns(), "node": node, "rid": rid, "number": number, "at_ms": at_ms,
        "st": status,
    });
    if status != 200 {
        return line;
    }
    line["outcome"] = answer["outcome"].clone();
    if answer["outcome"] == "allocated" {
        line["pool"] = answer["ring_pool_id"].clone();
        line["allocated_at_ms"] = moment(&answer["allocated_at"]);
        line["locked_until_ms"] = moment(&answer["locked_until"]);
        line["par"] = answer["parameters"].clone();
    }
    line
}

/// Converts an RFC 3339 time to milliseconds since 1970, or any other value to `null`.
fn moment(text: &Value) -> Value {
    let time = text.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    time.map_or(Value::Null, |time| json!(time.as_millisecond()))
}

/// Appends the journal of `node` to `history`. `lines` are the output of `ringwell journal inspect
/// --json`. Returns the count of appended lines.
///
/// # Errors
/// [`FinishError`]; the history then keeps the lines that were already appended.
pub fn add_journal(history: &Path, node: &str, lines: impl BufRead) -> Result<u64, FinishError> {
    let mut shard = Value::Null;
    add(history, node, "jrn", lines, |line| {
        // Each segment begins with a line that names its shard; the lines after it belong to that
        // shard.
        if line["shard"].is_u64() {
            shard = line["shard"].clone();
        }
        line["shard"] = shard.clone();
    })
}

/// Appends the final state of `node` to `history`. `lines` are the output of
/// `ringwell journal replay --json`. Returns the count of appended lines.
///
/// # Errors
/// The same as for [`add_journal`].
pub fn add_state(history: &Path, node: &str, lines: impl BufRead) -> Result<u64, FinishError> {
    add(history, node, "fin", lines, |_| {})
}

fn add(
    history: &Path,
    node: &str,
    kind: &str,
    lines: impl BufRead,
    mut change: impl FnMut(&mut Value),
) -> Result<u64, FinishError> {
    cut_tail(history)?;
    let mut out = append(history)?;
    let mut added = 0;
    for line in lines.lines() {
        let wrong = |why: String| FinishError::Line { what: format!("{kind} line {added}"), why };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let mut line: Value =
            serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        if !line.is_object() {
            return Err(wrong("not a JSON object".to_owned()));
        }
        change(&mut line);
        line["k"] = json!(kind);
        line["node"] = json!(node);
        writeln!(out, "{line}").map_err(|source| of_history(history, source))?;
        added += 1;
    }
    out.flush().map_err(|source| of_history(history, source))?;
    Ok(added)
}

fn append(history: &Path) -> Result<BufWriter<File>, FinishError> {
    let file = OpenOptions::new().append(true).open(history);
    file.map(BufWriter::new).map_err(|source| of_history(history, source))
}

/// Removes an incomplete last line, so that no text is appended to it.
fn cut_tail(history: &Path) -> Result<(), FinishError> {
    let cut = || -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(history)?;
        let mut reader = BufReader::new(&file);
        let (mut line, mut whole) = (Vec::new(), 0);
        loop {
            line.clear();
            let got = u64::try_from(reader.read_until(b'\n', &mut line)?).unwrap_or(0);
            if !line.ends_with(b"\n") {
                return if got > 0 { file.set_len(whole) } else { Ok(()) };
            }
            whole += got;
        }
    };
    cut().map_err(|source| of_history(history, source))
}

fn of_history(path: &Path, source: io::Error) -> FinishError {
    FinishError::History { path: path.to_owned(), source }
}

/// The rows that got a number of their own (not the overflow number), in the order of their
/// answers.
fn held_rows(history: &Path) -> Result<Vec<HeldNumber>, FinishError> {
    let file = File::open(history).map_err(|source| of_history(history, source))?;
    let mut clocks: Vec<(u64, u64)> = Vec::new();
    let mut lifetimes = BTreeMap::new();
    // For each row, its pool and the time of the first attempt to send it. The row cannot have got
    // its number before that time.
    let mut asked = BTreeMap::new();
    let mut returned = Vec::new();
    for (place, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|source| of_history(history, source))?;
        let what = || format!("{} line {}", history.display(), place + 1);
        let line: Value = serde_json::from_str(&line)
            .map_err(|error| FinishError::Line { what: what(), why: error.to_string() })?;
        let number = |name: &str| line[name].as_u64().unwrap_or(0);
        let rows = line["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        match line["k"].as_str() {
            Some("clk") => clocks.push((number("t"), number("wall_ms"))),
            Some("cfg") => drop(lifetimes.insert(number("pool"), number("lifetime_ms"))),
            Some("inv") => {
                for row in rows {
                    let rid = row["rid"].as_str().unwrap_or_default().to_owned();
                    let pool = row["pool"].as_u64().unwrap_or(0);
                    asked.entry(rid).or_insert((pool, number("t")));
                }
            }
            Some("ret") => {
                let own = rows.iter().filter(|row| row["num"].is_string() && row["ovf"] != true);
                let text =
                    |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
                let own = own.map(|row| (text(row, "rid"), text(row, "num")));
                returned.push((number("t"), own.collect::<Vec<_>>()));
            }
            _ => {}
        }
    }
    clocks.sort_unstable();
    returned.sort_unstable();
    let mut held = Vec::new();
    for (t, rows) in returned {
        for (rid, number) in rows {
            let Some((pool, begun)) = asked.get(&rid) else { continue };
            let took_ms = t.saturating_sub(*begun).div_ceil(1_000_000);
            // If a batch took longer than the pool's lifetime, the lockout may already have ended,
            // and the number may have gone to another row.
            if lifetimes.get(pool).is_some_and(|lifetime| took_ms + 1 < *lifetime) {
                held.push(HeldNumber { rid, number, at_ms: wall_ms(&clocks, t) });
            }
        }
    }
    Ok(held)
}

/// Converts the monotonic time `t` to wall-clock time, rounded up. Uses the last line before `t`
/// that contains the times of both clocks.
fn wall_ms(clocks: &[(u64, u64)], t: u64) -> u64 {
    let later = clocks.partition_point(|(at, _)| *at <= t);
    let (at, wall) = clocks.get(later.saturating_sub(1)).copied().unwrap_or((t, 0));
    wall + t.saturating_sub(at).div_ceil(1_000_000)
}

/// One persistent connection for consecutive look-ups.
struct Client {
    stream: Box<dyn Blocking>,
    host: String,
    token: String,
    bytes: Vec<u8>,
}

impl Client {
    fn connect(target: &Target, token: &str) -> io::Result<Self> {
        let stream = target.resolve()?.connect_blocking(PATIENCE)?;
        let (host, token) = (target.host().to_owned(), token.to_owned());
        Ok(Self { stream, host, token, bytes: Vec::new() })
    }

    /// Looks up a number; returns the status and the body, which is `null` if it is not JSON.
    fn attribution(&mut self, number: &str, at_ms: u64) -> io::Result<(u16, Value)> {
        let Self { host, token, .. } = self;
        let request = format!(
            "GET /v1/attributions?number={number}&at={at_ms} HTTP/1.1\r\nhost: {host}\r\n\
             authorization: Bearer {token}\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes())?;
        self.bytes.clear();
        let mut part = [0; 16 * 1024];
        loop {
            let got = self.stream.read(&mut part)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.bytes.extend_from_slice(&part[..got]);
            let answer = answer::read(&self.bytes).map_err(|bad| io::Error::other(bad.0))?;
            if let Some(answer) = answer {
                let body = serde_json::from_slice(&self.bytes[answer.body]);
                return Ok((answer.status, body.unwrap_or_default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[Value]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(file.path(), text.join("\n") + "\n").unwrap();
        file
    }

    #[test]
    fn rows_with_numbers_of_their_own_are_looked_up_at_the_wall_clock_of_their_answer() {
        let ms = |ms: u64| ms * 1_000_000;
        let row = |rid: &str| json!({"pool": 1, "rid": rid, "par": ""});
        let file = history(&[
            json!({"k": "cfg", "pool": 1, "lifetime_ms": 1000}),
            json!({"k": "clk", "t": ms(100), "wall_ms": 50_000}),
            json!({"k": "clk", "t": ms(1100), "wall_ms": 51_002}),
            json!({"k": "inv", "id": "b", "t": ms(1200), "rows": [row("b-0"), row("b-1")]}),
            json!({"k": "inv", "id": "slow", "t": ms(100), "rows": [row("slow-0")]}),
            json!({"k": "ret", "id": "slow", "t": ms(1150), "rows": [
                {"rid": "slow-0", "num": "2000000009"}]}),
            json!({"k": "ret", "id": "b", "t": ms(1210) + 1, "rows": [
                {"rid": "b-0", "num": "2000000001"},
                {"rid": "b-1", "num": "9990000000", "ovf": true}]}),
        ]);
        let wanted = HeldNumber {
            rid: "b-0".to_owned(),
            number: "2000000001".to_owned(),
            at_ms: 51_002 + 111,
        };
        assert_eq!(held_rows(file.path()).unwrap(), [wanted]);
    }

    #[test]
    fn lines_of_a_journal_get_their_node_and_the_shard_of_their_segment() {
        let file = history(&[json!({"k": "run"})]);
        let dump =
            "{\"segment\":1,\"shard\":3}\n{\"frame\":1,\"segment\":1}\n{\"record\":\"tick\"}\n";
        assert_eq!(add_journal(file.path(), "a", dump.as_bytes()).unwrap(), 3);
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Value> =
            text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| line["k"] == "jrn" && line["node"] == "a"));
        assert!(lines.iter().all(|line| line["shard"] == 3), "{text}");
        assert!(add_state(file.path(), "a", "x\n".as_bytes()).is_err());
    }

    #[test]
    fn a_truncated_last_line_is_removed_before_something_is_added() {
        let file = history(&[json!({"k": "run"})]);
        let cut = format!("{}{{\"k\":\"in", std::fs::read_to_string(file.path()).unwrap());
        std::fs::write(file.path(), cut).unwrap();
        add_state(file.path(), "a", "{\"shard\":0}\n".as_bytes()).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, "{\"k\":\"run\"}\n{\"k\":\"fin\",\"node\":\"a\",\"shard\":0}\n");
    }
}
