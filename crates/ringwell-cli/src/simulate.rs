//! `ringwell simulate`: simulates a web site's day in virtual time: its visitors, its callers, and
//! the ring pools that serve them.
//!
//! Contains the flags, the choice of pools and the output. `simulate/day.rs` simulates the day.

mod access_log;
mod day;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringwell_config::{Overrides, load, parse_lifetime};
use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber};
use ringwell_plan::{Callers, Demand, Forecast};
use serde_json::{Value, json};

use crate::environment::{cores, variable};
use crate::faults::show_of_file;
use crate::plan::{USUAL_CALLERS, amount, parse_callers, parse_share, percent, span};
use crate::print::{print, print_error};
use access_log::{Lines, View};
use day::{Day, Found};

pub(crate) const HELP: &str = "\
The log is in the common or combined format of Apache and nginx. Each visitor (address and user \
agent) is shown a number from the pool and keeps it from page to page. Some visitors call, after a \
delay drawn from --callers. No server is needed, and nothing is stored: the server's own code \
chooses the numbers, and its own rule attributes the calls. The same --seed gives the same callers.

Examples:
  ringwell simulate --site-log access.log --config ringwell.toml
  ringwell simulate --site-log access.log --config ringwell.toml --pool 16 \\
    --calls 5%
  ringwell simulate --site-log access.log --numbers 50 --numbers 100 \\
    --lifetime 20m
  zcat access.log.*.gz | ringwell simulate --site-log - --numbers 100 --json";

/// The maximum count of numbers in a pool, which is the server's limit.
const POOL_NUMBERS_MAX: u32 = 100_000;
/// The first number of the pools that exist only in a simulation.
const FIRST_NUMBER: u64 = 12_000_000_000;
const HOUR: Millis = Millis(3_600_000);

/// The exit code for invalid arguments, the same as clap's.
const WRONG_USAGE: u8 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A web site's access log; - reads stdin
    #[arg(long, value_name = "FILE")]
    site_log: PathBuf,
    /// A server's configuration, whose ring pools are simulated
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: Option<PathBuf>,
    /// Simulate only this ring pool in the configuration; may be repeated
    #[arg(long, value_name = "ID", requires = "config")]
    pool: Vec<u64>,
    /// Simulate a pool of this many numbers instead of the pools in the configuration; may be
    /// repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(POOL_NUMBERS_MAX)))]
    numbers: Vec<u32>,
    /// With --numbers: guaranteed lifetime of an allocation
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = lifetime_above_0)]
    lifetime: Millis,
    /// The share of visits that end in a call
    #[arg(long, value_name = "SHARE", default_value = "3%", value_parser = parse_share)]
    calls: f64,
    /// Each group of callers: its share, and its mean delay between seeing the number and calling
    #[arg(
        long,
        value_name = "SHARE:DELAY,…",
        default_value = USUAL_CALLERS,
        value_parser = parse_callers
    )]
    callers: Callers,
    /// Seed for the random choices of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A pool, the results of its simulated day, and the forecast from the formulas in docs/sizing.md.
struct Line {
    name: String,
    pool: PoolSpec,
    found: Found,
    forecast: Option<Forecast>,
}

/// The figures from the access log, which are the same for all pools.
struct Traffic {
    lines: Lines,
    hours: f64,
    /// The number of visitors in the busiest hour.
    busiest: u64,
}

/// Simulates the day in the access log with each pool, and prints the results.
///
/// # Errors
/// If the log cannot be read, or there is no pool to simulate.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let pools = match pools(args)? {
        Ok(pools) => pools,
        Err(code) => return Ok(code),
    };
    let (views, lines) = read(&args.site_log)?;
    let (Some(first), Some(last)) = (views.first(), views.last()) else {
        bail!(
            "{} has no page views: {} lines of robots, {} of other files, {} that are not lines of \
             an access log",
            args.site_log.display(),
            lines.robots,
            lines.others,
            lines.unreadable
        );
    };
    let hours = Duration::from_millis(last.at.since(first.at).0).as_secs_f64() / 3_600.0;
    let traffic = Traffic { lines, hours, busiest: busiest_hour(&views) };
    let line = |(name, pool): (String, PoolSpec)| {
        let day = Day {
            pool: pool.clone(),
            views: &views,
            calls: args.calls,
            callers: &args.callers,
            seed: args.seed,
            crashes: None,
        };
        let found = day::simulate_day(&day);
        let forecast = forecast(&pool, &found, hours, &args.callers);
        Line { name, pool, found, forecast }
    };
    let all: Vec<Line> = pools.into_iter().map(line).collect();
    let text =
        if args.json { format!("{}\n", in_json(&traffic, &all)) } else { text(&traffic, &all) };
    print(text.as_bytes())
}

