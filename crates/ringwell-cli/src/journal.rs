//! `ringwell journal`: inspects journals without changing them, and erases parameters in them.
//!
//! Opens every file read-only, except in `erase`. Implements no allocation rules: `replay` only
//! tracks the numbers' states, so that they can be compared with a server's answers.

pub(crate) mod erase;
mod files;
mod inspect;
mod replay;
mod verify;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use self::files::BACKUP_LIST;

/// Check and read journals, or erase parameters in them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show segments, frames and records.
    Inspect(inspect::Options),
    /// Check every frame and snapshot; exit code 1 if one of them is damaged.
    Verify(verify::Options),
    /// Overwrite parameters of allocations in a stopped server's journals
    #[command(after_help = erase::HELP)]
    Erase(erase::Options),
    /// Show the state that results from replaying the journal: each number's newest allocation, and
    /// a hash of all these allocations
    Replay(replay::Options),
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no journal, or it cannot be read. Damage is reported in the output, not as an error.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = match &args.command {
        Command::Inspect(options) => inspect::run(options, &mut out),
        Command::Verify(options) => verify::run(options, &mut out),
        Command::Erase(options) => erase::run(options, &mut out),
        Command::Replay(options) => replay::run(options, &mut out),
    };
    let flushed = out.flush().map_err(anyhow::Error::from);
    match result.and_then(|code| flushed.map(|()| code)) {
        // The program that reads the output has closed the pipe.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        other => other,
    }
}

/// Checks whether every journal and snapshot in a data directory is sound, and writes the findings
/// to `out`.
///
/// # Errors
/// If there is no journal, or it cannot be read.
pub(crate) fn verify_directory(path: &Path, out: &mut impl Write) -> anyhow::Result<bool> {
    verify::directory(path, out)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
