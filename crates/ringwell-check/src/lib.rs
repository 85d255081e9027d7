//! Judges histories: did a server hand numbers out as it promised?
//!
//! Owns the rules C1 to C11 of docs/spec/checker.md. Shares no code with the server, nor with the
//! load generator: a judge that does repeats their mistakes. Knows nothing of command lines.
//!
//! Lines are read one by one; what is kept of them are facts, some hundred bytes a row. Time is
//! O(N log N) in the rows.

mod history;
mod line;
mod read;
mod rules;
mod verdict;

use std::path::PathBuf;

pub use read::ReadError;
pub use verdict::{Line, Rule, Summary, Verdict, Violation};

/// Judges the history that stands in `files` together.
///
/// # Errors
/// [`ReadError`] names file and line of what cannot be read.
pub fn check(files: &[PathBuf]) -> Result<Verdict, ReadError> {
    let history = read::read(files)?;
    let findings = rules::judge(&history);
    Verdict::new(&history, &findings)
}

#[cfg(test)]
mod tests;
