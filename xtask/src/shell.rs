//! Runs other programs in the root of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The arguments that select the whole workspace, with journals on NATS. If a command selected
/// fewer packages, their features would differ, and many crates would be built again.
pub(crate) const WORKSPACE: [&str; 4] =
    ["--workspace", "--features", "ringwell-cli/nats", "--locked"];

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The command for the cargo that runs this program, as if called by hand.
///
/// Cargo sets variables about its package for the programs that it runs. A build script that reads
/// such variables (such as ring's) would run again with xtask's values. Everything that depends on
/// that crate would then be built again, both now and when cargo is next called by hand.
pub(crate) fn cargo() -> Command {
    as_by_hand(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The command for a program, with the environment that a shell would give it, so that the program
/// may call cargo.
pub(crate) fn as_by_hand(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let is_of_package = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command to its end and shows its output.
///
/// # Errors
/// If the program cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", text(command)))?;
    ensure!(status.success(), "{} ended with {status}", text(command));
    Ok(())
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// If the program cannot be started, fails, or prints output that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let started = command.stderr(Stdio::inherit()).output();
    let output = started.with_context(|| format!("cannot start {}", text(command)))?;
    ensure!(output.status.success(), "{} ended with {}", text(command), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes a build contain the id of the current commit.
///
/// # Errors
/// If git does not know the commit.
pub(crate) fn with_commit(command: &mut Command) -> anyhow::Result<&mut Command> {
    let commit = output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
    Ok(command.env("RINGWELL_COMMIT", commit.trim()))
}

/// Runs a cargo build, and returns cargo's message about each program.
///
/// # Errors
/// As for [`output`], and also if cargo prints unexpected output.
pub(crate) fn programs(command: &mut Command) -> anyhow::Result<Vec<Value>> {
    let printed = output(command.arg("--message-format=json"))?;
    let messages: Result<Vec<Value>, _> = printed.lines().map(serde_json::from_str).collect();
    let mut messages = messages?;
    messages.retain(|message| message["executable"].is_string());
    Ok(messages)
}

/// Whether a program of this name is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn text(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
