//! Counts a program's instructions with callgrind, nearly without noise.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::shell::{output, target_dir};

/// One run of a program.
pub(crate) struct Counted {
    /// All executed instructions, including those of startup and shutdown.
    pub(crate) instructions: f64,
    /// Its standard output.
    pub(crate) printed: String,
}

/// Runs `program` with the additional `arguments`.
///
/// # Errors
/// If valgrind is not installed, or the program fails.
pub(crate) fn count(
    program: &Path,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> anyhow::Result<Counted> {
    let file = target_dir().join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", file.display())).arg(program);
    let printed = output(arguments(&mut command))?;
    let profile = std::fs::read_to_string(file)?;
    let line = profile.lines().find_map(|line| line.strip_prefix("summary: "));
    let instructions = line.context("no summary in callgrind's file")?.trim().parse()?;
    Ok(Counted { instructions, printed })
}
