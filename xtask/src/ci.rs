//! CI: the same steps for `.ci/run` and for a developer. Longer ones run every night: `nightly.rs`.
//!
//! One profile (`dev`, slightly optimised) and one build of the whole workspace serve all steps,
//! because a second build would cost more than it shows. Four lanes of steps run at the same time:
//! tests; the snippet and other clients; the dashboard and counts; and lints. No step asserts
//! durations, but some tests need an answer in time: tests that failed beside other steps run again
//! alone, and that result decides.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::api;
use crate::shell::{self, WORKSPACE, as_by_hand, cargo, is_installed, root, target_dir};
use crate::steps::Steps;

/// The browser, where Debian puts it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// A file system in memory, and the bytes that must be free there.
const MEMORY: &str = "/dev/shm";
const MEMORY_BYTES_MIN: u64 = 8 << 30;

/// Runs a step and adds its result.
type Run = fn(&Steps);

/// Steps that use a browser or time limits. A log keeps the output of the last run.
const REPEATABLE: [(&str, Run); 5] = [
    ("gem", gem),
    ("management API", management_api),
    ("golden clients", golden_clients),
    ("snippet", snippet),
    ("dashboard", dashboard),
];

/// Runs every step, even after one has failed, and lists the failed ones.
///
/// # Errors
/// If at least one step failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let steps = Steps::default();
    steps.step("format", cargo().args(["fmt", "--all", "--check"]));
    // Makes all builds for the other steps at once: a part built alone would have different
    // features, and much would be built twice.
    steps.step("build", cargo().args(["build", "--all-targets"]).args(WORKSPACE));
    // Runs alone, because it measures the coverage of its time limits.
    gem(&steps);
    thread::scope(|scope| {
        // Starts before lints, which hold cargo's lock. Mostly waits. The crash test with real
        // processes is an integration test of ringwell-cli.
        scope.spawn(|| steps.step("tests", xtask().arg("suite")));
        scope.spawn(|| clients(&steps));
        scope.spawn(|| dashboard_and_counts(&steps));
        scope.spawn(|| lints(&steps));
    });
    if steps.repeat("tests") {
        steps.step("failed tests alone", xtask().args(["suite", "--failed"]));
    }
    for (name, run) in REPEATABLE {
        if steps.repeat(name) {
            run(&steps);
        }
    }
    steps.finish()
}

fn management_api(steps: &Steps) {
    if api::schemathesis().is_some() {
        steps.step("management API", xtask().arg("api"));
    } else {
        steps.skip("management API", "schemathesis is not installed: .ci/run does it");
    }
}

/// Runs pages with the snippet, and programs of other languages.
fn clients(steps: &Steps) {
    snippet(steps);
    golden_clients(steps);
    management_api(steps);
}

fn dashboard_and_counts(steps: &Steps) {
    dashboard(steps);
    measurements(steps);
}

fn golden_clients(steps: &Steps) {
    steps.step("golden clients", xtask().arg("clients"));
}

/// Uses only the processor time that the tests leave.
fn lints(steps: &Steps) {
    let cargo = || yielding(cargo().get_program());
    let mut lints = cargo();
    lints.args(["build", "--all-targets"]).args(WORKSPACE);
    lints.env("RUSTC_WORKSPACE_WRAPPER", root().join("xtask/lint"));
    steps.step("lints", &mut lints);
    if is_installed("cargo-deny") {
        let words = ["deny", "--locked", "check", "licenses", "bans", "sources"];
        steps.step("licences", cargo().args(words));
    } else {
        steps.skip("licences", "cargo-deny is not installed; a test of the rules has checked them");
    }
}

/// Runs the counts, and makes a smoke run of packages.
fn measurements(steps: &Steps) {
    let xtask = || yielding(program("xtask").as_os_str());
    steps.step("packages", xtask().args(["dist", "--smoke"]));
    // Last, because it waits for cargo while lints run.
    if is_installed("valgrind") {
        steps.step("counts", xtask().args(["counts", "--quick"]));
    } else {
        steps.skip("counts", "valgrind is not installed: .ci/run does it");
    }
}

/// A program as if called by hand, at a low priority.
fn yielding(program: &OsStr) -> Command {
    let mut command = as_by_hand("nice");
    command.args(["-n", "10"]).arg(program);
    command
}

/// Runs the gem's tests, with a server and the embedded engine of this build.
fn gem(steps: &Steps) {
    if is_installed("ruby") {
        let mut gem = Command::new("ruby/test");
        gem.env("RINGWELL_BIN", program("ringwell")).env("RINGWELL_EMBED", library());
        if let Some(memory) = memory() {
            gem.env("TMPDIR", memory);
        }
        steps.step("gem", &mut gem);
    } else {
        steps.skip("gem", "ruby is not installed: ruby/setup does it");
    }
}

/// Builds the script of web pages, and tests it in a real browser against the program.
fn snippet(steps: &Steps) {
    pages(steps, "snippet");
}

/// Tests the dashboard's pages, served by the program to a real browser.
fn dashboard(steps: &Steps) {
    pages(steps, "dashboard");
}

/// Runs the tests of a package of `web` with a browser.
fn pages(steps: &Steps, name: &str) {
    let package = root().join("web").join(name);
    if !package.join("node_modules").is_dir() || !Path::new(CHROMIUM).is_file() {
        let why = "its packages or chromium are not installed: .ci/run does it";
        return steps.skip(name, why);
    }
    let mut test = Command::new("npm");
    test.arg("--prefix").arg(package).args(["run", "--silent", "ci"]);
    test.env("RINGWELL_BIN", program("ringwell")).env("CHROMIUM", CHROMIUM);
    if let Some(memory) = memory() {
        test.env("TMPDIR", memory);
    }
    steps.step(name, &mut test);
}

/// The place in memory for files of tests that do not need a disk, if there is enough room: the
/// disk is busy with tests that do.
pub(crate) fn memory() -> Option<&'static str> {
    let mut df = Command::new("df");
    df.args(["--output=avail", "--block-size=1", MEMORY]);
    let printed = shell::output(&mut df).ok()?;
    let free: u64 = printed.lines().last()?.trim().parse().ok()?;
    (free >= MEMORY_BYTES_MIN).then_some(MEMORY)
}

/// This program, as built: `cargo xtask` would wait for another step's cargo.
pub(crate) fn xtask() -> Command {
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
