//! Functions that write to stdout and stderr, and that format counts.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::Value;

/// Writes to stdout.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    match io::stdout().lock().write_all(text) {
        // An error is ignored if the program that reads the output has closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to stdout. A failure is ignored: the command's work matters more than the line.
pub(crate) fn print_line(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Writes an error to stderr. If the write fails, only the exit code reports the error.
pub(crate) fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr(), "error: {text}");
}

/// Writes a line about a command in progress to stderr, like [`print_error`].
pub(crate) fn print_note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Formats a count, such as `1 call` or `2 calls`.
pub(crate) fn counted(count: u64, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// Prints an answer, either as received or as text.
pub(crate) fn say(
    json: bool,
    answer: &Value,
    text: impl FnOnce() -> String,
) -> anyhow::Result<ExitCode> {
    let text = if json { serde_json::to_string_pretty(answer)? + "\n" } else { text() };
    print(text.as_bytes())
}
