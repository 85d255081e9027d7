//! Automates work on the repository: `cargo xtask ci` runs all of CI, `cargo xtask bench` runs the
//! benchmarks, and `cargo xtask soak` runs long tests under faults. The repository's own rules are
//! tests: `tests/rules.rs`.

mod api;
mod bench;
mod book;
mod callgrind;
mod chart;
mod ci;
mod clients;
mod counts;
mod dist;
mod engine;
mod jmeter;
mod nightly;
mod providers;
mod shell;
mod soak;
mod steps;
mod suite;
mod telephony;

use clap::{Parser, Subcommand};

/// Automation of the Ringwell repository.
#[derive(Parser)]
#[command(about)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check format, lints, tests and licences, as for every commit.
    Ci,
    /// Run the programs of clients/, in other languages, against a server of this build.
    Clients,
    /// Verify requests that telephony providers' own libraries sign, and have the Standard Webhooks
    /// libraries verify ours.
    Telephony(telephony::Args),
    /// Run all tests of the workspace, several test programs at a time.
    Suite(suite::Args),
    /// Measure Ringwell against the fixed-bytes server in the same run.
    Bench(bench::Args),
    /// Build the documentation as a site, and check its links. Needs mdBook.
    Book,
    /// Update the table and the chart in docs/figures.md from the newest results of `bench peers
    /// --save`.
    Chart,
    /// Check the OpenAPI document of the management API against a running server.
    Api(api::Args),
    /// Count the instructions and allocations of a batch, and compare them with bench/counts.json.
    Counts(counts::Args),
    /// Build the packages that users install: tarballs, a Debian package, a container build
    /// context.
    Dist(dist::Args),
    /// Test a running server whose journals are on real nats-servers, which are killed, paused and
    /// shared.
    Engine(engine::Args),
    /// Run the test plan of deploy/jmeter against the demo for a few seconds.
    Jmeter,
    /// Run the tests that take too long for every commit: all planted bugs, many seeds,
    /// nats-servers.
    Nightly(nightly::Args),
    /// Write the pages of docs/providers from their table.
    Providers,
    /// Cause real faults in real processes for a long time.
    Soak(soak::Args),
}

fn main() -> anyhow::Result<()> {
    std::env::set_current_dir(shell::root())?;
    match Cli::parse().task {
        Task::Ci => ci::run(),
        Task::Clients => clients::run(),
        Task::Telephony(args) => telephony::run(&args),
        Task::Suite(args) => suite::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Book => book::run(),
        Task::Chart => chart::run(),
        Task::Api(args) => api::run(&args),
        Task::Counts(args) => counts::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Engine(args) => engine::engine(&args),
        Task::Jmeter => jmeter::run(),
        Task::Nightly(args) => nightly::run(&args),
        Task::Providers => providers::run(),
        Task::Soak(args) => soak::run(&args),
    }
}
