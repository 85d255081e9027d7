//! `cargo xtask engine`: tests the distributed log with real nats-servers and real faults, and
//! checks what its users see.
//!
//! If the tested version of nats-server is missing, installs it with `go install`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Parser;

use crate::shell::{WORKSPACE, cargo, root, run, target_dir};

/// Parts of the names of tests that take more than five seconds. These tests run every night. CI
/// runs only the other tests, one of which kills a node.
pub(crate) const LONG: [&str; 14] = [
    "a_killed_node_continues_from_the_stream_of_three_servers",
    "a_paused_owner_finds_itself_fenced",
    "a_second_process_of_the_same_shards_fences_the_first",
    "a_standby_takes_over_from_a_killed_owner_within_five_seconds",
    "a_stopping_node_hands_its_shards_to_its_standby",
    "a_stream_is_trimmed_and_a_machine_without_data_starts_from_a_snapshot",
    "disks::",
    "drills::",
    "everything_may_be_killed_at_once",
    "hostile::",
    "partitions::",
    "the_leader_of_a_stream_may_be_killed",
    "the_other_nodes_detect_a_log_that_has_lost_its_end",
    "while_the_servers_are_down",
];

/// The version of nats-server that journals are tested with.
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
    /// The number of rounds of each kill within a run. With this option, the limits on their
    /// duration have no allowance for a busy machine.
    #[arg(long)]
    kills: Option<u32>,
    /// Omits the tests that take more than five seconds, as CI does.
    #[arg(long)]
    short: bool,
    /// The program of another release, for the drill that upgrades from that release and to it.
    #[arg(long)]
    other_release: Option<PathBuf>,
    /// Another release of the servers' program, for the drill that upgrades to that release and
    /// from it.
    #[arg(long)]
    other_nats: Option<PathBuf>,
    /// Instead of testing, measures the servers' cost compared with the disk; nothing else may run
    /// on the machine.
    #[arg(long)]
    bars: bool,
}

pub(crate) fn engine(args: &Args) -> anyhow::Result<()> {
    let server = server()?;
    for round in 1..=args.rounds {
        println!("round {round} of {}", args.rounds);
        let mut test = cargo();
        test.arg("test").args(WORKSPACE).args(["--test", "engine"]);
        // Each test runs three servers and two loads, so tests that run at the same time would
        // disturb each other.
        test.args(["--", "--test-threads", "1", "--nocapture"]).arg(&args.only);
        if args.short {
            test.args(LONG.iter().flat_map(|name| ["--skip", name]));
        }
        if args.bars {
            test.args(["bars::", "--ignored"]).env("RINGWELL_SLOW_DISK", slow_disk()?);
        }
        if let Some(kills) = args.kills {
            test.env("RINGWELL_ENGINE_ROUNDS", kills.to_string());
        }
        if let Some(program) = &args.other_release {
            test.env("RINGWELL_OTHER_RELEASE", std::path::absolute(program)?);
        }
        if let Some(program) = &args.other_nats {
            test.env("RINGWELL_OTHER_NATS", std::path::absolute(program)?);
        }
        run(test.env("NATS_SERVER", &server))?;
    }
    Ok(())
}

/// Builds the file system whose flushes take a fixed time. Returns its path.
fn slow_disk() -> anyhow::Result<PathBuf> {
    let program = folder().join("slow-disk");
    let source = root().join("bench/slow-disk");
    run(Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source))?;
    Ok(program)
}

/// The path of nats-server, if it is installed; `NATS_SERVER` may name it.
pub(crate) fn installed() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    named.or_else(|| Some(folder().join("nats-server")).filter(|server| is_tested(server)))
}

fn folder() -> PathBuf {
    root().join(target_dir()).join("nats")
}

/// The path of nats-server, which is installed first if it is missing.
fn server() -> anyhow::Result<PathBuf> {
    if let Some(installed) = installed() {
        return Ok(installed);
    }
    let folder = folder();
    let server = folder.join("nats-server");
    let module = format!("github.com/nats-io/nats-server/v2@v{VERSION}");
    run(Command::new("go").args(["install", &module]).env("GOBIN", &folder)).context(
        "go cannot build nats-server: set NATS_SERVER to the path of an existing binary",
    )?;
    ensure!(is_tested(&server), "{} is not version {VERSION}", server.display());
    Ok(server)
}

fn is_tested(server: &Path) -> bool {
    let version = Command::new(server).arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
}
