//! `ringwell load`: parses the load generator's flags, and writes its results.
//!
//! The crate `ringwell-load` generates and measures the load.

use std::fs;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdout, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use ringwell_config::shown_file;
use ringwell_load::{
    FinishError, LoadPlan, LookUps, LookedUp, Outcome, Pace, Pool, Progress, Spike, Spread, Target,
    add_journal, add_state, compare, look_up, parse_duration, parse_rate,
};

use crate::print::{print, print_note};
use crate::signals::stop_on_signals;

pub(crate) const HELP: &str = "\
Without --rate, the loop is closed: each connection sends its next batch when the previous one is \
answered. This measures a server's capacity. With --rate, the loop is open: each batch is \
sent when it is due, whether or not answers arrive. Latency is measured from the due time, so a \
stall counts for every batch that had to wait.

Latencies cover answers with status 200 and batches that timed out. Ctrl-C ends a run early; its \
table is still printed. Exit code 0 means that the run took place, not that all answers were good.

Examples:
  ringwell load    # beside `ringwell demo`, started in the same folder
  ringwell load --pools pools.csv
  ringwell load http://10.0.0.7:8080 --rate 1000/s --duration 60s \\
    --hdr run.hgrm --report run.html
  ringwell load unix:/run/ringwell.sock --rate 2k/s --ramp 10s \\
    --spike 20s,5s,x4 --json >a.json
  ringwell load http://a:8080 http://b:8080 --history run.jsonl --duration 10s
  ringwell load compare a.json b.json
  ringwell load finish run.jsonl --journal ./data \\
    --look-up http://a:8080 --token-file secret";

const FINISH_HELP: &str = "\
Adds the data that `ringwell check` needs in addition to the requests and answers in the history. \
The servers should be idle. Look-ups need running servers, but the journal can also be read after \
the servers have stopped. For a cluster, run the command once for each node, with --node.

Examples:
  ringwell load finish run.jsonl --journal demo-data \\
    --look-up http://127.0.0.1:8080 --token-file demo-data/demo-token";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Compare two runs (files written with --json), with a confidence interval for each ratio
    Compare {
        /// The baseline run
        a: PathBuf,
        /// The run to compare with the baseline
        b: PathBuf,
    },
    /// Add look-ups, the journal and the final state to a run's history
    #[command(after_help = FINISH_HELP)]
    Finish(Finish),
}

#[derive(Debug, clap::Args)]
struct Finish {
    /// The file written with --history
    history: PathBuf,
    /// Add the journal and the final state from this data directory
    #[arg(long, value_name = "DIR", required_unless_present = "look_up")]
    journal: Option<PathBuf>,
    /// Name of the node that wrote the journal [default: the path of the data directory]
    #[arg(long, value_name = "NAME", requires = "journal")]
    node: Option<String>,
    /// Look up on this server which visitors held the numbers
    #[arg(long, value_name = "URL", requires = "token_file")]
    look_up: Option<Target>,
    /// File with the management token for --look-up
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Number of rows to look up, spread evenly over the run; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    look_ups: usize,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Address for batches: http://HOST:PORT or unix:PATH; if repeated, the connections are divided
    /// among the addresses
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    targets: Vec<Target>,
    /// The pools and their keys: a list written by `ringwell demo` into its data directory
    /// [default: load-pools.csv or demo-pools.csv in ./data or ./demo-data, the first that exists]
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
    /// Number of rows in each batch
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = count)]
    rows: usize,
    /// Pools from which a batch requests numbers: all in turn, or only the first in the list
    #[arg(long, value_name = "WHICH", default_value = "pools", value_parser = parse_spread)]
    spread: Spread,
    /// Rate of an open loop in batches per second, e.g. 1000/s or 2.5k/s; without it, the loop is
    /// closed
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<f64>,
    /// Duration of the load
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Time over which the rate (in a closed loop: the count of sending connections) rises from 0
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    ramp: Duration,
    /// Multiply the rate by N, from the time AT and for the duration FOR, e.g. 10s,2s,x5; may be
    /// repeated
    #[arg(long, value_name = "AT,FOR,xN", requires = "rate", value_parser = str::parse::<Spike>)]
    spike: Vec<Spike>,
    /// Number of keep-alive connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count)]
    connections: usize,
    /// Number of threads that send batches; one thread can saturate one core of a server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    threads: usize,
    /// Abandon a batch that is not answered within this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Ask for answers within this time (Ringwell-Deadline-Ms), in whole milliseconds
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    /// Record every row, for `ringwell check`; batches are then generated one by one, which is
    /// slower
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Repeat a batch whose answer was lost, under the same Idempotency-Key
    #[arg(long, requires = "history")]
    retry: bool,
    /// Print JSON, which `compare` reads, instead of a table
    #[arg(long)]
    json: bool,
    /// Write the percentile distribution in the format of HDR histogram plotters (.hgrm)
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Write a self-contained HTML page with a table and curves
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

fn count(text: &str) -> Result<usize, &'static str> {
    let count = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or("must be a whole number from 1 to 1,000,000")
}

fn rate(text: &str) -> Result<f64, &'static str> {
    parse_rate(text).ok_or("must be a number of batches per second, e.g. 1000/s or 2.5k/s")
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("must be a duration with a unit, e.g. 250ms, 10s, 2m or 1h")
}

