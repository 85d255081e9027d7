//! A file of changes that are waiting to be written to the call log: `calls-waiting.jsonl` in the
//! data directory.
//!
//! The file exists only while the log's database cannot store the changes. Changes in the file
//! survive a restart of the process. Invariant: after `keep` has succeeded, the changes remain in
//! the file until the database contains them. Applying a change a second time has no effect.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringwell_core::Millis;
use ringwell_store::file_exists;
use serde::{Deserialize, Serialize};

use super::change::{CallChange, ReportedEvent};
use crate::attribution::Attribution;
use crate::call::{CallEvent, EventKind};
use crate::caller::Caller;
use crate::provider::Stir;

/// The first line, which contains the version of the format.
const HEAD: &str = "{\"calls_waiting\":1}";

/// An open backlog file.
#[derive(Debug)]
pub(super) struct Backlog {
    path: PathBuf,
    /// The count of changes in the file that are not in the database yet.
    count: usize,
}

/// A change as a line of JSON. Times are in milliseconds since 1970.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    account: String,
    provider: String,
    provider_call: String,
    events: Vec<Event>,
    seen: Option<u64>,
    number: Option<String>,
    caller: Option<Caller>,
    destination: Option<String>,
    stir: Option<Stir>,
    attribution: Option<Attribution>,
    looked_up: Option<(Option<String>, u64)>,
    blocked: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    key: String,
    kind: EventKind,
    at: u64,
    talk_seconds: Option<u32>,
    received: u64,
}

impl From<&CallChange> for Line {
    fn from(change: &CallChange) -> Self {
        let CallChange {
            account,
            provider,
            provider_call,
            events,
            seen,
            number,
            caller,
            destination,
            stir,
            attribution,
            looked_up,
            blocked,
        } = change.clone();
        let event = |ReportedEvent { event, received }| {
            let CallEvent { key, kind, at, talk_seconds } = event;
            Event { key, kind, at: at.0, talk_seconds, received: received.0 }
        };
        Self {
            account,
            provider,
            provider_call,
            events: events.into_iter().map(event).collect(),
            seen: seen.map(|at| at.0),
            number,
            caller,
            destination,
            stir,
            attribution,
            looked_up: looked_up.map(|(number, at)| (number, at.0)),
            blocked,
        }
    }
}

impl From<Line> for CallChange {
    fn from(line: Line) -> Self {
        let event = |Event { key, kind, at, talk_seconds, received }| {
            let event = CallEvent { key, kind, at: Millis(at), talk_seconds };
            ReportedEvent { event, received: Millis(received) }
        };
        Self {
            account: line.account,
            provider: line.provider,
            provider_call: line.provider_call,
            events: line.events.into_iter().map(event).collect(),
            seen: line.seen.map(Millis),
            number: line.number,
            caller: line.caller,
            destination: line.destination,
            stir: line.stir,
            attribution: line.attribution,
            looked_up: line.looked_up.map(|(number, at)| (number, Millis(at))),
            blocked: line.blocked,
        }
    }
}

impl Backlog {
    /// Opens the file at `path` and returns the changes that an earlier process left there. Changes
    /// that cannot be parsed are reported and moved to another file.
    ///
    /// # Errors
    /// If the file cannot be read, or `path` is not a file.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<CallChange>)> {
        let empty = Self { path: path.to_owned(), count: 0 };
        let is_there = file_exists(path).map_err(|error| {
            let advice = "Once this is corrected, restart the server. Until then, call reports \
                          wait only in memory, and are lost if the server stops before they are \
                          in the call log";
            io::Error::new(error.kind(), format!("{error}. {advice}"))
        });
        if !is_there? {
            return Ok((empty, Vec::new()));
        }
        let whole = fs::read(path)?;
        // If the process ended while it wrote the last line, the line is incomplete. `keep` did not
        // return success for such a line.
        let end = whole.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let incomplete = whole[end..].strip_prefix(b"\n").unwrap_or(&whole[end..]);
        if !incomplete.is_empty() {
            let (bytes, file) = (incomplete.len(), path.display());
            tracing::info!(bytes, %file, "the last report in this file is incomplete and is left \
                out: the process ended while writing it");
        }
        let lines = whole[..end].split(|byte| *byte == b'\n');
        let (mut changes, mut unread) = (Vec::new(), Vec::new());
        for line in lines.filter(|line| !line.is_empty() && *line != HEAD.as_bytes()) {
            match serde_json::from_slice::<Line>(line) {
                Ok(line) => changes.push(line.into()),
                Err(_) => unread.push(line),
            }
        }
        if !unread.is_empty() {
            let aside = path.with_extension("unread");
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o600).open(&aside)?;
            file.write_all(&[&unread.join(&b'\n')[..], b"\n"].concat())?;
            file.sync_data()?;
            tracing::warn!(
                lines = unread.len(),
                file = %aside.display(),
                "some waiting call reports cannot be read, and were moved to this file, which \
                 may contain callers' numbers"
            );
        }
        if changes.is_empty() {
            fs::remove_file(path)?;
        }
        Ok((Self { count: changes.len(), ..empty }, changes))
    }

    /// Appends `lines` to the file and flushes the file. `lines` contains `count` changes in the
    /// format of [`Self::lines`].
    ///
    /// # Errors
    /// If the changes cannot be written completely. Some of them may be in the file. The error
    /// names the file.
    pub(super) fn keep(&mut self, lines: &[u8], count: usize) -> io::Result<()> {
        let is_new = !file_exists(&self.path)?;
        self.append(lines, is_new).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })?;
        self.count += count;
        Ok(())
    }

    fn append(&self, lines: &[u8], is_new: bool) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).mode(0o600).open(&self.path)?;
        // Writes a line break first, in case an earlier attempt left an incomplete line.
        let begin = if is_new { HEAD } else { "" };
        file.write_all(&[begin.as_bytes(), b"\n", lines].concat())?;
        file.sync_data()?;
        if is_new && let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Converts changes to their lines in the file.
    pub(super) fn lines<'a>(changes: impl Iterator<Item = &'a CallChange>) -> Vec<u8> {
        let mut lines = Vec::new();
        for change in changes {
            // Serialization fails only for maps whose keys are not strings, and a change contains
            // no maps of this kind.
            let _ = serde_json::to_writer(&mut lines, &Line::from(change));
            lines.push(b'\n');
        }
        lines
    }

    /// Whether the file at the path is gone although it contained changes that are not in the
    /// database yet. Those changes must be written to a new file.
    pub(super) fn is_lost(&mut self) -> bool {
        let is_lost = self.count > 0 && !matches!(file_exists(&self.path), Ok(true));
        if is_lost {
            self.count = 0;
        }
        is_lost
    }

    /// Records that the database now contains `count` of the file's changes. Removes the file once
    /// the database contains all of them.
    ///
    /// # Errors
    /// If the file cannot be removed. Its changes are then applied again after a restart, without
    /// effect.
    pub(super) fn stored(&mut self, count: usize) -> io::Result<()> {
        // If the file was removed and a new one was created, `count` may include changes that are
        // not in the new file.
        self.count = self.count.saturating_sub(count);
        if count > 0 && self.count == 0 && file_exists(&self.path)? {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

/// Checks, without changing anything, whether reports can be kept in the file at `path`. The file
/// may be missing.
///
/// # Errors
/// If the file cannot be written, or `path` is not a file.
pub fn examine_waiting(path: &Path) -> io::Result<()> {
    if file_exists(path)? {
        let opened = OpenOptions::new().read(true).append(true).open(path);
        opened.map_err(|error| {
            let text = format!("cannot write {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
