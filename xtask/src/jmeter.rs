//! Runs the test plan in `deploy/jmeter` with the real Apache `JMeter` against the demo for a few
//! seconds. Every batch must satisfy the plan's assertion, and connections must be kept alive.
//!
//! `.ci/run` installs `JMeter`; without `JMeter`, the step is skipped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::bench::{Server, free_address};
use crate::shell::{self, target_dir};

/// The count of clients in the run, and therefore of connections.
const CLIENTS: u32 = 8;

/// The metric that counts the connections that the server has accepted.
const CONNECTIONS: &str = "ringwell_connections_opened_total";

/// The directory in which `deploy/jmeter/setup` installs `JMeter`.
pub(crate) fn home() -> Option<PathBuf> {
    let home = target_dir().join("jmeter");
    home.join("bin/ApacheJMeter.jar").is_file().then_some(home)
}

/// Runs the plan.
///
/// # Errors
/// If a program does not start, a batch fails, no batch was sent, or a connection was not kept
/// alive.
pub(crate) fn run() -> anyhow::Result<()> {
    let home = home().context("JMeter is not installed: deploy/jmeter/setup")?;
    let work = target_dir().join("jmeter-work");
    // JMeter refuses to overwrite results.
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    let (data, address) = (work.join("data"), free_address()?);
    let mut demo = Command::new(target_dir().join("debug/ringwell"));
    demo.arg("demo").arg("--data").arg(&data).args(["--listen", &address.to_string()]);
    // With these settings, numbers become free again almost at once, and no row is late even if the
    // machine is busy with other steps.
    demo.args(["--lifetime", "10ms", "--deadline", "20s", "--durability", "memory"]);
    let server = Server::start(demo, address, work.join("demo.log"), None)?;
    let before = server.metric(CONNECTIONS)?;
    let mut command = Command::new("java");
    command.args(["-Djava.awt.headless=true", "-Xmx512m", "-jar"]);
    command.arg(home.join("bin/ApacheJMeter.jar")).args(["-n", "-t"]);
    command.arg(shell::root().join("deploy/jmeter/ringwell.jmx"));
    let results = work.join("results.csv");
    command.arg("-l").arg(&results).arg("-j").arg(work.join("jmeter.log"));
    let pools = format!("-Jpools={}", data.join("demo-pools.csv").display());
    command.arg(pools).args([format!("-Jport={}", address.port()), format!("-Jthreads={CLIENTS}")]);
    command.args(["-Joverflow=no", "-Jseconds=5", "-Jtimeout=20000"]);
    let said = shell::output(&mut command)?;
    let summary = said.lines().rfind(|line| line.starts_with("summary ="));
    let summary =
        summary.with_context(|| format!("JMeter printed no summary of its run:\n{said}"))?;
    println!("{summary}");
    let (batches, failed) = counts(summary).with_context(|| format!("what is `{summary}`?"))?;
    ensure!(batches > 0, "JMeter sent no batch: see {}", work.display());
    ensure!(failed == 0, "{failed} of {batches} batches failed:\n{}", failures(&results)?);
    // The request that reads the metric uses a connection itself.
    let opened = server.metric(CONNECTIONS)?.saturating_sub(before + 1);
    ensure!(opened <= u64::from(CLIENTS), "{CLIENTS} clients opened {opened} connections");
    println!("{batches} batches over {CLIENTS} connections, none failed");
    Ok(())
}

/// Reads the count of batches, and of failed batches, from `JMeter`'s last line:
/// `summary = 882 in 00:00:11 = 80.7/s Avg: 32 Min: 0 Max: 421 Err: 0 (0.00%)`.
fn counts(summary: &str) -> Option<(u64, u64)> {
    let after = |word| summary.split_once(word)?.1.split_whitespace().next()?.parse().ok();
    Some((after("summary =")?, after("Err:")?))
}

/// The first few failed batches.
fn failures(results: &std::path::Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(results)?;
    let failed = text.lines().filter(|line| !line.contains(",true,"));
    Ok(failed.take(5).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests;
