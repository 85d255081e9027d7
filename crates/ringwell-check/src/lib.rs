//! Judges histories: did a server keep its promises about numbers?
//!
//! Owns the rules C1 to C11 of docs/spec/checker.md. Shares no code with the server or the load
//! generator, because shared code would repeat their mistakes. Does not depend on the command line.
//!
//! Lines are read one by one. Batches, frames and pools are kept in memory. Rows and records are
//! divided by number into temporary files, and the files are judged one after another. The time for
//! N rows is O(N log N).

mod history;
mod line;
mod read;
mod rules;
mod spill;
mod verdict;

use std::path::PathBuf;

pub use read::ReadError;
pub use verdict::{Line, Rule, Summary, Verdict, Violation};

/// The numbers are divided into parts, one for this many bytes of history. Judging a part needs
/// about this much memory.
const PART_BYTES: u64 = 64 << 20;
/// The maximum number of parts. Each part has two open files.
const PARTS_MAX: usize = 400;

/// Judges `files`, which together are one history.
///
/// # Errors
/// [`ReadError`] names the file and the line of unreadable input.
pub fn check(files: &[PathBuf]) -> Result<Verdict, ReadError> {
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |data| data.len());
    let bytes: u64 = files.iter().map(bytes).sum();
    let parts = usize::try_from(bytes / PART_BYTES + 1).unwrap_or(PARTS_MAX);
    check_in(files, parts.min(PARTS_MAX))
}

/// Like [`check`], but with the given count of parts, which affects only memory use.
fn check_in(files: &[PathBuf], parts: usize) -> Result<Verdict, ReadError> {
    let (whole, mut spill) = read::read(files, parts)?;
    let findings = rules::judge(&whole, &mut spill);
    let findings = findings.map_err(|error| ReadError::of_spill(&error))?;
    Verdict::new(&whole, &findings)
}

#[cfg(test)]
mod tests;
