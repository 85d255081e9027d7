//! Commands that only print: completion scripts, and the manual page.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Ringwell;
use crate::man;
use crate::print::print;

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
