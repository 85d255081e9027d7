//! Kept-alive connections that are used once and then only wait.
//!
//! Prints one JSON line when all connections are open. Then keeps them open until standard input
//! closes, so that another sender can measure in the meantime.

use std::io::Read as _;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::batch::Batches;
use crate::client::Connection;
use crate::report::resident_kib;

/// Flags of `ringwell-bench idle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    batches: Batches,
    /// Process whose resident memory is read before and after.
    #[arg(long)]
    pid: u32,
    /// Connections to open; the limit of open files must be high enough
    #[arg(long, default_value_t = 10_000)]
    connections: u32,
}

#[derive(Serialize)]
struct IdleReport {
    connections: u32,
    rss_before_kib: u64,
    rss_after_kib: u64,
    kib_per_connection: f64,
}

/// Opens the connections, reports, and keeps them open.
///
/// # Errors
/// If a connection cannot be opened, or its batch is not answered with 200.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let requests = args.batches.requests()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let held = runtime.block_on(async {
        let before = resident_kib(args.pid).context("no such process")?;
        let mut held = Vec::new();
        for (index, request) in (0..args.connections).zip(requests.iter().cycle()) {
            let opened = Connection::open(&args.batches.target).await;
            let mut connection =
                opened.with_context(|| format!("connection {index}: is `ulimit -n` too low?"))?;
            let answer = connection.exchange(request).await?;
            ensure!(answer.status == 200, "connection {index}: status {}", answer.status);
            connection.shrink();
            held.push(connection);
        }
        let after = resident_kib(args.pid).context("the measured process has ended")?;
        report(args.connections, before, after)?;
        anyhow::Ok(held)
    })?;
    // No bytes are sent or read while the connections wait, so the runtime need not run.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(held);
    Ok(())
}

fn report(connections: u32, before: u64, after: u64) -> anyhow::Result<()> {
    let grown = u32::try_from(after.saturating_sub(before)).context("more than 4 TiB")?;
    let held = IdleReport {
        connections,
        rss_before_kib: before,
        rss_after_kib: after,
        kib_per_connection: f64::from(grown) / f64::from(connections.max(1)),
    };
    println!("{}", serde_json::to_string(&held)?);
    Ok(())
}
