//! The steps of CI and of the nightly run. The output of each step is in its own file in
//! `target/ci`, so that a reader of the log sees at once which step failed and why.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::shell::{self, root, target_dir};

/// The count of lines printed from the end of a failed step's output.
const LINES_SHOWN: usize = 120;

/// The interval at which a line about a running step is printed.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The results of the steps, in the order in which they ended.
#[derive(Default)]
pub(crate) struct Steps(Mutex<Vec<Done>>);

/// A step that has ended.
#[derive(Clone)]
pub(crate) struct Done {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// The seconds that the step took, or the reason why it was skipped.
    pub(crate) text: String,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, text, .. } = self;
        match self.outcome {
            Outcome::Passed => write!(f, "passed {name} ({text})"),
            Outcome::Failed => write!(f, "FAILED {name} ({text})"),
            Outcome::Repeated => {
                write!(f, "repeated {name} (failed while other steps ran, after {text})")
            }
            Outcome::Skipped => write!(f, "skipped {name}: {text}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// The step failed, and was then run again alone.
    Repeated,
    Skipped,
}

impl Steps {
    /// Runs a step. The lines about the step are printed together, even if other steps run at the
    /// same time.
    pub(crate) fn step(&self, name: &str, command: &mut Command) {
        let start = Instant::now();
        let log = log_of(name);
        println!("== {name}: {}", log.display());
        // Some drills panic on purpose; without a backtrace, each panic prints only one line.
        command.current_dir(root()).env("RUST_BACKTRACE", "0");
        let (outcome, shown) = match with_heartbeat(name, &log, || run_into(&log, command)) {
            Ok(()) => (Outcome::Passed, counts(&log)),
            Err(error) => (Outcome::Failed, format!("{}\n{error:#}\n", last_lines(&log))),
        };
        let text = format!("{:.0} s", start.elapsed().as_secs_f64());
        let done = Done { name: name.to_owned(), outcome, text };
        println!("{shown}{done}");
        self.add(done);
    }

    pub(crate) fn skip(&self, name: &str, why: &str) {
        let (name, text) = (name.to_owned(), why.to_owned());
        self.add(Done { name, outcome: Outcome::Skipped, text });
    }

    fn add(&self, done: Done) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }

    /// If a step has failed, marks it as repeated and renames its log. Returns whether the step had
    /// failed.
    pub(crate) fn repeat(&self, name: &str) -> bool {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_failed = |done: &&mut Done| done.name == name && done.outcome == Outcome::Failed;
        let Some(failed) = steps.iter_mut().find(has_failed) else { return false };
        failed.outcome = Outcome::Repeated;
        let log = log_of(name);
        // If the log cannot be renamed, only the log of the second attempt remains.
        let _ = fs::rename(&log, log.with_extension("failed.log"));
        true
    }

    /// The steps that have ended.
    pub(crate) fn done(&self) -> Vec<Done> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints all results.
    ///
    /// # Errors
    /// If at least one step failed.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        let steps = self.done();
        println!("\n== summary");
        for done in &steps {
            println!("{done}");
        }
        let count = |wanted| steps.iter().filter(|done| done.outcome == wanted).count();
        let failed = count(Outcome::Failed);
        println!(
            "steps: {} passed, {failed} failed, {} run again, {} skipped",
            count(Outcome::Passed),
            count(Outcome::Repeated),
            count(Outcome::Skipped)
        );
        if failed > 0 {
            bail!("failed");
        }
        Ok(())
    }
}

fn log_of(name: &str) -> PathBuf {
    target_dir().join("ci").join(name.replace([' ', '\''], "-")).with_extension("log")
}

/// Runs `step`. At every [`HEARTBEAT`], prints that the step is still running, and the newest line
/// of its log, so that a reader sees whether CI makes progress.
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

/// Runs a command to its end, and writes its output to a file.
fn run_into(log: &Path, command: &mut Command) -> anyhow::Result<()> {
    let folder = log.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = File::create(log).with_context(|| log.display().to_string())?;
    shell::run(command.stdout(file.try_clone()?).stderr(file))
}

/// The lines in which test programs report their names and their counts of tests.
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

/// The text of a file, even if the file is not valid UTF-8.
fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}
