//! The whole of CI: what `.ci/run` and a developer run alike.
//!
//! One profile (`dev`, optimised a little) serves tests and smoke runs, because building the
//! workspace a second time would cost more than it shows. No step asserts a time.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::bail;

use crate::api;
use crate::shell::{self, cargo, is_installed, root, target_dir};

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
    summary.step("tests", &["test", "--workspace", "--locked"]);
    if is_installed("cargo-deny") {
        summary.step("licences", &["deny", "--locked", "check", "licenses", "bans", "sources"]);
    } else {
        summary.skip("licences", "cargo-deny is not installed");
    }
    if is_installed("ruby") {
        // Tests link no library that other languages load.
        summary.step("engine's library", &["build", "--package", "ringwell-embed", "--locked"]);
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
        println!("\n== {name}");
        let start = Instant::now();
        let result = shell::run(command.current_dir(root()));
        let word = if result.is_ok() { "passed" } else { "FAILED" };
        if let Err(error) = result {
            println!("{error:#}");
            self.failed += 1;
        } else {
            self.passed += 1;
        }
        self.lines.push(format!("{word} {name} ({:.0} s)", start.elapsed().as_secs_f64()));
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
