//! `ringwell man`: one manual page with every command and its options.
//!
//! The texts come from the command line's definition, so that the page and `--help` agree. There is
//! only one page, because separate pages that refer to each other are useful only if all of them
//! are installed.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::Ringwell;

/// The heading under which `clap_mangen` puts a command's options.
const OPTIONS: &str = ".SH OPTIONS\n";

/// Renders the page in roff.
///
/// # Errors
/// If a section cannot be written, which does not happen because the page is in memory.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut command = Ringwell::command().disable_help_subcommand(true);
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("Ringwell");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;

    let mut text = Roff::new();
    text.control("SH", ["SYNOPSIS"]);
    for leaf in leaves(&command) {
        text.text([roman(usage(leaf))]).control("br", []);
    }
    page.extend(text.to_roff().bytes());
    man.render_description_section(&mut page)?;
    page.extend(verbatim(&command));

    page.extend(b".SH COMMANDS\n");
    for below in command.get_subcommands() {
        describe(below, &mut page)?;
    }
    Ok(page)
}

/// Lists the commands that have no subcommands, in the order in which the help shows them.
fn leaves(command: &Command) -> Vec<&Command> {
    let subcommands: Vec<_> = command.get_subcommands().collect();
    if subcommands.is_empty() {
        return vec![command];
    }
    subcommands.into_iter().flat_map(leaves).collect()
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_owned()
}

/// Adds a command's description, options and additional help text to the page, followed by its
/// subcommands.
fn describe(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let mut text = Roff::new();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    text.control("SS", [name]);
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        text.text([roman(about.to_string())]);
    }
    page.extend(text.to_roff().bytes());

    // The option `--help` is left out: every command has it, and this page is the help.
    let without_help = command.clone().mut_arg("help", |help| help.hide(true));
    let mut options = Vec::new();
    Man::new(without_help).render_options_section(&mut options)?;
    let options = String::from_utf8_lossy(&options);
    page.extend(options.split_once(OPTIONS).map_or("", |(_, options)| options).bytes());
    page.extend(verbatim(command));
    command.get_subcommands().try_for_each(|below| describe(below, page))
}

/// Renders the additional text at the end of a command's help, line by line.
fn verbatim(command: &Command) -> Vec<u8> {
    let mut text = Roff::new();
    if let Some(after) = command.get_after_help() {
        text.control("PP", []).control("nf", []);
        for line in after.to_string().lines() {
            text.text([roman(line)]);
        }
        text.control("fi", []);
    }
    text.to_roff().into_bytes()
}
