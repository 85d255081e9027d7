//! Commands that only print: a token, completion scripts, and the manual page.

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use ringwell_directory::Token;

use crate::args::Ringwell;
use crate::man;
use crate::print::print;

/// Prints a new management token. Only the secret goes to stdout, so that it can be piped into a
/// secret store. An explanation and the lines for the server's configuration go to stderr.
pub(crate) fn token() -> anyhow::Result<ExitCode> {
    let token = new_token()?;
    eprintln!("# The secret, for clients (`Authorization: Bearer SECRET`). It is not shown again:");
    let printed = print(format!("{}\n", token.reveal()).as_bytes());
    eprintln!(
        "# The setting, for the server's configuration; the secret cannot be computed from it:"
    );
    eprintln!("[management]\ntoken_sha256 = [\"{}\"]", token.hash());
    printed
}

/// Makes a random token.
pub(crate) fn new_token() -> anyhow::Result<Token> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the operating system provides no random bytes")?;
    Ok(Token::from_random(bytes))
}

/// Prints the completion script for `shell`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Ringwell::command(), "ringwell", &mut script);
    print(&script)
}

/// Prints the manual page.
pub(crate) fn man() -> anyhow::Result<ExitCode> {
    print(&man::page()?)
}
