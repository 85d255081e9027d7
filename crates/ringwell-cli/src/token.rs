//! `ringwell token`: makes a management token.

use std::process::ExitCode;

use anyhow::Context;
use ringwell_directory::Token;

use crate::print::{print, print_note};

/// Prints a new management token. Only the secret goes to stdout, so that it can be piped into a
/// secret store. An explanation and the lines for the server's configuration go to stderr.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let token = new_token()?;
    print_note(
        "# The secret, for clients (`Authorization: Bearer SECRET`). It is not shown again:",
    );
    let printed = print(format!("{}\n", token.reveal()).as_bytes());
    print_note(
        "# The setting, for the server's configuration; the secret cannot be computed from it:",
    );
    print_note(format_args!("[management]\ntoken_sha256 = [\"{}\"]", token.hash()));
    printed
}

/// Makes a random token.
pub(crate) fn new_token() -> anyhow::Result<Token> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the operating system provides no random bytes")?;
    Ok(Token::from_random(bytes))
}
