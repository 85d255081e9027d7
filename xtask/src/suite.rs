//! All tests of the workspace, several programs at a time.
//!
//! Many tests wait: for servers, for lockouts, for links that are cut. `cargo test` runs one
//! program after another, and the machine is idle for much of that time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};

use crate::engine;
use crate::shell::{WORKSPACE, as_by_hand, cargo, programs};

/// The slowest programs start first, so that none of them runs alone at the end. This list only
/// affects the time.
const LONG: [&str; 9] =
    ["faults", "pages", "visitors", "seeds", "engine", "network", "restart", "cluster", "haproxy"];

/// Builds with bugs in production code, which is a step of its own.
const PLANTED: &str = "planted_bugs";

/// Runs this many programs more than there are processors, because most of them mostly wait.
const WAITING: usize = 1;

/// A program of tests.
struct Program {
    name: String,
    target: String,
    executable: PathBuf,
    /// The working directory that `cargo test` would use.
    folder: PathBuf,
}

/// Builds and runs all tests, except for planted bugs and the longest tests with nats-servers.
///
/// # Errors
/// If a build or a test fails; the program's output comes last.
pub(crate) fn run() -> anyhow::Result<()> {
    let programs = build()?;
    let at_once = thread::available_parallelism().map_or(1, usize::from) + WAITING;
    let (waiting, failed) = (Mutex::new(programs), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = next() {
                    if let Some(printed) = failure(&program) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(printed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    for printed in &failed {
        println!("{printed}");
    }
    if failed.is_empty() { Ok(()) } else { bail!("{} programs of tests failed", failed.len()) }
}

/// Runs a program and shows its output as a whole; returns the output if a test failed.
fn failure(program: &Program) -> Option<String> {
    let mut command = as_by_hand(&program.executable);
    if program.target == "engine" {
        // Side by side they would measure each other.
        command.args(["--test-threads", "1"]);
        command.args(engine::LONG.iter().flat_map(|name| ["--skip", name]));
        if let Some(server) = engine::installed() {
            command.env("NATS_SERVER", server);
        }
    }
    let done = command.current_dir(&program.folder).output();
    let (is_good, printed) = match done {
        Ok(done) => {
            let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
            (done.status.success(), format!("     Running {}\n{out}{err}", program.name))
        }
        Err(error) => (false, format!("     Running {}: {error}", program.name)),
    };
    println!("{printed}");
    (!is_good).then_some(printed)
}

/// The programs as `cargo test` would run them, the slow ones first.
fn build() -> anyhow::Result<VecDeque<Program>> {
    let mut built = programs(cargo().args(["test", "--no-run"]).args(WORKSPACE))?;
    built.retain(|message| message["profile"]["test"] == true);
    let mut programs = VecDeque::new();
    for message in built {
        let executable = message["executable"].as_str().context("cargo names no program")?;
        let manifest = message["manifest_path"].as_str().context("cargo names no package")?;
        let folder = Path::new(manifest).parent().context("a package lies nowhere")?.to_owned();
        let target = message["target"]["name"].as_str().context("cargo names no target")?;
        if target == PLANTED {
            continue;
        }
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let program = Program {
            name: format!("{package}: {target}"),
            target: target.to_owned(),
            executable: executable.into(),
            folder: folder.clone(),
        };
        if LONG.contains(&target) {
            programs.push_front(program);
        } else {
            programs.push_back(program);
        }
    }
    Ok(programs)
}
