//! Runs all tests of the workspace, several test programs at a time.
//!
//! Many tests spend their time waiting for servers, for lockouts, or for links that are cut.
//! `cargo test` runs one program after another, so the machine would be idle for much of the time.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};

use crate::ci::memory;
use crate::engine;
use crate::shell::{WORKSPACE, as_by_hand, cargo, programs, target_dir};

/// The slowest programs. They start first, so that none of them runs alone at the end. The list
/// affects only the total time of the run.
const LONG: [&str; 8] =
    ["faults", "visitors", "seeds", "engine", "network", "restart", "cluster", "haproxy"];

/// The longest time that a program may take; its tests take minutes at most. A test that waits
/// forever fails, and its program is named, instead of blocking the whole run.
const LIMIT: &str = "600s";

/// The exit codes of `timeout` if a program did not end in time: at SIGTERM, and at SIGKILL.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;

/// The program that builds production code with planted bugs. It is a separate step.
const PLANTED: &str = "planted_bugs";

/// The count of programs that run at the same time in addition to one per processor, because most
/// programs spend much of their time waiting.
const WAITING: usize = 1;

/// Programs that run one after another, while all other programs run in parallel. Together, the
/// programs in this list use the processor for only half a minute, and spend three minutes waiting.
const IDLE: [&str; 6] = ["pages", "directory", "sip", "growth", "dashboard", "application"];

/// Programs that need a disk: they simulate a power cut, measure the disk, or wait until a page has
/// been written. All other programs keep their files in memory. Each server that they start writes
/// segments of hundreds of megabytes, and would have to wait while these programs use the disk.
const ON_DISK: [&str; 5] = ["additions", "crash", "faults", "log", "restart"];

/// The file that lists the failed tests of the last run, relative to the target directory. Each
/// line consists of a program's name, a tab, and a test's name.
const FAILED: &str = "ci/failed-tests.txt";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only run the tests that failed in the last run, one after another.
    #[arg(long)]
    failed: bool,
}

/// A program of tests.
struct Program {
    name: String,
    target: String,
    executable: PathBuf,
    /// The working directory that `cargo test` would use.
    folder: PathBuf,
    /// The tests to run, or empty to run all tests of the program.
    tests: Vec<String>,
}

/// A program that failed.
struct Failure {
    program: String,
    printed: String,
}

