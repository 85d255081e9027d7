//! The program `ringwell`.
//!
//! Handles the command line, exit codes and error messages. The libraries implement the commands.
//! Output goes to stdout; errors, logs and notes go to stderr.

// The macros panic if the program that reads the output has closed the pipe; see `print`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod api_client;
mod args;
mod background;
mod backup;
mod call_log;
mod calls;
mod check;
mod configuration;
mod data_files;
mod database_lock;
mod demo;
mod directory;
mod doctor;
mod environment;
mod faults;
mod flags;
mod haproxy;
mod journal;
mod listener;
mod load;
mod logs;
mod man;
mod management;
mod one_address;
mod phone;
mod plan;
mod pools;
mod print;
mod progress;
mod restore;
mod serve;
mod shards;
mod signals;
mod simulate;
mod sites;
mod snippet;
mod table;
mod test_call;
mod texts;
mod token;
mod top;
mod ui;
mod usage;
mod version;
mod webhooks;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use crate::args::{Command, Ringwell};
use crate::print::print_error;
use crate::usage::{WRONG_USAGE, WrongUsage};

fn main() -> ExitCode {
    let usage = Ringwell::try_parse().unwrap_or_else(|error| without_password(error).exit());
    let result = match usage.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Demo(demo) => demo::run(demo),
        Command::Journal(args) => journal::run(&args),
        Command::Haproxy(args) => haproxy::run(&args),
        Command::Load(args) => load::run(*args),
        Command::Check(args) => check::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Pools(args) => pools::run(&args),
        Command::Sites(args) => sites::run(&args),
        Command::Snippet(args) => snippet::run(&args),
        Command::Shards(args) => shards::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Call(args) => test_call::run(&args),
        Command::Calls(args) => call_log::run(&args),
        Command::Webhooks(args) => webhooks::run(&args),
        Command::Ui(args) => ui::run(&args),
        Command::Token => token::run(),
        Command::Completions { shell } => texts::completions(shell),
        Command::Man => texts::man(),
    };
    result.unwrap_or_else(|error| {
        print_error(chain(&error));
        if error.is::<WrongUsage>() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
    })
}

/// Hides an error's invalid value if it contains an @, because it may be a URL with a password.
fn without_password(mut error: clap::Error) -> clap::Error {
    let is_address =
        |value: &ContextValue| matches!(value, ContextValue::String(text) if text.contains('@'));
    if error.get(ContextKind::InvalidValue).is_some_and(is_address) {
        let hidden = "(not shown, because it may contain a password)".to_owned();
        error.insert(ContextKind::InvalidValue, ContextValue::String(hidden));
    }
    error
}

/// Formats an error and its causes. Omits causes that the text already contains.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(cause.trim_start_matches("error returned from database: ")) {
            text = format!("{text}: {cause}");
        }
    }
    let denied = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(denied) {
        text += "; run this command as a user who has permission";
    }
    text
}
