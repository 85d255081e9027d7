//! Logs: written to stderr, as readable lines on a terminal and as JSON otherwise.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use ringwell_config::{Log, LogFormat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The longest time that a log line waits for a reader of stderr. After a line has timed out, later
/// lines do not wait at all until stderr is writable again.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The largest write that cannot block after the kernel has reported that a pipe is writable.
const PIECE_BYTES: usize = 4096;

/// Parses `log.level`: one level, or a comma-separated list of levels per module.
///
/// # Errors
/// If the text has neither form.
pub(crate) fn filter(log: &Log) -> anyhow::Result<Targets> {
    // Silenced because a connection pool logs the same failure several times a second, and our own
    // code also logs the failure.
    let all = Targets::new()
        .with_target("sqlx_core::pool", LevelFilter::OFF)
        // Silenced because this module logs values from a database's URL, and these values may be
        // passwords.
        .with_target("sqlx_postgres::options::parse", LevelFilter::OFF);
    let filter = log.level.split(',').try_fold(all, |filter, directive| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        match directive.trim().split_once('=') {
            None => Some(filter.with_default(level(directive)?)),
            Some(("", _)) => None,
            Some((module, text)) if module.chars().all(is_name) => {
                Some(filter.with_target(module, level(text)?))
            }
            Some(_) => None,
        }
    });
    filter.with_context(|| {
        format!(
            "log.level, or RINGWELL_LOG_LEVEL, cannot be {:?}; write e.g. \"info\" or \
             \"warn,ringwell_node=debug\"",
            log.level
        )
    })
}

fn level(text: &str) -> Option<LevelFilter> {
    let is_word = text.trim().chars().all(|c| c.is_ascii_alphabetic());
    text.trim().parse().ok().filter(|_| is_word)
}

/// Makes the program log to stderr from now on.
///
/// # Errors
/// Returns the same errors as [`filter`].
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = filter(log)?;
    let is_terminal = io::stderr().is_terminal();
    let is_text = match log.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(|| LogLines);
    let lines = if is_text {
        let is_coloured = is_terminal && std::env::var_os("NO_COLOR").is_none();
        lines.with_ansi(is_coloured).boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}

/// A writer of log lines that never blocks for long. If the process that reads stderr stops
/// reading, lines are dropped and counted. Waiting for this process would also block the handling
/// of signals.
struct LogLines;

/// The state of stderr after the last log line.
struct State {
    /// Whether the last line could not be written.
    is_stuck: bool,
    /// Whether the last line was written only in part.
    is_cut: bool,
    /// The number of dropped lines that have not been reported yet.
    dropped: u64,
}

static STATE: Mutex<State> = Mutex::new(State { is_stuck: false, is_cut: false, dropped: 0 });

thread_local! {
    /// The number of dropped lines that this thread is reporting, or 0.
    static REPORTED: Cell<u64> = const { Cell::new(0) };
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let state = || STATE.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropped lines are reported before `line` is written, because the pipe may have space for
        // only one more line.
        let dropped = if REPORTED.get() == 0 { state().reportable() } else { 0 };
        if dropped > 0 {
            REPORTED.set(dropped);
            tracing::warn!(
                lines = dropped,
                "log lines were dropped, because stderr was not writable"
            );
            REPORTED.set(0);
        }
        state().write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    /// Returns the number of dropped lines, or 0 if a report cannot be written now.
    fn reportable(&mut self) -> u64 {
        let can_report = self.dropped > 0 && self.is_writable(&io::stderr().lock());
        if can_report { self.dropped } else { 0 }
    }

    fn write(&mut self, line: &[u8]) {
        let mut stderr = io::stderr().lock();
        if self.is_cut {
            self.is_cut = self.write_part(&mut stderr, b"\n") == 0;
        }
        let written = if self.is_cut { 0 } else { self.write_part(&mut stderr, line) };
        let reported = REPORTED.get();
        if written == line.len() {
            self.dropped = self.dropped.saturating_sub(reported);
        } else {
            self.is_cut |= written > 0;
            // If a report is dropped, the lines that it counts stay in `dropped` and are reported
            // later.
            self.dropped += u64::from(reported == 0);
        }
    }

    /// Writes as much of `bytes` as possible without blocking. Returns the number of bytes written.
    fn write_part(&mut self, stderr: &mut io::StderrLock<'_>, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() && self.is_writable(stderr) {
            let end = bytes.len().min(written + PIECE_BYTES);
            match stderr.write(&bytes[written..end]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        written
    }

    fn is_writable(&mut self, stderr: &io::StderrLock<'_>) -> bool {
        let wait = if self.is_stuck { Timespec::default() } else { PATIENCE };
        let mut files = [PollFd::new(stderr, PollFlags::OUT)];
        self.is_stuck = !poll(&mut files, Some(&wait)).is_ok_and(|ready| ready > 0);
        !self.is_stuck
    }
}
