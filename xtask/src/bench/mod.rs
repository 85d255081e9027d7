//! Runs the benchmarks: starts servers, sends load, prints ratios. `bench/README.md` explains them.
//!
//! Every figure is a ratio to another figure of the same run. A run never fails because it was
//! slow. It fails only if an answer was wrong (a status other than 200, an error row, an overflow
//! number) or a connection broke.

mod backend;
mod guided;
mod idle;
mod inputs;
mod instructions;
mod latency;
mod links;
mod load;
mod loader;
mod machine;
mod manage;
mod pages;
mod peers;
mod published;
mod requests;
mod server;
mod size;
mod table;
mod throughput;

use anyhow::{bail, ensure};
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::shell::is_installed;
pub(crate) use guided::{GUIDED, program as guided_program};
use inputs::{BenchInputs, Findings};
use machine::Machine;
pub(crate) use requests::requests;
pub(crate) use server::{Server, free_address};
pub(crate) use table::median;

/// Flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The benchmark to run.
    #[arg(value_enum, default_value = "all")]
    which: Which,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Rounds; variants alternate within each.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Run each benchmark for about a second at a small size: shows that it still works, but
    /// measures nothing.
    #[arg(long)]
    smoke: bool,
    /// Cargo profile of both servers and senders, or `guided` for the program as `cargo xtask dist`
    /// builds it, with senders of the profile `dist` [default: dist; dev with --smoke].
    #[arg(long)]
    profile: Option<String>,
    /// Write the raw figures to bench/results/.
    #[arg(long)]
    save: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Throughput,
    Durability,
    Shards,
    Latency,
    Links,
    Size,
    Idle,
    Manage,
    Pages,
    Instructions,
    Peers,
    Loader,
    Published,
    All,
}

type Benchmark = fn(&BenchInputs) -> anyhow::Result<Findings>;

const BENCHMARKS: [(Which, &str, Benchmark); 13] = [
    (Which::Throughput, "throughput", throughput::throughput),
    (Which::Durability, "durability", throughput::durability),
    (Which::Shards, "shards", throughput::shards),
    (Which::Latency, "latency", latency::latency),
    (Which::Links, "links", links::links),
    (Which::Size, "size", size::size),
    (Which::Idle, "idle", idle::idle),
    (Which::Manage, "manage", manage::manage),
    (Which::Pages, "pages", pages::pages),
    (Which::Instructions, "instructions", instructions::instructions),
    (Which::Peers, "peers", peers::peers),
    (Which::Loader, "loader", loader::loader),
    (Which::Published, "published", published::published),
];

/// Builds, measures, prints.
///
/// # Errors
/// If a program is not installed, does not start, or gives wrong answers.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for program in ["wrk", "taskset", "prlimit"] {
        ensure!(is_installed(program), "{program} is not installed (Debian: wrk, util-linux)");
    }
    let default = if args.smoke { "dev" } else { "dist" };
    let profile = args.profile.as_deref().unwrap_or(default);
    let plan = BenchInputs {
        programs: guided::programs(profile, args.smoke)?,
        machine: Machine::look(profile)?,
        seconds: if args.smoke { 1 } else { args.seconds },
        rounds: if args.smoke { 1 } else { args.rounds },
        smoke: args.smoke,
    };
    println!("{}", plan.machine.line());
    if args.smoke {
        println!("Smoke run: small sizes, one second each; do not use the figures.");
    }
    let mut raw = Map::new();
    let mut problems = Vec::new();
    for (which, name, benchmark) in BENCHMARKS {
        if args.which == which || args.which == Which::All {
            let findings = benchmark(&plan)?;
            problems.extend(findings.problems.iter().map(|problem| format!("{name}: {problem}")));
            raw.insert(name.to_owned(), findings.raw);
        }
    }
    if args.save {
        let plan = json!({"seconds": plan.seconds, "rounds": plan.rounds, "smoke": plan.smoke});
        machine::save(&Machine::look(profile)?, &plan, &Value::Object(raw))?;
    }
    if !problems.is_empty() {
        bail!("wrong answers:\n{}", problems.join("\n"));
    }
    println!("\nNo wrong status, no error row, no overflow row, no broken connection.");
    Ok(())
}
