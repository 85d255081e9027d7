//! Many kept-alive connections that only wait: what each costs in memory, and the others in time.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::load::{OpenLoop, ROWS, open_loop};
use super::server::{Demo, Server, pinned};
use super::table::{self, median};
use super::{Findings, Plan};

/// Batches a second beside the idle connections.
const RATE: u32 = 1_000;

/// What `ringwell-bench idle` prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Held {
    connections: u32,
    rss_before_kib: u32,
    rss_after_kib: u32,
    kib_per_connection: f64,
}

#[derive(Serialize)]
struct Sample {
    held: Held,
    without: OpenLoop,
    with: OpenLoop,
}

/// Runs it: a fresh server each round, because memory that was used once is not given back.
pub(super) fn idle(plan: &Plan) -> anyhow::Result<Findings> {
    let connections = if plan.smoke { 500 } else { 10_000 };
    println!(
        "\nidle: {connections} kept-alive connections, each used once with {ROWS} rows; beside"
    );
    println!("them {RATE} batches/s in an open loop; medians of {} rounds", plan.rounds);
    let mut samples = [Vec::new(), Vec::new()];
    // Not `memory`: that one keeps its journal in memory, which is no cost of a connection.
    let demo = Demo::usual("idle", "disk");
    for _ in 0..plan.rounds {
        let cores = &plan.machine.server_cores;
        let ringwell = Server::demo(&plan.programs, cores, &demo, false)?;
        let ceiling = Server::ceiling(&plan.programs, cores)?;
        for (server, samples) in [&ceiling, &ringwell].into_iter().zip(&mut samples) {
            samples.push(sample(plan, server, &ringwell, connections)?);
        }
    }
    let names = ["ceiling", "ringwell (disk)"];
    let rows: Vec<_> =
        names.iter().zip(&samples).map(|(name, samples)| row(name, samples)).collect();
    let headings =
        ["server", "KiB a connection", "p99 us without", "p99 us with", "x", "overflow rows"];
    table::print(headings, &rows);
    let problems = names.iter().zip(&samples).enumerate().flat_map(|(index, (name, samples))| {
        let parts = samples.iter().flat_map(|sample| [&sample.without, &sample.with]);
        let found = parts.flat_map(move |part| part.problems(index == 0));
        found.map(move |problem| format!("{name}: {problem}"))
    });
    let problems = problems.collect();
    Ok(Findings { raw: json!({"ceiling": samples[0], "ringwell": samples[1]}), problems })
}

fn sample(
    plan: &Plan,
    server: &Server,
    with_pools: &Server,
    connections: u32,
) -> anyhow::Result<Sample> {
    let pools = with_pools.pools().context("the server has no pools")?;
    // Once for warmth, so that memory which all work needs is not charged to the idle.
    open_loop(plan, server, &pools, RATE, 1)?;
    let without = open_loop(plan, server, &pools, RATE, plan.seconds)?;
    let mut command = pinned(&plan.machine.load_cores, &plan.programs.bench);
    command.args(["idle", "--target", &server.address.to_string(), "--pools"]).arg(&pools);
    command.args(["--pid", &server.pid().to_string(), "--rows", &ROWS.to_string()]);
    command.args(["--connections", &connections.to_string()]);
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let held = held(&mut holder);
    let with = open_loop(plan, server, &pools, RATE, plan.seconds);
    // The closed standard input lets it end.
    drop(holder.stdin.take());
    let status = holder.wait()?;
    ensure!(status.success(), "the holder of idle connections ended with {status}");
    Ok(Sample { held: held?, without, with: with? })
}

fn held(holder: &mut Child) -> anyhow::Result<Held> {
    let out = holder.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    serde_json::from_str(&line).context("idle printed something else")
}

fn row(name: &str, samples: &[Sample]) -> [String; 6] {
    let of = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick));
    let (without, with) = (of(|it| it.without.latency.p99_us), of(|it| it.with.latency.p99_us));
    let both = || samples.iter().flat_map(|sample| [&sample.without, &sample.with]);
    let overflow: u32 = both().map(|part| part.overflow_rows).sum();
    let rows: u32 = both().map(|part| part.rows).sum();
    [
        name.to_owned(),
        format!("{:.1}", of(|it| it.held.kib_per_connection)),
        format!("{without:.0}"),
        format!("{with:.0}"),
        format!("{:.2}", with / without),
        if rows == 0 { "-".to_owned() } else { format!("{overflow} of {rows}") },
    ]
}
