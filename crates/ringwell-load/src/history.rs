//! Writes a client's view of a run line by line, in the format of docs/spec/history.md.
//!
//! All threads share one [`History`], but each has its own [`Scribe`] with a buffer, so the order
//! of the lines in the file is undefined.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::BadAnswer;
use crate::clock;
use crate::pools::Pool;
use crate::request::Asked;
use crate::tally::Failure;

/// The format's version.
const VERSION: u32 = 1;
/// The count of buffered bytes at which a [`Scribe`] writes its lines to the history.
const BUFFER_BYTES: usize = 64 * 1024;

/// A history that is being written.
#[derive(Debug)]
pub(crate) struct History {
    /// The prefix of all batch ids of this run.
    run: String,
    file: Mutex<BufWriter<File>>,
}

/// The contents of a history's first line.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    pub(crate) mode: &'static str,
    pub(crate) nodes: Vec<String>,
    pub(crate) deadline_ms: Option<u64>,
}

impl History {
    /// Creates the file with its first lines: the run, the pools and the clocks.
    pub(crate) fn create(path: &Path, heading: &Heading, pools: &[Pool]) -> io::Result<Self> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let run = format!("{:08x}", u32::from_be_bytes(bytes));
        let file = BufWriter::new(File::create(path)?);
        let history = Self { run, file: Mutex::new(file) };
        let t = clock::now_ns();
        let by = concat!("ringwell load ", env!("CARGO_PKG_VERSION"));
        let Heading { mode, nodes, deadline_ms } = heading;
        let mut line = json!({
            "k": "run", "v": VERSION, "t": t, "run": history.run, "by": by, "mode": mode,
            "nodes": nodes,
        });
        if let Some(ms) = deadline_ms {
            line["deadline_ms"] = json!(ms);
        }
        history.line(&line)?;
        for pool in pools {
            history.line(&config_line(pool, t))?;
        }
        history.clocks()?;
        Ok(history)
    }

    /// Records the times of the monotonic clock and the wall clock.
    pub(crate) fn clocks(&self) -> io::Result<()> {
        self.line(&json!({"k": "clk", "t": clock::now_ns(), "wall_ms": clock::wall_ms()}))
    }

    /// Writes the last lines. Must be called after all scribes have ended.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.clocks()?;
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }

    fn line(&self, line: &Value) -> io::Result<()> {
        self.append(format!("{line}\n").as_bytes())
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        // The lock is used even if a thread panicked while it held the lock. At worst, the file
        // then ends with half a line, and the run fails in any case.
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(lines)
    }
}

fn config_line(pool: &Pool, t: u64) -> Value {
    let last = pool.first_number.plus(pool.numbers.max(1) - 1);
    let mut line = json!({
        "k": "cfg", "t": t, "pool": pool.id, "ver": 1, "lifetime_ms": pool.lifetime_ms,
        "numbers": [[pool.first_number.to_string(), last.to_string()]],
    });
    if let Some(overflow) = pool.overflow_number {
        line["overflow"] = json!(overflow.to_string());
    }
    line
}

/// One attempt to send a batch.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    /// The id of the batch's first attempt, which is the idempotency key of all attempts.
    pub(crate) key: String,
    pub(crate) asked: Vec<Asked>,
    pub(crate) number: u32,
}

#[derive(Serialize)]
struct Inv<'a> {
    k: &'static str,
    id: &'a str,
    t: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
    op: &'static str,
    node: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(rename = "try")]
    number: u32,
    rows: Vec<AskedRow<'a>>,
}

#[derive(Serialize)]
struct AskedRow<'a> {
    pool: u64,
    rid: &'a str,
    par: &'a str,
}

/// Writes the history lines of one thread.
#[derive(Debug)]
pub(crate) struct Scribe<'a> {
    history: &'a History,
    thread: usize,
    next: u64,
    /// Whether batches are sent with an `Idempotency-Key`.
    has_keys: bool,
    lines: Vec<u8>,
}

impl<'a> Scribe<'a> {
    pub(crate) fn new(history: &'a History, thread: usize, has_keys: bool) -> Self {
        Self { history, thread, next: 0, has_keys, lines: Vec::new() }
    }

