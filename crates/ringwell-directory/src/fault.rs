//! Faults: what is wrong with a configuration or a directory, and where.
//!
//! Owns the form in which people read them. Invariant: a fault shows no key and no token.

use std::fmt;

/// One thing that is wrong, and where to mend it.
///
/// Reads as `ringwell.toml:14: ring_pool[2].lifetime: must be …; write e.g. "30m"`. Tables of a
/// list are counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named; `None` for a variable, a flag or what came from no file.
    pub file: Option<String>,
    /// The line, counted from 1.
    pub line: Option<u32>,
    /// The column in characters, counted from 1, where the line alone does not say enough.
    pub column: Option<u32>,
    /// The field, the variable or the flag; empty if none is to blame.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
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
