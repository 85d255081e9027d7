//! The whole of CI: the same steps for `.ci/run` and for a developer.
//!
//! One profile (`dev`, slightly optimised) and one build of the whole workspace serve all steps,
//! because a second build would cost more than it shows. Steps that mostly wait run at the same
//! time as the lints. No step asserts durations.
//!
//! The output of a step goes to a file in `target/ci`, so that a reader of the log sees at once
//! which step failed and why.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::api;
use crate::jmeter;
use crate::shell::{self, BUILD, cargo, is_installed, root, target_dir};

/// The browser, where Debian puts it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// The count of last lines that are printed for a failed step.
const LINES_SHOWN: usize = 120;

/// The interval between two lines about a running step.
const HEARTBEAT: Duration = Duration::from_secs(30);

const LINTS: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];

/// Runs every step, even after one has failed, and lists the failed ones.
///
/// # Errors
/// If at least one step failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let summary = Summary::default();
    summary.step("format", cargo().args(["fmt", "--all", "--check"]));
    // All builds for the other steps at once: a part built alone would have other features, and
    // much would be built twice.
    summary.step("build", cargo().args(BUILD));
    // The crash test with real processes is an integration test of ringwell-cli.
    summary.step("tests", xtask().arg("suite"));
    gem(&summary);
    thread::scope(|scope| {
        scope.spawn(|| summary.step("lints", cargo().args(LINTS)));
        scope.spawn(|| browsers(&summary));
        beside_lints(&summary);
    });
    if is_installed("cargo-deny") {
        let words = ["deny", "--locked", "check", "licenses", "bans", "sources"];
        summary.step("licences", cargo().args(words));
    } else {
        summary
            .skip("licences", "cargo-deny is not installed; a test of the rules has checked them");
    }
    if is_installed("valgrind") {
        summary.step("counts", xtask().arg("counts"));
    } else {
        summary.skip("counts", "valgrind is not installed: .ci/run does it");
    }
    summary.step("packages", xtask().args(["dist", "--smoke"]));
    summary.step("benchmarks", xtask().args(["bench", "all", "--smoke"]));
    summary.finish()
}

/// Runs alone, because its benchmarks run for a third of a second each.
fn gem(summary: &Summary) {
    if is_installed("ruby") {
        let mut gem = Command::new("ruby/test");
        gem.env("RINGWELL_BIN", program("ringwell")).env("RINGWELL_EMBED", library());
        summary.step("gem", &mut gem);
    } else {
        summary.skip("gem", "ruby is not installed: ruby/setup does it");
    }
}

/// Browser tests, one after another.
fn browsers(summary: &Summary) {
    snippet(summary);
    dashboard(summary);
}

/// The script of web pages: its build, and a real browser against the program.
fn snippet(summary: &Summary) {
    if root().join("web/snippet/node_modules").is_dir() && Path::new(CHROMIUM).is_file() {
        let mut test = Command::new("npm");
        test.args(["--prefix", "web/snippet", "run", "--silent", "ci"]);
        test.env("RINGWELL_BIN", program("ringwell")).env("CHROMIUM", CHROMIUM);
        summary.step("snippet", &mut test);
    } else {
        summary.skip("snippet", "its packages or chromium are not installed: .ci/run does it");
    }
}

/// The dashboard's pages, served by the program to a real browser.
fn dashboard(summary: &Summary) {
    if root().join("web/dashboard/node_modules").is_dir() && Path::new(CHROMIUM).is_file() {
        let mut test = Command::new("npm");
        test.args(["--prefix", "web/dashboard", "run", "--silent", "ci"]);
        test.env("RINGWELL_BIN", program("ringwell")).env("CHROMIUM", CHROMIUM);
        summary.step("dashboard", &mut test);
    } else {
        summary.skip("dashboard", "its packages or chromium are not installed: .ci/run does it");
    }
}

