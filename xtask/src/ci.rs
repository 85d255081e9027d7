//! The whole of CI: what `.ci/run` and a developer run alike.
//!
//! One profile (`dev`, optimised a little) serves tests and smoke runs, because building the
//! workspace a second time would cost more than it shows. No step asserts a time.
//!
//! What a step prints goes to a file of `target/ci`: a reader of the whole wants to see at once
//! which step failed and why, not what the good ones had to say.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::api;
use crate::jmeter;
use crate::shell::{self, cargo, is_installed, root, target_dir};

/// So many of the last lines of a step that failed are printed.
const LINES_SHOWN: usize = 120;

/// Runs every step, also after one failed, and names those that did.
///
/// # Errors
/// When at least one step failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut summary = Summary::default();
    summary.step("format", &["fmt", "--all", "--check"]);
    summary.step(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    );
    // The crash test with real processes is an integration test of ringwell-cli.
    summary.step("tests", &["xtask", "suite"]);
    if is_installed("cargo-deny") {
        summary.step("licences", &["deny", "--locked", "check", "licenses", "bans", "sources"]);
    } else {
        summary.skip("licences", "cargo-deny is not installed");
    }
    if is_installed("ruby") {
        // Tests link no library that other languages load. By itself it would have other features
        // of what it stands on, and build all of that again.
        summary.step("engine's library", &["build", "--workspace", "--lib", "--locked"]);
        let mut gem = Command::new("ruby/test");
        gem.env("RINGWELL_BIN", program()).env("RINGWELL_EMBED", library());
        summary.step_of("gem", &mut gem);
    } else {
        summary.skip("gem", "ruby is not installed: ruby/setup does it");
    }
    if api::schemathesis().is_some() {
        // The program is the one that the tests have built.
        summary.step("management API", &["xtask", "api"]);
    } else {
        summary.skip("management API", "schemathesis is not installed: .ci/run does it");
    }
    if is_installed("valgrind") {
        summary.step("counts", &["xtask", "counts"]);
    } else {
        summary.skip("counts", "valgrind is not installed: .ci/run does it");
    }
    if jmeter::home().is_some() {
        summary.step("JMeter", &["xtask", "jmeter"]);
    } else {
        summary.skip("JMeter", "it is not installed: .ci/run does it");
    }
    summary.step("benchmarks", &["xtask", "bench", "all", "--smoke"]);
    summary.finish()
}

/// The program as the tests have built it.
fn program() -> PathBuf {
    target_dir().join("debug/ringwell")
}

/// The engine's library as its step has built it.
fn library() -> PathBuf {
    target_dir().join(format!("debug/libringwell_embed{}", std::env::consts::DLL_SUFFIX))
}

#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Summary {
    fn step(&mut self, name: &str, args: &[&str]) {
        self.step_of(name, cargo().args(args));
    }

    fn step_of(&mut self, name: &str, command: &mut Command) {
        let start = Instant::now();
        let log =
            target_dir().join("ci").join(name.replace([' ', '\''], "-")).with_extension("log");
        println!("== {name}: {}", log.display());
        // A drill that panics on purpose prints a line, not its stack.
        command.current_dir(root()).env("RUST_BACKTRACE", "0");
        let word = match run_into(&log, command) {
            Ok(()) => {
                print!("{}", counts(&log));
                self.passed += 1;
                "passed"
            }
            Err(error) => {
                println!("{}\n{error:#}", last_lines(&log));
                self.failed += 1;
                "FAILED"
            }
        };
        let line = format!("{word} {name} ({:.0} s)", start.elapsed().as_secs_f64());
        println!("{line}");
        self.lines.push(line);
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        self.lines.push(format!("skipped {name}: {why}"));
    }

    fn finish(self) -> anyhow::Result<()> {
        println!("\n== summary");
        for line in &self.lines {
            println!("{line}");
        }
        println!("steps: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed > 0 {
            bail!("CI failed");
        }
        Ok(())
    }
}

/// Runs to the end, with all that it prints in a file.
fn run_into(log: &Path, command: &mut Command) -> anyhow::Result<()> {
    let folder = log.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = File::create(log).with_context(|| log.display().to_string())?;
    shell::run(command.stdout(file.try_clone()?).stderr(file))
}

/// What programs of tests say of themselves: their names and how many tests ran.
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

/// A file's text, whatever is in it.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}
