//! The program `ringwell`.
//!
//! Owns the command line, exit codes and what people see of them. What the commands do lies in
//! the libraries. Output goes to stdout; errors and logs go to stderr.

mod args;
mod demo;
mod journal;
mod logs;
mod serve;
mod story;
mod texts;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Command, Ringwell};

fn main() -> ExitCode {
    let result = match Ringwell::parse().command {
        Command::Serve(serve) => serve::run(serve),
        Command::Demo(demo) => demo::run(demo),
        Command::Journal(args) => journal::run(&args),
        Command::Token => texts::token(),
        Command::Completions { shell } => texts::completions(shell),
        Command::Man => texts::man(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