/// Builds and runs all tests, or those that failed in the last run, except for planted bugs and the
/// longest tests with nats-servers.
///
/// # Errors
/// If a build or a test fails. The output of the failed programs is printed last.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut programs = build()?;
    let list = target_dir().join(FAILED);
    let mut at_once = thread::available_parallelism().map_or(1, usize::from) + WAITING;
    if args.failed {
        at_once = 1;
        keep_failed(&mut programs, &fs::read_to_string(&list).context(FAILED)?);
    }
    let is_idle = |program: &Program| !args.failed && IDLE.contains(&program.target.as_str());
    let (idle, programs): (VecDeque<_>, _) = programs.into_iter().partition(is_idle);
    let (waiting, idle) = (Mutex::new(programs), Mutex::new(idle));
    let failed = Mutex::new(Vec::new());
    let run_all = |programs: &Mutex<VecDeque<Program>>| {
        let next = || programs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some(program) = next() {
            if let Some(failure) = failure(&program) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run_all(&idle));
        for _ in 0..at_once {
            scope.spawn(|| run_all(&waiting));
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    for Failure { printed, .. } in &failed {
        println!("{printed}");
    }
    if !args.failed {
        fs::create_dir_all(target_dir().join("ci"))?;
        fs::write(list, failed.iter().map(lines).collect::<Vec<_>>().concat()).context(FAILED)?;
    }
    if failed.is_empty() { Ok(()) } else { bail!("{} test programs failed", failed.len()) }
}

/// The lines of [`FAILED`]. If a program ended before it named a failed test, its line contains no
/// test.
fn lines(failure: &Failure) -> String {
    let Failure { program, printed } = failure;
    let tests =
        printed.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let lines: Vec<String> = tests.map(|test| format!("{program}\t{test}\n")).collect();
    if lines.is_empty() { format!("{program}\t\n") } else { lines.concat() }
}

/// Keeps only the programs in `list`, with their failed tests.
fn keep_failed(programs: &mut VecDeque<Program>, list: &str) {
    programs.retain_mut(|program| {
        let entries = list.lines().filter_map(|line| line.split_once('\t'));
        let mut tests: Vec<String> = Vec::new();
        for (_, test) in entries.filter(|(name, _)| *name == program.name) {
            tests.push(test.to_owned());
        }
        let is_listed = !tests.is_empty();
        if !tests.iter().any(String::is_empty) {
            program.tests = tests;
        }
        is_listed
    });
}

/// Runs a program, and shows its output in one piece when it ends; returns the output if a test
/// failed.
fn failure(program: &Program) -> Option<Failure> {
    let mut command = as_by_hand("timeout");
    command.args(["--kill-after=10s", LIMIT]).arg(&program.executable);
    if !program.tests.is_empty() {
        command.args(["--exact", "--test-threads", "1"]).args(&program.tests);
    } else if program.target == "engine" {
        // Tests that run at the same time would disturb each other's measurements.
        command.args(["--test-threads", "1"]);
        command.args(engine::LONG.iter().flat_map(|name| ["--skip", name]));
    }
    if program.target == "engine"
        && let Some(server) = engine::installed()
    {
        command.env("NATS_SERVER", server);
    }
    if !ON_DISK.contains(&program.target.as_str())
        && let Some(memory) = memory()
    {
        command.env("TMPDIR", memory);
    }
    let done = command.current_dir(&program.folder).output();
    let (is_good, printed) = match done {
        Ok(done) => {
            let [out, err] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
            let ended = match done.status.code() {
                Some(TIMED_OUT | KILLED) => format!("ended after {LIMIT}\n"),
                _ => String::new(),
            };
            let printed = format!("     Running {}\n{out}{err}{ended}", program.name);
            (done.status.success(), printed)
        }
        Err(error) => (false, format!("     Running {}: {error}", program.name)),
    };
    println!("{printed}");
    (!is_good).then(|| Failure { program: program.name.clone(), printed })
}

/// The programs that `cargo test` would run, with the slow programs first.
fn build() -> anyhow::Result<VecDeque<Program>> {
    let mut built = programs(cargo().args(["test", "--no-run"]).args(WORKSPACE))?;
    built.retain(|message| message["profile"]["test"] == true);
    let mut programs = VecDeque::new();
    for message in built {
        let executable =
            message["executable"].as_str().context("cargo's output names no program")?;
        let manifest =
            message["manifest_path"].as_str().context("cargo's output names no package")?;
        let folder = Path::new(manifest).parent().context("a package has no folder")?.to_owned();
        let target =
            message["target"]["name"].as_str().context("cargo's output names no target")?;
        if target == PLANTED {
            continue;
        }
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let program = Program {
            name: format!("{package}: {target}"),
            target: target.to_owned(),
            executable: executable.into(),
            folder: folder.clone(),
            tests: Vec::new(),
        };
        if LONG.contains(&target) {
            programs.push_front(program);
        } else {
            programs.push_back(program);
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str) -> Program {
        let (target, executable, folder) = (String::new(), PathBuf::new(), PathBuf::new());
        Program { name: name.to_owned(), target, executable, folder, tests: Vec::new() }
    }

    #[test]
    fn failed_tests_are_listed_and_kept() {
        let printed = "test a ... ok\ntest b::c ... FAILED\ntest d ... FAILED\n".to_owned();
        let failed = Failure { program: "cli: sip".to_owned(), printed };
        let ended = Failure { program: "os: os".to_owned(), printed: "killed".to_owned() };
        let list = lines(&failed) + &lines(&ended);
        let mut programs = ["cli: sip", "cli: edge", "os: os"].map(program).into();
        keep_failed(&mut programs, &list);
        let kept: Vec<(&str, &[String])> =
            programs.iter().map(|kept| (kept.name.as_str(), &kept.tests[..])).collect();
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0], ("cli: sip", &["b::c".to_owned(), "d".to_owned()][..]));
        assert_eq!(kept[1], ("os: os", &[][..]));
    }
}
