//! `cargo xtask nightly`: runs the tests that take too long for every commit.
//!
//! `--save` writes the result to `docs/nightly.md`, in place of the previous result.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::api;
use crate::ci::xtask;
use crate::jmeter;
use crate::shell::{WORKSPACE, cargo, output, root};
use crate::steps::{Done, Outcome, Steps};

/// The page to which `--save` writes the result.
const PAGE: &str = "docs/nightly.md";

/// The count of seeds for each simulator test. For every commit, CI uses 60, and 150 for a shared
/// log.
const SEEDS: &str = "1500";

/// The count of times that a server is killed under load. For every commit, CI uses 20.
const CRASHES: &str = "100";

/// The count of requests to each operation of the management API. For every commit, CI uses 8.
const EXAMPLES: &str = "100";

/// The duration in seconds of the day-of-calls test, not counting its server's 143 starts.
const DAY_SECONDS: &str = "80";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the result to docs/nightly.md.
    #[arg(long)]
    save: bool,
}

/// Runs every step, even after one has failed, and lists the failed ones.
///
/// # Errors
/// If at least one step failed, or the result cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (start, steps) = (Instant::now(), Steps::default());
    steps.step("build", cargo().args(["build", "--all-targets"]).args(WORKSPACE));
    steps.step("all planted bugs", &mut test("planted_bugs"));
    steps.step("simulator", test("seeds").env("RINGWELL_SIM_SEEDS", SEEDS));
    steps.step("simulator of a shared log", test("log").env("RINGWELL_SIM_SEEDS", SEEDS));
    steps.step("crashes", test("crash").env("RINGWELL_CRASH_ROUNDS", CRASHES));
    let mut day = test("calls");
    day.args(["a_day_with", "--include-ignored"]).env("RINGWELL_DAY_SECONDS", DAY_SECONDS);
    steps.step("a day of calls with crashes", &mut day);
    if api::schemathesis().is_some() {
        steps.step("management API", xtask().args(["api", "--examples", EXAMPLES]));
    } else {
        steps.skip("management API", "schemathesis is not installed: .ci/nightly does it");
    }
    steps.step("journals on nats-servers", xtask().arg("engine"));
    steps.step("benchmarks", xtask().args(["bench", "all", "--smoke"]));
    if jmeter::home().is_some() {
        steps.step("JMeter", xtask().arg("jmeter"));
    } else {
        steps.skip("JMeter", "it is not installed: .ci/nightly does it");
    }
    steps.step("counts", xtask().arg("counts"));
    steps.step("examples in comments", cargo().args(["test", "--doc"]).args(WORKSPACE));
    if args.save {
        let text = page(&steps.done(), start.elapsed().as_secs())?;
        fs::write(root().join(PAGE), text).context(PAGE)?;
    }
    steps.finish()
}

/// The command that runs the test program of this name.
fn test(name: &str) -> Command {
    let mut command = cargo();
    command.arg("test").args(WORKSPACE).args(["--test", name, "--", "--nocapture"]);
    command
}

/// The page with the last result.
fn page(steps: &[Done], seconds: u64) -> anyhow::Result<String> {
    let said = |program: &str, words: &[&str]| output(Command::new(program).args(words));
    let commit = said("git", &["rev-parse", "--short", "HEAD"])?;
    let date = said("date", &["--utc", "+%Y-%m-%d %H:%M UTC"])?;
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.unwrap_or("unknown processor").trim_start_matches([':', ' ', '\t']);
    let cores = std::thread::available_parallelism()?;
    let mut text = format!(
        "# The last nightly run\n\n\
        `.ci/nightly` runs the tests that take too long for every commit, and writes this page.\n\
        [Reliability](reliability.md) describes the tests.\n\n\
        Commit {}, {}, {cores} x {model}, {} min {} s in total.\n\n\
        | step | result | time |\n|---|---|---|\n",
        commit.trim(),
        date.trim(),
        seconds / 60,
        seconds % 60
    );
    for Done { name, outcome, text: time } in steps {
        let result = match outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "**failed**",
            Outcome::Repeated => "repeated",
            Outcome::Skipped => "skipped",
        };
        writeln!(text, "| {name} | {result} | {time} |")?;
    }
    Ok(text)
}
