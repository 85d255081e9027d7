//! `ringwell calls`: exports and removes calls in a running server's call log, imports results,
//! blocks callers, and erases personal data.

mod blocks;
pub(crate) mod erase;
mod export;
mod layout;
mod outcomes;
#[cfg(feature = "parquet")]
mod parquet;
mod remove;

use std::process::ExitCode;

pub(crate) const HELP: &str = "\
Uses the server's client address (--url), even if the server has a management address. The \
management token is read from --token-file or RINGWELL_TOKEN.

Examples:
  ringwell calls export --since 24h --format csv >calls.csv
  ringwell calls export --since 2026-11-01T00:00:00Z \\
    --format google-clicks >upload.csv
  ringwell calls outcomes sales.csv
  ringwell calls block '+1900*' --answer busy";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print calls as JSON lines or CSV, or conversions in the formats of advertising systems
    #[command(after_help = export::HELP)]
    Export(export::Args),
    /// Remove a caller or a visitor from the call log
    #[command(after_help = erase::HELP)]
    Erase(erase::Args),
    /// Remove calls for good
    #[command(after_help = remove::HELP)]
    Remove(remove::Args),
    /// Read call results from a CSV file, and report them to the server
    #[command(after_help = outcomes::HELP)]
    Outcomes(outcomes::Args),
    /// Block a caller
    #[command(after_help = blocks::HELP)]
    Block(blocks::Add),
    /// Unblock a caller
    Unblock(blocks::Remove),
    /// List the blocked callers
    Blocks(blocks::List),
}

/// Runs the command.
///
/// # Errors
/// Returns the chosen command's errors.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Export(args) => export::run(args),
        Command::Erase(args) => erase::run(args),
        Command::Remove(args) => remove::run(args),
        Command::Outcomes(args) => outcomes::run(args),
        Command::Block(args) => blocks::add(args),
        Command::Unblock(args) => blocks::remove(args),
        Command::Blocks(args) => blocks::list(args),
    }
}