fn read(path: &Path) -> anyhow::Result<(Vec<View>, Lines)> {
    if path == Path::new("-") {
        return access_log::read(io::stdin().lock()).context("stdin");
    }
    let of_path = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(of_path)?;
    access_log::read(BufReader::new(file)).with_context(of_path)
}

/// Returns the pools to simulate, each with its name. If the configuration has faults, prints them
/// and returns the exit code.
fn pools(args: &Args) -> anyhow::Result<Result<Vec<(String, PoolSpec)>, ExitCode>> {
    if !args.numbers.is_empty() {
        let made = |size: &u32| Ok(("made up".to_owned(), made_up(*size, args.lifetime)?));
        return args.numbers.iter().map(made).collect::<anyhow::Result<_>>().map(Ok);
    }
    let Some(config) = &args.config else {
        print_error(
            "give --config with a server's ring pools, or --numbers with pool sizes; see --help",
        );
        return Ok(Err(ExitCode::from(WRONG_USAGE)));
    };
    // The simulation stores nothing, so the configuration need not name a data directory.
    let flags = Overrides { data: Some(PathBuf::new()), ..Overrides::default() };
    let directory = match load(config, variable, flags, cores()) {
        Ok((_, directory)) => directory,
        Err(faults) => return Ok(Err(show_of_file(&faults, config))),
    };
    ensure!(
        directory.pool_count() > 0,
        "{} has no ring pools: give --numbers and --lifetime of those in the database",
        config.display()
    );
    let wanted: Vec<PoolId> = args.pool.iter().copied().map(PoolId).collect();
    for id in &wanted {
        ensure!(directory.pool(*id).is_some(), "{} has no ring pool {}", config.display(), id.0);
    }
    let is_wanted = |id: PoolId| wanted.is_empty() || wanted.contains(&id);
    let mut pools: Vec<_> = directory
        .pools()
        .filter(|pool| is_wanted(pool.id()))
        .map(|pool| (pool.name().map_or(format!("{}", pool.id().0), str::to_owned), pool.spec()))
        .collect();
    pools.sort_by_key(|(_, spec)| spec.id);
    Ok(Ok(pools))
}