/// Steps that mostly wait and need no cargo; they run one at a time.
fn beside_lints(summary: &Summary) {
    summary.step("golden clients", xtask().arg("clients"));
    if api::schemathesis().is_some() {
        summary.step("management API", xtask().arg("api"));
    } else {
        summary.skip("management API", "schemathesis is not installed: .ci/run does it");
    }
    if jmeter::home().is_some() {
        summary.step("JMeter", xtask().arg("jmeter"));
    } else {
        summary.skip("JMeter", "it is not installed: .ci/run does it");
    }
}

/// This program, as built: `cargo xtask` would wait for another step's cargo.
fn xtask() -> Command {
    Command::new(program("xtask"))
}

/// A program, as built.
fn program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// The engine's library, as built.
fn library() -> PathBuf {
    target_dir().join(format!("debug/libringwell_embed{}", std::env::consts::DLL_SUFFIX))
}

/// The results of the steps, in the order in which they ended.
#[derive(Default)]
struct Summary(Mutex<Vec<(Outcome, String)>>);

#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Summary {
    /// Runs a step. Prints its lines together, even if other steps run at the same time.
    fn step(&self, name: &str, command: &mut Command) {
        let start = Instant::now();
        let log =
            target_dir().join("ci").join(name.replace([' ', '\''], "-")).with_extension("log");
        println!("== {name}: {}", log.display());
        // A drill that panics on purpose prints one line instead of its stack.
        command.current_dir(root()).env("RUST_BACKTRACE", "0");
        let (outcome, word, shown) = match with_heartbeat(name, &log, || run_into(&log, command)) {
            Ok(()) => (Outcome::Passed, "passed", counts(&log)),
            Err(error) => (Outcome::Failed, "FAILED", format!("{}\n{error:#}\n", last_lines(&log))),
        };
        let line = format!("{word} {name} ({:.0} s)", start.elapsed().as_secs_f64());
        println!("{shown}{line}");
        self.add(outcome, line);
    }

    fn skip(&self, name: &str, why: &str) {
        self.add(Outcome::Skipped, format!("skipped {name}: {why}"));
    }

    fn add(&self, outcome: Outcome, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((outcome, line));
    }

    fn finish(self) -> anyhow::Result<()> {
        let steps = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("\n== summary");
        for (_, line) in &steps {
            println!("{line}");
        }
        let count = |wanted| steps.iter().filter(|(outcome, _)| *outcome == wanted).count();
        let failed = count(Outcome::Failed);
        println!(
            "steps: {} passed, {failed} failed, {} skipped",
            count(Outcome::Passed),
            count(Outcome::Skipped)
        );
        if failed > 0 {
            bail!("CI failed");
        }
        Ok(())
    }
}

/// Runs `step`, and prints at every [`HEARTBEAT`] that it is still running, with the newest line of
/// its log, so that a reader of a running CI sees whether it makes progress.
fn with_heartbeat<T>(name: &str, log: &Path, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while end.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                let text = read(log);
                let newest = text.lines().rev().find(|line| !line.trim().is_empty());
                let seconds = start.elapsed().as_secs();
                println!("   {name}, {seconds} s: {}", newest.unwrap_or("no output yet").trim());
            }
        });
        let result = step();
        drop(ended);
        result
    })
}

/// Runs a command to its end, with its output in a file.
fn run_into(log: &Path, command: &mut Command) -> anyhow::Result<()> {
    let folder = log.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = File::create(log).with_context(|| log.display().to_string())?;
    shell::run(command.stdout(file.try_clone()?).stderr(file))
}

/// The reports of test programs: their names and the count of tests.
fn counts(log: &Path) -> String {
    let is_count = |line: &&str| {
        let line = line.trim_start();
        ["Running ", "Doc-tests ", "test result: "].iter().any(|word| line.starts_with(word))
            || line.contains(" assertions, ")
    };
    read(log).lines().filter(is_count).map(|line| line.to_owned() + "\n").collect()
}

fn last_lines(log: &Path) -> String {
    let text = read(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

/// A file's text, even if it is not UTF-8.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}
