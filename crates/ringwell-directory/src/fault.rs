//! Faults: errors in a configuration or a directory, with their positions.
//!
//! Owns the format of faults that users see. Invariant: a fault contains no key and no token.

use std::fmt;

/// One error, and where to fix it.
///
/// Displayed as `ringwell.toml:14: ring_pool[2].lifetime: must be …; write e.g. "30m"`. Entries of
/// an array of tables are counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The file's name; `None` if the error is in an environment variable, a flag or another
    /// source.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// The column in characters, counted from 1, if the line alone is not precise enough.
    pub column: Option<u32>,
    /// The field, the variable or the flag; empty if there is no single cause.
    pub field: String,
    /// The error.
    pub message: String,
    /// A suggested correction.
    pub hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            f.write_str(file)?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, ":{number}")?;
            }
            f.write_str(": ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