fn lifetime_above_0(text: &str) -> Result<Millis, String> {
    match parse_lifetime(text) {
        Ok(Millis(0)) => Err("must be longer than 0".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

fn made_up(size: u32, lifetime: Millis) -> anyhow::Result<PoolSpec> {
    let first = PromoNumber::from_e164(FIRST_NUMBER).context("no number")?;
    let range = NumberRange::new(first, size).context("--numbers: too many for one range")?;
    Ok(PoolSpec { id: PoolId(1), lockout: lifetime, numbers: vec![range] })
}

/// Counts the distinct visitors in the log's busiest hour.
fn busiest_hour(views: &[View]) -> u64 {
    let (mut busiest, mut from, mut inside) = (0, 0, std::collections::HashMap::new());
    for view in views {
        *inside.entry(view.visitor).or_insert(0_u64) += 1;
        while view.at.since(views[from].at) >= HOUR {
            if let Some(count) = inside.get_mut(&views[from].visitor) {
                *count -= 1;
                if *count == 0 {
                    inside.remove(&views[from].visitor);
                }
            }
            from += 1;
        }
        busiest = busiest.max(inside.len());
    }
    busiest as u64
}

/// Applies the formulas in docs/sizing.md to the visits in `found`, as if these were spread evenly
/// over `hours`.
fn forecast(pool: &PoolSpec, found: &Found, hours: f64, callers: &Callers) -> Option<Forecast> {
    #[expect(clippy::cast_precision_loss, reason = "visits of a log")]
    let per_hour = found.visits as f64 / hours;
    let lifetime = Duration::from_millis(pool.lockout.0);
    let demand = Demand::of_visitors(per_hour, lifetime).ok()?;
    Some(demand.forecast(size(pool), callers))
}

fn size(pool: &PoolSpec) -> u32 {
    let count: u64 = pool.numbers.iter().map(|range| u64::from(range.count())).sum();
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a log")]
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn text(traffic: &Traffic, all: &[Line]) -> String {
    let Lines { pages, robots, others, unreadable } = traffic.lines;
    let visits = all.first().map_or(0, |line| line.found.visits);
    let mut text = format!(
        "{pages} page views in {}, {visits} visits; busiest hour: {} visitors\nskipped: {robots} \
         lines of robots, {others} of other files and errors, {unreadable} that cannot be read\n",
        span(traffic.hours * 3_600.0),
        traffic.busiest
    );
    for line in all {
        let Line { name, pool, found, forecast } = line;
        let by = |what: fn(&Forecast) -> f64| {
            forecast
                .as_ref()
                .map(|it| format!(" (formula: {})", percent(what(it))))
                .unwrap_or_default()
        };
        let named = found.right + found.wrong;
        let calls = |count: u64| format!("{count:>8}  {:>7}", percent(share(count, found.calls)));
        let _ = writeln!(
            text,
            "\nring pool {name}: {} numbers, lifetime {}",
            amount(f64::from(size(pool))),
            span(Duration::from_millis(pool.lockout.0).as_secs_f64())
        );
        let _ = writeln!(
            text,
            "  visits with the overflow number {:>8}  {:>7}{}",
            found.overflow_visits,
            percent(share(found.overflow_visits, found.visits)),
            by(|it| it.overflow)
        );
        let _ = writeln!(text, "  calls                           {:>8}", found.calls);
        let _ = writeln!(text, "    name the right visitor        {}", calls(found.right));
        let _ = writeln!(text, "      of them after the lockout   {}", calls(found.late));
        let _ = writeln!(
            text,
            "    name another visitor          {}{}",
            calls(found.wrong),
            by(|it| (1.0 - it.overflow) * it.misattributed)
        );
        let _ = writeln!(text, "    to the overflow number        {}", calls(found.overflow_calls));
        if named > 0 {
            #[expect(clippy::cast_precision_loss, reason = "calls of a day")]
            let mean = found.confidence / named as f64;
            let _ = writeln!(
                text,
                "  confidence: {} on average, {} of calls that name a visitor are right; {} calls below \
                 50 %, {} of them wrong",
                percent(mean),
                percent(share(found.right, named)),
                found.unsure,
                found.unsure_wrong
            );
        }
    }
    text
}

fn in_json(traffic: &Traffic, all: &[Line]) -> Value {
    let Lines { pages, robots, others, unreadable } = traffic.lines;
    let pool = |line: &Line| {
        let Line { name, pool, found, forecast } = line;
        json!({
            "ring_pool": { "id": pool.id.0, "name": name },
            "numbers": size(pool),
            "lifetime_ms": pool.lockout.0,
            "visits": found.visits,
            "overflow_visits": found.overflow_visits,
            "calls": {
                "all": found.calls, "right": found.right, "wrong": found.wrong, "late": found.late,
                "overflow": found.overflow_calls, "unknown": found.unknown, "unsure": found.unsure,
                "unsure_wrong": found.unsure_wrong,
            },
            "formula": forecast.as_ref().map(|it| json!({
                "overflow": it.overflow, "misattributed": it.misattributed,
            })),
        })
    };
    json!({
        "log": {
            "page_views": pages, "robots": robots, "others": others, "unreadable": unreadable,
            "hours": traffic.hours, "busiest_hour_visitors": traffic.busiest,
        },
        "ring_pools": all.iter().map(pool).collect::<Vec<_>>(),
    })
}
