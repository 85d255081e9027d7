//! Builds the program that users get, with profile-guided optimisation: builds it once with
//! counters, runs it under load, and builds it again with the counts as the profile.
//!
//! The compiler then puts the code on a batch's path in one place, inlines function calls in that
//! code, and optimises all other code for size. The load resembles that of the benchmarks: batches
//! of several sizes, in the styles of JSON that clients write, with durability `disk` and without
//! it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::load::{ROWS, wrk_in_style};
use super::machine::Machine;
use super::server::{Demo, Programs, Server};
use crate::shell::{cargo, is_installed, output, run, target_dir, with_commit};

/// The name of this build, in places that otherwise name a cargo profile.
pub(crate) const GUIDED: &str = "guided";
/// The cargo profile of both builds.
const PROFILE: &str = "dist";
/// The runs of the counting program: the durability, the seconds, the rows per batch, and the style
/// of JSON.
const RUNS: [(&str, u32, u32, &str); 7] = [
    ("memory", 6, ROWS, "compact"),
    ("disk", 6, ROWS, "compact"),
    ("disk", 2, 1, "compact"),
    ("disk", 2, 5, "python"),
    ("disk", 3, ROWS, "python"),
    ("disk", 3, ROWS, "php"),
    ("disk", 3, ROWS, "go"),
];

/// Builds a benchmark's programs. `ringwell` is built with the named profile, or is the guided
/// build if the name is [`GUIDED`].
///
/// # Errors
/// If the build or a run of the counting program fails.
pub(super) fn programs(profile: &str, smoke: bool) -> anyhow::Result<Programs> {
    if profile != GUIDED {
        return Programs::build(profile, smoke);
    }
    Programs::beside(program(None)?, PROFILE, smoke)
}

/// Builds `ringwell` for a target, guided by the counting program's counts.
///
/// The counts come from a build for this machine's target, and are collected again only after the
/// sources have changed.
///
/// # Errors
/// If `llvm-profdata` is missing, a build fails, or the counting program does not serve.
pub(crate) fn program(target: Option<&str>) -> anyhow::Result<PathBuf> {
    for program in ["wrk", "taskset"] {
        ensure!(is_installed(program), "{program} is not installed (Debian: wrk, util-linux)");
    }
    let host = host()?;
    let tool = profdata(&host)?;
    let dir = target_dir().join(GUIDED);
    let counting = build(&host, &dir.join("counting"), "-Cprofile-generate")?;
    let merged = dir.join("merged.profdata");
    if is_older(&merged, &counting)? {
        let raw = dir.join("raw");
        if raw.exists() {
            std::fs::remove_dir_all(&raw)?;
        }
        exercise(&counting, &raw)?;
        run(Command::new(tool).arg("merge").arg("-o").arg(&merged).arg(&raw))?;
    }
    build(target.unwrap_or(&host), &dir, &format!("-Cprofile-use={}", merged.display()))
}

/// Builds into a separate directory, so that neither flags nor counts mix with other builds.
///
/// Because the target is named, Cargo passes the flags only to the target's crates and not to build
/// scripts.
fn build(target: &str, dir: &Path, flags: &str) -> anyhow::Result<PathBuf> {
    println!("building with {flags}");
    let mut command = cargo();
    command.args(["build", "--locked", "-p", "ringwell-cli", "--features", "nats"]);
    command.args(["--profile", PROFILE, "--target", target, "--target-dir"]).arg(dir);
    run(with_commit(command.env("RUSTFLAGS", flags))?)?;
    Ok(dir.join(target).join(PROFILE).join("ringwell"))
}

/// Runs the counting program under load; it writes its counts into `raw` when it ends.
fn exercise(counting: &Path, raw: &Path) -> anyhow::Result<()> {
    let mut programs = Programs::beside(counting.to_path_buf(), PROFILE, true)?;
    let mut file = OsString::from("LLVM_PROFILE_FILE=");
    file.push(raw.join("%p.profraw"));
    programs.under = vec!["env".into(), file];
    let machine = Machine::look(GUIDED)?;
    for (durability, seconds, rows, style) in RUNS {
        let demo = Demo::usual("counting", durability);
        let server = Server::demo(&programs, &machine.server_cores, &demo, false)?;
        let pools = server.pools().context("the demo has no pools")?;
        let sent = wrk_in_style(&machine, &server, &pools, [64, seconds, rows], style)?;
        server.stop()?;
        let problems = sent.problems();
        ensure!(problems.is_empty(), "{style}: {}", problems.join(", "));
        println!("counted {} batches of {rows} rows, {durability}, {style}", sent.requests);
    }
    Ok(())
}

/// Whether a file is missing or older than another.
fn is_older(file: &Path, than: &Path) -> anyhow::Result<bool> {
    let Ok(file) = file.metadata() else { return Ok(true) };
    Ok(file.modified()? < than.metadata()?.modified()?)
}

/// The target of this machine's compiler.
fn host() -> anyhow::Result<String> {
    let printed = output(Command::new("rustc").arg("-vV"))?;
    let host = printed.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("the output of rustc -vV has no host")?.to_owned())
}

/// The path of the tool that merges counts. It must belong to the same LLVM as the compiler.
fn profdata(host: &str) -> anyhow::Result<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let tool = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    ensure!(
        tool.is_file(),
        "{} is missing: run `rustup component add llvm-tools`, or build unguided with --profile \
         dist",
        tool.display()
    );
    Ok(tool)
}
