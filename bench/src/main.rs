//! The tools that measure Ringwell: the fixed-bytes server, an open-loop sender, idle connections
//! and a measurement of the disk. `cargo xtask bench` starts the tools; `bench/README.md` explains
//! them.
//!
//! Contains none of Ringwell's rules or code: it uses only the published API.

mod batch;
mod ceiling;
mod client;
mod flush;
mod idle;
mod openloop;
mod report;
mod target;

use clap::{Parser, Subcommand};

/// Measures a Ring Pool server from outside.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer all requests with the same bytes, to measure the maximum of this HTTP stack.
    Ceiling(ceiling::Args),
    /// Send batches at a fixed rate and report latency from the intended time.
    Openloop(openloop::Args),
    /// Hold many kept-alive connections open until standard input closes.
    Idle(idle::Args),
    /// Overwrite and `fdatasync` blocks of a file, to measure the disk.
    Flush(flush::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Ceiling(args) => ceiling::run(&args),
        Command::Openloop(args) => openloop::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Flush(args) => flush::run(&args),
    }
}
