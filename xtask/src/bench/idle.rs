//! Measures the cost of many idle keep-alive connections: the memory that each takes, and the delay
//! that they cause on other connections.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{OpenLoop, ROWS, open_loop};
use super::server::{Demo, Server, pinned};
use super::table::{self, median};

/// Batches a second while the idle connections are open.
const RATE: u32 = 1_000;

/// The output of `ringwell-bench idle`.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct IdleReport {
    connections: u32,
    rss_before_kib: u32,
    rss_after_kib: u32,
    kib_per_connection: f64,
}

/// Two servers; only one of them has idle connections. They are measured alternately, because the
/// same server's p99 may vary by half from one minute to the next.
struct Pair {
    without: Server,
    with: Server,
    holder: Child,
    held: IdleReport,
}

#[derive(Serialize)]
struct Sample {
    held: IdleReport,
    without: Vec<Turn>,
    with: Vec<Turn>,
}

#[derive(Serialize)]
struct Turn {
    load: OpenLoop,
    cpu_seconds: f64,
}

/// The wait before the measurement. For a while after a connection has been used, the kernel still
/// processes its acknowledgements and timers.
const SETTLING: Duration = Duration::from_secs(3);

/// Runs the benchmark.
pub(super) fn idle(plan: &BenchInputs) -> anyhow::Result<Findings> {
    let connections = if plan.smoke { 500 } else { 10_000 };
    println!("\nidle: {connections} keep-alive connections, each used once with {ROWS} rows;");
    println!(
        "{RATE} batches/s in an open loop, alternating with a server that has no idle connections; medians"
    );
    println!("of {} rounds", plan.rounds);
    let cores = &plan.machine.server_cores;
    // With durability `memory`, memory that the journal takes would count as connection memory.
    // With durability `disk`, the wait for the disk would hide everything else.
    let demo = |name| Server::demo(&plan.programs, cores, &Demo::usual(name, "os"), false);
    let ringwells = [demo("idle-without")?, demo("idle-with")?];
    let pools = ringwells[0].pools().context("the server has no pools")?;
    let ceiling = || Server::ceiling(&plan.programs, cores);
    let mut pairs = Vec::new();
    for servers in [[ceiling()?, ceiling()?], ringwells] {
        pairs.push(Pair::new(plan, servers, &pools, connections)?);
    }
    std::thread::sleep(SETTLING);
    let mut samples: Vec<Sample> = pairs.iter().map(Sample::new).collect();
    for round in 0..plan.rounds {
        for (pair, sample) in pairs.iter().zip(&mut samples) {
            sample.add(plan, pair, &pools, round)?;
        }
    }
    for pair in pairs {
        pair.end()?;
    }
    let names = ["ceiling", "ringwell (os)"];
    let rows: Vec<_> = names.iter().zip(&samples).map(|(name, sample)| row(name, sample)).collect();
    let headings = [
        "server",
        "KiB a connection",
        "CPU x",
        "p50 x",
        "p99 us without",
        "p99 us with",
        "p99 x",
        "overflow rows",
    ];
    table::print(headings, &rows);
    let problems = names.iter().zip(&samples).enumerate().flat_map(|(index, (name, sample))| {
        let found = sample.parts().flat_map(move |part| part.problems(index == 0));
        found.map(move |problem| format!("{name}: {problem}"))
    });
    let problems = problems.collect();
    Ok(Findings { raw: json!({"ceiling": samples[0], "ringwell": samples[1]}), problems })
}

impl Pair {
    fn new(
        plan: &BenchInputs,
        [without, with]: [Server; 2],
        pools: &Path,
        connections: u32,
    ) -> anyhow::Result<Self> {
        // Sends load once to warm up. Otherwise, memory that any load needs would count as memory
        // for the idle connections.
        for server in [&without, &with] {
            open_loop(plan, server, pools, RATE, 1)?;
        }
        let mut command = pinned(&plan.machine.load_cores, &plan.programs.bench);
        command.args(["idle", "--target", &with.address.to_string(), "--pools"]).arg(pools);
        command.args(["--pid", &with.pid().to_string(), "--rows", &ROWS.to_string()]);
        command.args(["--connections", &connections.to_string()]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let held = held(&mut holder)?;
        Ok(Self { without, with, holder, held })
    }

    fn end(mut self) -> anyhow::Result<()> {
        // The program ends when its standard input is closed.
        drop(self.holder.stdin.take());
        let status = self.holder.wait()?;
        ensure!(status.success(), "the holder of idle connections ended with {status}");
        Ok(())
    }
}

impl Sample {
    fn new(pair: &Pair) -> Self {
        Self { held: pair.held.clone(), without: Vec::new(), with: Vec::new() }
    }

    /// Measures both servers; which one is first alternates from round to round.
    fn add(
        &mut self,
        plan: &BenchInputs,
        pair: &Pair,
        pools: &Path,
        round: u32,
    ) -> anyhow::Result<()> {
        let mut turns = [(&pair.without, &mut self.without), (&pair.with, &mut self.with)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (server, measured) in turns {
            let before = server.cpu_seconds()?;
            let load = open_loop(plan, server, pools, RATE, plan.seconds)?;
            measured.push(Turn { load, cpu_seconds: server.cpu_seconds()? - before });
        }
        Ok(())
    }

    fn parts(&self) -> impl Iterator<Item = &OpenLoop> {
        self.without.iter().chain(&self.with).map(|turn| &turn.load)
    }
}

fn held(holder: &mut Child) -> anyhow::Result<IdleReport> {
    let out = holder.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    serde_json::from_str(&line).context("unexpected output of idle")
}

fn row(name: &str, sample: &Sample) -> [String; 8] {
    let both = |of: fn(&[Turn]) -> f64| [&sample.without, &sample.with].map(|turns| of(turns));
    let p50 = both(|turns| median(turns.iter().map(|turn| turn.load.latency.p50_us)));
    let p99 = both(|turns| median(turns.iter().map(|turn| turn.load.latency.p99_us)));
    // The kernel counts CPU time in steps of 10 ms, so only the sum over all turns is meaningful.
    let cpu = both(|turns| turns.iter().map(|turn| turn.cpu_seconds).sum());
    let with_over_without = |[without, with]: [f64; 2]| format!("{:.2}", with / without);
    let overflow: u32 = sample.parts().map(|part| part.overflow_rows).sum();
    let rows: u32 = sample.parts().map(|part| part.rows).sum();
    [
        name.to_owned(),
        format!("{:.1}", sample.held.kib_per_connection),
        with_over_without(cpu),
        with_over_without(p50),
        format!("{:.0}", p99[0]),
        format!("{:.0}", p99[1]),
        with_over_without(p99),
        if rows == 0 { "-".to_owned() } else { format!("{overflow} of {rows}") },
    ]
}