    /// Returns an id that no other attempt has.
    pub(crate) fn next_id(&mut self) -> String {
        let id = format!("{}-{}-{}", self.history.run, self.thread, self.next);
        self.next += 1;
        id
    }

    /// Records an attempt. Must be called before the first byte of the attempt is sent.
    pub(crate) fn invoked(
        &mut self,
        attempt: &Attempt,
        t: u64,
        due: Option<u64>,
        node: &str,
    ) -> io::Result<()> {
        let rows = attempt.asked.iter();
        let rows = rows.map(|Asked { pool, rid, par }| AskedRow { pool: *pool, rid, par });
        let line = Inv {
            k: "inv",
            id: &attempt.id,
            t,
            due,
            op: "alloc",
            node,
            key: self.has_keys.then_some(attempt.key.as_str()),
            number: attempt.number,
            rows: rows.collect(),
        };
        self.line(&line)
    }

    /// Records an answer. Must be called after the last byte of the answer has arrived.
    pub(crate) fn returned(
        &mut self,
        attempt: &Attempt,
        t: u64,
        status: u16,
        body: &[u8],
    ) -> io::Result<()> {
        let mut line = json!({"k": "ret", "id": attempt.id, "t": t, "st": status});
        if status == 200 {
            match rows(body) {
                Ok(rows) => line["rows"] = Value::Array(rows),
                Err(why) => line["bad"] = Value::String(why),
            }
        }
        self.line(&line)
    }

    /// Records that the attempt will get no answer.
    pub(crate) fn unknown(&mut self, attempt: &Attempt, t: u64, why: Failure) -> io::Result<()> {
        let why = match why {
            Failure::Refused => "refused",
            Failure::Reset | Failure::Bad => "reset",
            Failure::Timeout => "timeout",
            Failure::End => "end",
        };
        self.line(&json!({"k": "unk", "id": attempt.id, "t": t, "why": why}))
    }

    /// Records an answer that is not valid HTTP.
    pub(crate) fn unreadable(
        &mut self,
        attempt: &Attempt,
        t: u64,
        bad: BadAnswer,
    ) -> io::Result<()> {
        self.line(&json!({"k": "ret", "id": attempt.id, "t": t, "st": 200, "bad": bad.0}))
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, line)?;
        self.lines.push(b'\n');
        if self.lines.len() >= BUFFER_BYTES { self.hand_over() } else { Ok(()) }
    }

    /// Writes the buffered lines to the history.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        self.history.append(&self.lines)?;
        self.lines.clear();
        Ok(())
    }
}

/// Converts an answer's rows to the history format.
fn rows(body: &[u8]) -> Result<Vec<Value>, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let rows = answer["responses"].as_array().ok_or("no responses")?;
    Ok(rows.iter().map(row).collect())
}

fn row(row: &Value) -> Value {
    let mut line = serde_json::Map::new();
    if let Some(rid) = row["request_id"].as_str() {
        line.insert("rid".to_owned(), json!(rid));
    }
    if let Some(number) = row["promo_number"].as_str() {
        line.insert("num".to_owned(), json!(number));
        if row["overflow"] == true {
            line.insert("ovf".to_owned(), json!(true));
        }
    } else {
        line.insert("err".to_owned(), json!(row["error_class"].as_str().unwrap_or("?")));
    }
    Value::Object(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_recorded_in_the_documented_format() {
        let body = br#"{"responses":[
            {"request_id":"a-0","promo_number_formatted":"200-000-0000",
             "promo_number":"2000000000","tracking_url":""},
            {"request_id":"a-1","promo_number":"9990000000","overflow":true},
            {"request_id":"a-2","error_class":"InvalidKey","message":"x"}, {}]}"#;
        let wanted = json!([
            {"rid": "a-0", "num": "2000000000"},
            {"rid": "a-1", "num": "9990000000", "ovf": true},
            {"rid": "a-2", "err": "InvalidKey"}, {"err": "?"}]);
        assert_eq!(Value::Array(rows(body).unwrap()), wanted);
        assert_eq!(rows(b"{}").unwrap_err(), "no responses");
        assert!(rows(b"{").is_err());
    }
}
