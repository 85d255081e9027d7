//! Commands that only print: a token, completion scripts, the manual page.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use ringwell_directory::Token;

use crate::args::Ringwell;

/// Prints a new management token, and below it the line for the configuration.
pub(crate) fn token() -> anyhow::Result<ExitCode> {
    let token = new_token()?;
    print(format!("{}\ntoken_sha256 = [\"{}\"]\n", token.reveal(), token.hash()).as_bytes())
}

/// A token that nobody has.
pub(crate) fn new_token() -> anyhow::Result<Token> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the system has no random bytes")?;
    Ok(Token::from_random(bytes))
}

/// Prints the completion script of `shell`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Ringwell::command(), "ringwell", &mut script);
    print(&script)
}

/// Prints the manual page of the program, and below it those of its commands.
pub(crate) fn man() -> anyhow::Result<ExitCode> {
    let mut command = Ringwell::command();
    command.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for subcommand in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        clap_mangen::Man::new(subcommand.clone()).render(&mut page)?;
    }
    print(&page)
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    match io::stdout().lock().write_all(text) {
        // Whoever reads the output has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