fn parse_spread(text: &str) -> Result<Spread, &'static str> {
    match text {
        "pools" => Ok(Spread::Pools),
        "one" => Ok(Spread::One),
        _ => Err("must be `pools` or `one`"),
    }
}

/// Runs the load, and prints the measurements.
///
/// # Errors
/// If the run was not possible, or a result cannot be written.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::Compare { a, b }) => {
            let comparison = compare(&read(&a)?, &read(&b)?)?;
            print(comparison.table().as_bytes())
        }
        Some(Command::Finish(finish)) => finish.run(),
        None => measure(args.run),
    }
}

fn measure(args: Run) -> anyhow::Result<ExitCode> {
    let (json, hdr, report) = (args.json, args.hdr.clone(), args.report.clone());
    let plan = args.plan()?;
    let stop = stop_on_signals()?;
    let mut view = LiveView::new();
    let outcome = ringwell_load::run(&plan, &stop, &mut |progress| view.show(progress));
    view.end();
    let outcome = outcome?;
    write_to(hdr.as_deref(), || outcome.percentile_text())?;
    write_to(report.as_deref(), || outcome.page())?;
    let text = if json { as_json(&outcome)? } else { outcome.table() };
    print(text.as_bytes())
}

/// Finds the default list of pools. In each folder, prefers the list that `ringwell demo` wrote for
/// load tests.
fn usual_list() -> PathBuf {
    let folders = ["data", "demo-data"];
    let names = ["load-pools.csv", "demo-pools.csv"];
    let paths = folders.iter().flat_map(|folder| names.map(|name| Path::new(folder).join(name)));
    let mut paths = paths.collect::<Vec<_>>().into_iter();
    paths.find(|path| path.exists()).unwrap_or_else(|| PathBuf::from("demo-data/load-pools.csv"))
}

/// Writes a result to `path`, if a file was requested.
fn write_to(path: Option<&Path>, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, text()).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a file that was written with `--json`.
fn read(path: &Path) -> anyhow::Result<Outcome> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not the output of `ringwell load --json`", path.display()))
}

impl Finish {
    fn run(self) -> anyhow::Result<ExitCode> {
        if let (Some(target), Some(path)) = (self.look_up, self.token_file) {
            let token = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", shown_file(&path)))?;
            let token = token.trim_end().to_owned();
            let wanted = LookUps { target, token, count: self.look_ups };
            let LookedUp { asked, allocated, refused } = look_up(&self.history, &wanted)?;
            let report = format!(
                "look-ups: {asked}, of which {allocated} found an allocation and {refused} were \
                 refused\n"
            );
            print(report.as_bytes())?;
        }
        if let Some(data) = self.journal {
            let node = self.node.unwrap_or_else(|| data.display().to_string());
            let lines =
                journal(&data, "inspect", |lines| add_journal(&self.history, &node, lines))?;
            let state = journal(&data, "replay", |lines| add_state(&self.history, &node, lines))?;
            print(
                format!("lines added: {lines} from the journal, {state} from the final state\n")
                    .as_bytes(),
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs `ringwell journal WHAT DATA --json` as a separate process, as another program would, and
/// passes its output to `take`.
fn journal(
    data: &Path,
    what: &str,
    take: impl FnOnce(BufReader<ChildStdout>) -> Result<u64, FinishError>,
) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("cannot find this program's executable")?;
    let mut command = process::Command::new(program);
    command.args(["journal", what, "--json"]).arg(data).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start `ringwell journal`")?;
    let lines = child.stdout.take().context("no output")?;
    let taken = take(BufReader::new(lines));
    let status = child.wait()?;
    ensure!(status.success(), "`ringwell journal {what}` ended with {status}");
    Ok(taken?)
}

impl Run {
    fn plan(self) -> anyhow::Result<LoadPlan> {
        Ok(LoadPlan {
            pools: Pool::read_list(&self.pools.unwrap_or_else(usual_list))?,
            targets: self.targets,
            spread: self.spread,
            rows: self.rows,
            pace: match self.rate {
                None => Pace::Closed,
                Some(rate) => Pace::Open { rate, spikes: self.spike },
            },
            ramp: self.ramp,
            duration: self.duration,
            connections: self.connections,
            threads: self.threads,
            timeout: self.timeout,
            deadline: self.deadline,
            history: self.history,
            retry: self.retry,
        })
    }
}

fn as_json(outcome: &Outcome) -> anyhow::Result<String> {
    Ok(serde_json::to_string(outcome)? + "\n")
}

/// A status line on a terminal, overwritten in place. Prints nothing if stderr is not a terminal.
struct LiveView {
    is_shown: bool,
}

impl LiveView {
    fn new() -> Self {
        let is_shown = io::stderr().is_terminal();
        if is_shown {
            print_note("latencies: p50 p90 p99 p99.9 of the last interval");
        }
        Self { is_shown }
    }

    fn show(&mut self, progress: &Progress) {
        if self.is_shown {
            // `\r\x1b[K` moves the cursor to the start of the line and clears the line.
            let _ = write!(io::stderr(), "\r\x1b[K{}", progress.line());
        }
    }

    fn end(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
