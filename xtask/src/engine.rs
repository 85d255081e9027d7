//! `cargo xtask engine`: real nats-servers with real faults, and the effects on users of the
//! journal's log.
//!
//! Installs the server by `go install` if it is missing: it must be the tested version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Parser;

use crate::shell::{cargo, run};

/// The server that journals were tested with.
const VERSION: &str = "2.15.2";

/// The program to run.
#[derive(Parser)]
pub(crate) struct Args {
    /// Runs only tests with this in their names.
    #[arg(default_value = "")]
    only: String,
    /// The count of runs, one after the other.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
}

pub(crate) fn engine(args: &Args) -> anyhow::Result<()> {
    let server = server()?;
    for round in 1..=args.rounds {
        println!("round {round} of {}", args.rounds);
        let mut test = cargo();
        test.args(["test", "-p", "ringwell-cli", "--features", "nats", "--test", "engine"]);
        // Each has three servers and two loads: side by side they would measure each other.
        test.args(["--", "--test-threads", "1", "--nocapture"]).arg(&args.only);
        run(test.env("NATS_SERVER", &server))?;
    }
    Ok(())
}

/// The program, which `NATS_SERVER` may name.
fn server() -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return Ok(named.into());
    }
    let folder = std::env::current_dir()?.join("target/nats");
    let server = folder.join("nats-server");
    if !is_tested(&server) {
        let module = format!("github.com/nats-io/nats-server/v2@v{VERSION}");
        run(Command::new("go").args(["install", &module]).env("GOBIN", &folder))
            .context("go builds nats-server; NATS_SERVER is the path of an existing one")?;
    }
    ensure!(is_tested(&server), "{} is not version {VERSION}", server.display());
    Ok(server)
}

fn is_tested(server: &Path) -> bool {
    let version = Command::new(server).arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
}
