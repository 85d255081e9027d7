//! Runs seeds, prints a line for each seed, and shortens the first run that fails.

mod log_runs;

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use ringwell_sim::{Bug, Kind, LogFault, Options, Report, run, shrink};

/// Simulates clusters under faults. The same arguments give the same runs.
#[derive(Parser)]
#[command(about)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
struct Cli {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of consecutive seeds to run.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The number of threads that run seeds.
    #[arg(long, default_value_t = 1)]
    threads: u16,
    /// Simulate machines that share a log, instead of a cluster with files.
    #[arg(long)]
    shared_log: bool,
    /// With a shared log: faults that happen at their highest rate.
    #[arg(long, value_delimiter = ',', value_parser = log_fault)]
    log_on: Vec<LogFault>,
    /// With a shared log: excludes these faults.
    #[arg(long, value_delimiter = ',', value_parser = log_fault)]
    log_off: Vec<LogFault>,
    /// Kinds of faults that happen as often as possible
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    on: Vec<Kind>,
    /// Kinds of faults that do not happen
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    off: Vec<Kind>,
    /// The only faults that happen, each given as its kind and its index within that kind.
    #[arg(long, value_name = "KIND:WHICH,…")]
    only_faults: Option<String>,
    /// Only these batches are sent
    #[arg(long, value_name = "BATCH,…")]
    only_batches: Option<String>,
    /// Simulate several hours in each run, with quiet time between bursts of requests
    #[arg(long)]
    hours: bool,
    /// A bug to plant
    #[arg(long, value_parser = bug)]
    bug: Option<Bug>,
    /// Print only the seeds that fail, and the totals
    #[arg(long)]
    quiet: bool,
    /// Continue with the next seeds after one that fails
    #[arg(long)]
    keep_going: bool,
    /// Do not look for a shorter run that fails in the same way.
    #[arg(long)]
    no_shrink: bool,
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::parse(name).ok_or_else(|| format!("no kind of fault is called {name}"))
}

fn log_fault(name: &str) -> Result<LogFault, String> {
    LogFault::parse(name).ok_or_else(|| format!("no log fault is called {name}"))
}

fn bug(name: &str) -> Result<Bug, String> {
    Bug::parse(name).ok_or_else(|| format!("no planted bug is called {name}"))
}

fn faults(text: &str) -> Result<BTreeSet<(Kind, u64)>, String> {
    let fault = |item: &str| {
        let (name, which) = item.split_once(':').ok_or(format!("{item}: KIND:WHICH"))?;
        Ok((kind(name)?, which.parse().map_err(|_| format!("{which} is not a number"))?))
    };
    text.split(',').filter(|item| !item.is_empty()).map(fault).collect()
}

fn batches(text: &str) -> Result<BTreeSet<u32>, String> {
    let batch = |item: &str| item.parse().map_err(|_| format!("{item} is not a number"));
    text.split(',').filter(|item| !item.is_empty()).map(batch).collect()
}

/// The totals of all threads.
#[derive(Default)]
struct Sum {
    failed: Option<u64>,
    violations: u64,
    polls: u64,
    rows: u64,
    numbers: u64,
    hours: f64,
    faults: std::collections::BTreeMap<Kind, u64>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match work(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(2)
        }
    }
}

