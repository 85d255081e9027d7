//! The steps of CI, which are the same for `.ci/run` and for a developer. Longer steps run every
//! night: see `nightly.rs`.
//!
//! All steps use one build of the whole workspace, with one profile (`dev`, slightly optimised). A
//! second build would cost more time than it is worth. Four lanes of steps run at the same time:
//! tests; the snippet and other clients; the dashboard and counts; and lints. No step asserts
//! durations, but some tests need an answer in time. If a test fails while other steps are running,
//! it runs again alone, and the second result counts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::api;
use crate::shell::{self, WORKSPACE, as_by_hand, cargo, is_installed, root, target_dir};
use crate::steps::Steps;

/// The path of the browser on Debian.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Checks workflows, with their expressions, actions and inputs.
const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.10";

/// A file system in memory. It is used only if this many bytes are free in it.
const MEMORY: &str = "/dev/shm";
const MEMORY_BYTES_MIN: u64 = 8 << 30;

/// Runs a step and adds its result.
type Run = fn(&Steps);

/// Steps that use a browser or time limits, and run again if they fail. The log then contains the
/// output of the second run.
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
    // Builds everything for the other steps in a single build. If a part were built alone, it would
    // have different features, and many crates would be built twice.
    steps.step("build", cargo().args(["build", "--all-targets"]).args(WORKSPACE));
    // The gem's tests run alone, because they must cover the code that handles time limits.
    gem(&steps);
    thread::scope(|scope| {
        // The tests mostly wait. They start before the lints, which hold cargo's lock. The crash
        // test with real processes is an integration test of ringwell-cli.
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

/// Tests web pages with the snippet, clients in other languages, and the management API.
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

/// Runs the lints at a low priority, so that they use only processor time that the tests do not
/// need.
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
    workflows(steps);
}

/// Checks the workflows of the public CI, which cannot run here.
fn workflows(steps: &Steps) {
    if is_installed("go") {
        steps.step("workflows", yielding(OsStr::new("go")).args(["run", ACTIONLINT]));
    } else {
        steps.skip("workflows", "go is not installed");
    }
}

/// Builds packages as a smoke run, and counts instructions.
fn measurements(steps: &Steps) {
    let xtask = || yielding(program("xtask").as_os_str());
    steps.step("packages", xtask().args(["dist", "--smoke"]));
    // The counts are last, because they wait for cargo's lock while the lints run.
    if is_installed("valgrind") {
        steps.step("counts", xtask().args(["counts", "--quick"]));
    } else {
        steps.skip("counts", "valgrind is not installed: .ci/run does it");
    }
}

/// The command that runs a program as if called by hand, but at a low priority.
fn yielding(program: &OsStr) -> Command {
    let mut command = as_by_hand("nice");
    command.args(["-n", "10"]).arg(program);
    command
}

/// Runs the gem's tests with this build's server and embedded engine.
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

/// Builds the script for web pages, and tests it in a real browser against the program.
fn snippet(steps: &Steps) {
    pages(steps, "snippet");
}

/// Tests the dashboard's pages in a real browser against the program.
fn dashboard(steps: &Steps) {
    pages(steps, "dashboard");
}

/// Runs a package's tests in `web` with a browser.
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

/// The in-memory directory for files of tests that do not need a disk, if enough memory is free.
/// The disk is then free for the tests that need it.
pub(crate) fn memory() -> Option<&'static str> {
    let mut df = Command::new("df");
    df.args(["--output=avail", "--block-size=1", MEMORY]);
    let printed = shell::output(&mut df).ok()?;
    let free: u64 = printed.lines().last()?.trim().parse().ok()?;
    (free >= MEMORY_BYTES_MIN).then_some(MEMORY)
}

/// The command for this program as it was built; `cargo xtask` would wait for another step's cargo.
pub(crate) fn xtask() -> Command {
    Command::new(program("xtask"))
}

/// The path of a program as it was built.
fn program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// The path of the engine's library as it was built.
fn library() -> PathBuf {
    target_dir().join(format!("debug/libringwell_embed{}", std::env::consts::DLL_SUFFIX))
}
