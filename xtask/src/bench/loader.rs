//! Runs `ringwell load` against a server and compares its figures with those of wrk.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::inputs::{BenchInputs, Findings};
use super::load::{ClosedLoop, ROWS, closed_loop};
use super::server::{Demo, Server, pinned};
use super::table::{self, median};
use crate::shell::output;

/// The count of connections in the comparison with wrk.
const CONNECTIONS: u32 = 64;

/// The output of `ringwell load --json`, without the series of samples.
pub(super) struct Load(pub(super) Value);

impl Load {
    /// The number at a JSON pointer; 0 if it is missing.
    pub(super) fn number(&self, path: &str) -> f64 {
        self.0.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Batches a second.
    pub(super) fn rate(&self) -> f64 {
        self.number("/batches_per_second")
    }

    /// Batches with status 200.
    pub(super) fn answered(&self) -> f64 {
        self.number("/counts/statuses/200")
    }

    /// Descriptions of the wrong answers. Overflow rows are allowed if their share of all rows is
    /// below `spared`.
    pub(super) fn problems(&self, spared: f64) -> Vec<String> {
        let counts = self.0["counts"].as_object().into_iter().flatten();
        let few = self.number("/counts/overflow_rows") < spared * self.number("/counts/rows");
        let counts = counts.filter(|(name, _)| !(few && *name == "overflow_rows"));
        let wrong = ["overflow_rows", "error_rows", "refused", "reset", "timeouts", "bad_answers"];
        let counts = counts.filter(|(name, count)| wrong.contains(&name.as_str()) && **count != 0);
        let mut problems: Vec<_> = counts.map(|(name, count)| format!("{count} {name}")).collect();
        let statuses = self.0["counts"]["statuses"].as_object().into_iter().flatten();
        let bad = statuses.filter(|(status, _)| *status != "200");
        problems.extend(bad.map(|(status, count)| format!("{count} answers with {status}")));
        let missing = self.answered() * f64::from(ROWS) - self.number("/counts/rows");
        if missing.abs() > 0.5 || self.answered() < 0.5 {
            problems.push(format!("{missing} rows missing of {} batches", self.answered()));
        }
        problems
    }
}

/// Sends batches over `connections`: as fast as answers arrive, or `rate` batches a second.
///
/// # Errors
/// If `ringwell load` fails or prints unexpected output.
pub(super) fn load(
    plan: &BenchInputs,
    address: SocketAddr,
    pools: &Path,
    connections: u32,
    rate: Option<u32>,
) -> anyhow::Result<Load> {
    let mut command = pinned(&plan.machine.load_cores, &plan.programs.ringwell);
    command.args(["load", "--json", "--rows", &ROWS.to_string(), "--pools"]).arg(pools);
    command.args(["--connections", &connections.to_string()]);
    command.args(["--threads", &plan.machine.load_threads.min(connections).to_string()]);
    let duration = if plan.smoke { "250ms".to_owned() } else { format!("{}s", plan.seconds) };
    command.args(["--duration", &duration]);
    if let Some(rate) = rate {
        command.args(["--rate", &format!("{rate}/s")]);
    }
    let printed = output(command.arg(format!("http://{address}")))?;
    let mut load: Value = serde_json::from_str(&printed).context("unexpected output of load")?;
    // Keeps the figures but not the series, which are a thousand times as long.
    let series = ["samples", "percentiles"];
    load.as_object_mut()
        .context("load printed no JSON object")?
        .retain(|name, _| !series.contains(&name.as_str()));
    Ok(Load(load))
}

/// The results of `ringwell load` in one round.
struct Sample {
    load: Load,
    busy: f64,
}

/// One server, and the results of both senders in each round.
struct Pair {
    server: &'static str,
    wrks: Vec<ClosedLoop>,
    ours: Vec<Sample>,
}

/// Runs `ringwell load` and wrk in a closed loop against the same servers. Shows whether
/// `ringwell load` on one core can saturate one core of the server, and whether both senders report
/// the same latency.
pub(super) fn loader(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!(
        "\nloader: `ringwell load` compared with wrk, {CONNECTIONS} connections in a closed loop,"
    );
    println!("{ROWS} rows a batch over 200 pools of 500, memory only, one shard");
    let cores = &plan.machine.server_cores;
    let ceiling = Server::ceiling(&plan.programs, cores)?;
    let ringwell = Server::demo(&plan.programs, cores, &Demo::usual("loader", "memory"), false)?;
    let pools = ringwell.pools().context("the demo has no list of pools")?;
    let (mut pairs, mut problems) = (Vec::new(), Vec::new());
    for (name, server) in [("ceiling", &ceiling), ("ringwell", &ringwell)] {
        let pair = measure(plan, name, server, &pools)?;
        let fixed = name == "ceiling";
        problems.extend(pair.wrks.iter().flat_map(|it| it.problems(fixed)));
        if !fixed {
            // If the machine also does other work, some rows may miss the deadline, as in the
            // benchmark `peers`.
            problems.extend(pair.ours.iter().flat_map(|it| it.load.problems(0.01)));
        }
        pairs.push(pair);
    }
    print(&pairs);
    let raw = |Pair { server, wrks, ours }: &Pair| {
        let ours = ours.iter().map(|it| json!({"load": it.load.0, "busy": it.busy}));
        json!({"server": server, "wrk": wrks, "load": ours.collect::<Vec<_>>()})
    };
    Ok(Findings { raw: pairs.iter().map(raw).collect(), problems })
}

fn measure(
    plan: &BenchInputs,
    name: &'static str,
    server: &Server,
    pools: &Path,
) -> anyhow::Result<Pair> {
    let mut pair = Pair { server: name, wrks: Vec::new(), ours: Vec::new() };
    if !plan.smoke {
        closed_loop(plan, server, pools, CONNECTIONS, 1)?;
    }
    for _ in 0..plan.rounds {
        pair.wrks.push(closed_loop(plan, server, pools, CONNECTIONS, plan.seconds)?);
        let before = server.cpu_seconds()?;
        let load = load(plan, server.address, pools, CONNECTIONS, None)?;
        let cpu = server.cpu_seconds()? - before;
        pair.ours.push(Sample { busy: cpu / load.number("/seconds").max(0.001), load });
    }
    Ok(pair)
}

impl Pair {
    /// The rate, the busy share of the server's core, and p50 and p99 in us: first for wrk, then
    /// for `ringwell load`.
    fn medians(&self) -> [[f64; 4]; 2] {
        let wrk = |pick: fn(&ClosedLoop) -> f64| median(self.wrks.iter().map(pick));
        let our = |pick: fn(&Sample) -> f64| median(self.ours.iter().map(pick));
        let of_wrk = [
            wrk(|it| it.requests_per_second),
            wrk(|it| it.busy),
            wrk(ClosedLoop::p50_us),
            wrk(ClosedLoop::p99_us),
        ];
        let of_us = [
            our(|it| it.load.rate()),
            our(|it| it.busy),
            our(|it| it.load.number("/latency/p50_us")),
            our(|it| it.load.number("/latency/p99_us")),
        ];
        [of_wrk, of_us]
    }
}

fn print(pairs: &[Pair]) {
    let row = |server: &str, sender: &str, [rate, busy, p50, p99]: [f64; 4]| {
        [
            server.to_owned(),
            sender.to_owned(),
            format!("{rate:.0}"),
            format!("{:.0} %", 100.0 * busy),
            format!("{:.2}", p50 / 1e3),
            format!("{:.2}", p99 / 1e3),
            // In a closed loop, each connection waits for one answer at a time.
            format!("{:.2}", f64::from(CONNECTIONS) / rate * 1e3),
        ]
    };
    let rows = pairs.iter().flat_map(|pair| {
        let [wrk, ours] = pair.medians();
        [row(pair.server, "wrk", wrk), row(pair.server, "ringwell load", ours)]
    });
    let headings =
        ["server", "sender", "batch/s", "server's core", "p50 ms", "p99 ms", "conns/rate ms"];
    table::print(headings, &rows.collect::<Vec<_>>());
    for pair in pairs {
        let [wrk, ours] = pair.medians();
        println!(
            "{}: load has {:.2} of wrk's rate and {:.2} of its p50; it examines every row",
            pair.server,
            ours[0] / wrk[0],
            ours[2] / wrk[2]
        );
    }
}