/// Runs all seeds. Returns `false` if one of them failed.
fn work(cli: &Cli) -> Result<bool, String> {
    let plan = Options {
        seed: cli.seed,
        on: cli.on.clone(),
        off: cli.off.clone(),
        only_faults: cli.only_faults.as_deref().map(faults).transpose()?,
        only_batches: cli.only_batches.as_deref().map(batches).transpose()?,
        has_hours: cli.hours,
        bug: cli.bug,
        keeps_tale: false,
    };
    plant(plan.bug);
    if cli.shared_log {
        return log_runs::work(&log_runs::LogRunPlan {
            seed: cli.seed,
            seeds: cli.seeds,
            threads: cli.threads,
            on: cli.log_on.clone(),
            off: cli.log_off.clone(),
            bug: cli.bug,
            quiet: cli.quiet,
            keep_going: cli.keep_going,
        });
    }
    let commit = commit();
    let next = AtomicU64::new(cli.seed);
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..cli.threads.max(1) {
            scope.spawn(|| run_seeds(cli, &plan, &commit, &next, &sum));
        }
    });
    let sum = sum.into_inner().map_err(|_| "a run has panicked: see above")?;
    let Sum { rows, numbers, hours, polls, violations, .. } = sum;
    let done = next.load(Ordering::Relaxed).min(cli.seed + cli.seeds) - cli.seed;
    print!(
        "{done} seeds, {hours:.2} simulated hours, {polls} polls, {rows} rows, {numbers} numbers, "
    );
    print!("{violations} violations;");
    for (kind, count) in &sum.faults {
        print!(" {kind}={count}");
    }
    println!();
    if let Some(seed) = sum.failed {
        let options = Options { seed, keeps_tale: true, ..plan };
        tell(&options, cli.no_shrink, &commit);
    }
    Ok(sum.failed.is_none())
}

fn run_seeds(cli: &Cli, plan: &Options, commit: &str, next: &AtomicU64, sum: &Mutex<Sum>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= cli.seed + cli.seeds {
            return;
        }
        let report = run(&Options { seed, ..plan.clone() });
        if !cli.quiet || report.violation.is_some() {
            println!("{}", report.line(commit));
        }
        // If a thread panicked while it held the lock, the panic was already reported.
        let Ok(mut sum) = sum.lock() else { return };
        sum.rows += report.rows;
        sum.polls += report.polls;
        sum.numbers += report.numbers;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a run lasts a few hours: fewer than 2^52 microseconds"
        )]
        let hours = report.length_us as f64 / 3.6e9;
        sum.hours += hours;
        for (kind, count) in report.faults {
            *sum.faults.entry(kind).or_default() += count;
        }
        if report.violation.is_some() {
            sum.failed.get_or_insert(seed);
            sum.violations += 1;
            if !cli.keep_going {
                next.store(u64::MAX / 2, Ordering::Relaxed);
            }
        }
    }
}

/// Prints the story of a failed run, and the command that repeats the run.
fn tell(options: &Options, no_shrink: bool, commit: &str) {
    println!("\nto repeat: {}", command(options));
    let shorter = if no_shrink { None } else { shrink(options) };
    let (options, report) = shorter.unwrap_or_else(|| (options.clone(), run(options)));
    println!("the short version: {}", command(&options));
    println!("{}\n", report.line(commit));
    for line in &report.story {
        println!("{line}");
    }
    if let Report { violation: Some(broken), .. } = &report {
        let number = if broken.number == 0 { String::new() } else { broken.number.to_string() };
        println!("\nBROKEN: {}, shard {} {number}: {}", broken.rule, broken.shard, broken.text);
    }
}

fn command(options: &Options) -> String {
    let mut command = format!("cargo run -p ringwell-sim --release -- --seed {}", options.seed);
    let list = |name: &str, items: Vec<String>| format!(" --{name} '{}'", items.join(","));
    if !options.on.is_empty() {
        command += &list("on", options.on.iter().map(Kind::to_string).collect());
    }
    if !options.off.is_empty() {
        command += &list("off", options.off.iter().map(Kind::to_string).collect());
    }
    if options.has_hours {
        command += " --hours";
    }
    if let Some(only) = &options.only_faults {
        let items = only.iter().map(|(kind, which)| format!("{kind}:{which}"));
        command += &list("only-faults", items.collect());
    }
    if let Some(only) = &options.only_batches {
        command += &list("only-batches", only.iter().map(u32::to_string).collect());
    }
    if let Some(bug) = options.bug {
        command += " --bug ";
        command += bug.name();
    }
    command
}

/// Plants a bug in the production code, which must have been built with `--cfg canary`.
#[cfg(canary)]
fn plant(bug: Option<Bug>) {
    ringwell_sim::plant_in_core(bug);
}

#[cfg(not(canary))]
fn plant(bug: Option<Bug>) {
    if bug.is_some() {
        eprintln!("this bug exists only if everything is built with RUSTFLAGS='--cfg canary'");
    }
}

/// Returns the commit that is checked out, according to git.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    text.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
