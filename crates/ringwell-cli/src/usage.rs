//! Wrong usage that clap cannot detect: an error with the exit code of clap's own errors.

use std::fmt;

/// The exit code for wrong usage, the same as clap's.
pub(crate) const WRONG_USAGE: u8 = 2;

/// An error in the arguments of a command, not in its execution.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) &'static str);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WrongUsage {}
