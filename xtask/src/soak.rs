//! A long run of the tests with real processes and real faults. The tests run one after another
//! until the time is up, with a different seed each time.
//!
//! Owns the list of these tests and the table of results. The tests themselves judge the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::shell::{self, cargo};

/// The page to which `--save` appends the table.
const REPORT: &str = "docs/reliability.md";

/// The options of a soak.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The duration; a round in progress when it ends is still finished.
    #[arg(long)]
    minutes: u64,
    /// Only faults of this name; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Append the table to docs/reliability.md.
    #[arg(long)]
    save: bool,
}

/// The tests of one kind of fault.
struct Fault {
    name: &'static str,
    test: &'static [&'static str],
    filter: &'static str,
}

const FAULTS: [Fault; 14] = [
    Fault { name: "kill-9", test: &["ringwell-cli", "crash"], filter: "" },
    Fault { name: "kill-9-judged", test: &["ringwell-cli", "faults"], filter: "kill::" },
    Fault { name: "full-disk", test: &["ringwell-cli", "full_disk"], filter: "" },
    Fault { name: "cluster", test: &["ringwell-cli", "cluster"], filter: "faults::" },
    Fault { name: "proxy", test: &["ringwell-cli", "haproxy"], filter: "a_node" },
    Fault { name: "clients", test: &["ringwell-cli", "hostile"], filter: "" },
    Fault { name: "clock", test: &["ringwell-cli", "faults"], filter: "clock::" },
    Fault { name: "crowd", test: &["ringwell-cli", "faults"], filter: "crowd::" },
    Fault { name: "descriptors", test: &["ringwell-cli", "faults"], filter: "descriptors::" },
    Fault { name: "disk", test: &["ringwell-cli", "faults"], filter: "disk::" },
    Fault { name: "limits", test: &["ringwell-cli", "faults"], filter: "limits::" },
    Fault { name: "pauses", test: &["ringwell-cli", "faults"], filter: "pauses::" },
    Fault { name: "power", test: &["ringwell-cli", "faults"], filter: "power::" },
    Fault { name: "damage", test: &["ringwell-fuzz", "damage"], filter: "" },
];

#[derive(Default)]
struct Line {
    rounds: u64,
    passed: u64,
    /// The count of crashes and of other faults, as reported by the tests.
    made: u64,
    rows: u64,
    violations: u64,
}

/// Runs rounds until the time is up and prints the table.
///
/// # Errors
/// If a round failed; the command that repeats the round has been printed by then.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let chosen = |fault: &&Fault| args.only.is_empty() || args.only.iter().any(|n| n == fault.name);
    let faults: Vec<&Fault> = FAULTS.iter().filter(chosen).collect();
    if faults.is_empty() {
        let names: Vec<_> = FAULTS.iter().map(|fault| fault.name).collect();
        bail!("there is no such fault; the faults are {}", names.join(", "));
    }
    let (start, limit) = (Instant::now(), Duration::from_secs(args.minutes * 60));
    let mut table: BTreeMap<&str, Line> = BTreeMap::new();
    for (seed, fault) in (1..).zip(faults.iter().cycle()) {
        round(fault, seed, table.entry(fault.name).or_default())?;
        let has_run_all = table.len() == faults.len();
        if has_run_all && start.elapsed() >= limit {
            break;
        }
    }
    let violations: u64 = table.values().map(|line| line.violations).sum();
    let text = report(&table, start.elapsed())?;
    println!("{text}");
    if args.save {
        let before = fs::read_to_string(REPORT).context(REPORT)?;
        fs::write(REPORT, format!("{}\n{text}", before.trim_end().to_owned() + "\n"))?;
    }
    if violations > 0 {
        bail!("{violations} rounds failed");
    }
    Ok(())
}

fn round(fault: &Fault, seed: u64, line: &mut Line) -> anyhow::Result<()> {
    let [package, test] = fault.test else { bail!("a fault names a package and a test") };
    let mut command = cargo();
    command.args(["test", "--quiet", "--locked", "--package", package, "--test", test, "--"]);
    command.args(["--nocapture", fault.filter]).env("RINGWELL_CRASH_SEED", seed.to_string());
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    line.rounds += 1;
    line.passed += before(&said, " passed;");
    line.made += before(&said, " crashes:") + before(&said, " faults:");
    line.rows += before(&said, " rows,");
    if !output.status.success() {
        line.violations += 1;
        println!("{said}\nRINGWELL_CRASH_SEED={seed} cargo test -p {package} --test {test}");
    }
    Ok(())
}

/// The sum of the counts that precede `word`, for example `rows` in
/// `20 crashes: 4100 rows, 3900 numbers …`. The dot that marks a passed test may precede a count.
fn before(said: &str, word: &str) -> u64 {
    let last = |line: &str| Some(line.split_once(word)?.0.rsplit(' ').next()?.to_owned());
    let count = |line: &str| last(line)?.trim_start_matches('.').parse::<u64>().ok();
    said.lines().filter_map(count).sum()
}

fn report(table: &BTreeMap<&str, Line>, took: Duration) -> anyhow::Result<String> {
    let commit = shell::output(Command::new("git").args(["rev-parse", "--short", "HEAD"]))?;
    let minutes = took.as_secs() / 60;
    let mut text = format!("### Soak of {minutes} min at {}\n\n", commit.trim());
    text += "| faults | rounds | tests passed | faults made | rows checked | violations |\n";
    text += "|---|---|---|---|---|---|\n";
    for (name, Line { rounds, passed, made, rows, violations }) in table {
        writeln!(text, "| {name} | {rounds} | {passed} | {made} | {rows} | {violations} |")?;
    }
    Ok(text)
}
