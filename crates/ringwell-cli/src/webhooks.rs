//! `ringwell webhooks`: receives a server's webhooks.

mod listen;
mod receiver;

use std::process::ExitCode;

pub(crate) use self::receiver::{Answering, Received, Receiver};

pub(crate) const HELP: &str = "\
Examples:
  ringwell webhooks listen --register --token-file secret
  ringwell webhooks listen --secret-file endpoint.secret \\
    --listen 127.0.0.1:9000";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Receive webhooks, verify their signatures, and print them
    #[command(after_help = listen::HELP)]
    Listen(listen::Args),
}

/// Runs the command.
///
/// # Errors
/// Returns the chosen command's errors.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Listen(args) => listen::run(args),
    }
}
