//! `ringwell plan`: calculates the size of a pool or of a cluster.
//!
//! Contains the flags and the output: tables, a plot and a drawing. The formulas are in
//! `ringwell-plan`.

mod cluster;
mod curve;
mod pool;
mod svg;
#[cfg(test)]
mod tests;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringwell_plan::{Callers, Demand, NUMBERS_MAX};

use crate::print::{print, print_error};
pub(crate) use values::{USUAL_CALLERS, amount, parse_callers, parse_share, percent, span};
use values::{parse_amount, parse_lifetime};

pub(crate) const HELP: &str = "\
The load of a pool is the count of requests for its numbers within one lifetime, including \
overflow. For example, 40 allocations in the last 30 minutes are a load of 40 if the lifetime is \
30 minutes. Use the load of the busiest hour.

Examples:
  ringwell plan --load 80
  ringwell plan --visitors-per-hour 120 --lifetime 30m --target 0.5% --bots 10%
  ringwell plan --load 80 --batch-rows-per-pool 5 --numbers 150 --svg pool.svg
  ringwell plan cluster --numbers-per-second 127k --numbers 5500M";

const CLUSTER_HELP: &str = "\
All North American numbers in twelve hours:
  ringwell plan cluster --numbers-per-second 127k --numbers 5500M";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    pool: PoolFlags,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Estimate the cores, memory, disk and network that the given traffic needs, and list the
    /// underlying measurements
    #[command(after_help = CLUSTER_HELP)]
    Cluster(cluster::Args),
}

#[derive(Debug, clap::Args)]
struct PoolFlags {
    /// Average count of allocations requested within a lifetime, which equals the count of locked
    /// numbers if the pool never runs out
    #[arg(long, value_name = "A", value_parser = parse_amount, conflicts_with = "visitors_per_hour")]
    load: Option<f64>,
    /// Visitors per hour who need a number
    #[arg(long, value_name = "V", value_parser = parse_amount)]
    visitors_per_hour: Option<f64>,
    /// Mean lockout of a number: the pool's lifetime. If visitors use the script for web pages, add
    /// the mean duration of a visit, because keep-alives lengthen the lockout
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_lifetime)]
    lifetime: Duration,
    /// Accepted overflow, e.g. 1% or 0.01
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_share)]
    target: f64,
    /// Number of rows in one batch that request numbers from this pool
    #[arg(long, value_name = "K", default_value_t = 1)]
    batch_rows_per_pool: u32,
    /// Share of all allocations caused by bots; bots are added to the given load or visitors
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse_share)]
    bots: f64,
    /// Also print the result for a pool of this size
    #[arg(long, value_name = "N")]
    numbers: Option<u32>,
    /// Each group of callers: its share, and its mean delay between seeing the number and calling
    #[arg(
        long,
        value_name = "SHARE:DELAY,…",
        default_value = USUAL_CALLERS,
        value_parser = parse_callers
    )]
    callers: Callers,
    /// Also write the plot to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print JSON instead of a table and a plot
    #[arg(long)]
    json: bool,
}

/// Prints the plan.
///
/// # Errors
/// If no plan is possible, or a file or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(Command::Cluster(args)) => cluster::run(args),
        None => plan_pool(&args.pool),
    }
}

/// The exit code for contradictory flags, which equals the exit code for flags that cannot be
/// parsed.
const WRONG_USAGE: u8 = 2;

fn plan_pool(args: &PoolFlags) -> anyhow::Result<ExitCode> {
    let demand = match demand(args) {
        Ok(demand) => demand,
        Err(error) => {
            print_error(format!("{error:#}"));
            return Ok(ExitCode::from(WRONG_USAGE));
        }
    };
    let plan = pool::PoolPlan::new(demand, args.target, args.numbers, args.callers.clone())?;
    if let Some(path) = &args.svg {
        std::fs::write(path, svg::draw(&plan))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        return print(format!("{}\n", plan.json()).as_bytes());
    }
    print(plan.text(values::colours()).as_bytes())
}

/// Computes the demand for the pool from the flags.
fn demand(args: &PoolFlags) -> anyhow::Result<Demand> {
    ensure!(args.target > 0.0, "a --target of 0 requires infinitely many numbers");
    if let Some(numbers) = args.numbers {
        ensure!((1..=NUMBERS_MAX).contains(&numbers), "a pool cannot have {numbers} numbers");
    }
    let demand = match (args.load, args.visitors_per_hour) {
        (Some(load), _) => Demand::of_load(load, args.lifetime)?,
        (None, Some(visitors)) => Demand::of_visitors(visitors, args.lifetime)?,
        (None, None) => anyhow::bail!("give --load or --visitors-per-hour; see --help"),
    };
    Ok(demand.with_bots(args.bots)?.in_batches_of(args.batch_rows_per_pool)?)
}
