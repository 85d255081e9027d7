//! Measures the cost of a request to another shard: in the same process, over a unix socket, and
//! over TCP.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{OpenLoop, ROWS, open_loop};
use super::server::{Demo, Server};
use super::table::{self, median};

/// Batches a second. The rate is so low that no batch has to wait for the core.
const RATE: u32 = 1_000;

/// Processes that serve one set of pools; the first receives the batches.
struct Variant {
    name: &'static str,
    nodes: Vec<Server>,
    samples: Vec<OpenLoop>,
    /// CPU time per batch, summed over all processes, in microseconds.
    cpu_us: Vec<f64>,
}

impl Variant {
    fn new(name: &'static str, nodes: Vec<Server>) -> Self {
        Self { name, nodes, samples: Vec::new(), cpu_us: Vec::new() }
    }

    fn p50(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.latency.p50_us))
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.nodes.iter().map(Server::cpu_seconds).sum()
    }

    fn measure(&mut self, plan: &BenchInputs, pools: &Path) -> anyhow::Result<()> {
        let before = self.cpu_seconds()?;
        self.samples.push(open_loop(plan, &self.nodes[0], pools, RATE, plan.seconds)?);
        let batches = f64::from(RATE) * f64::from(plan.seconds);
        self.cpu_us.push((self.cpu_seconds()? - before) * 1e6 / batches);
        Ok(())
    }

    fn row(&self) -> [String; 6] {
        let of = |pick: fn(&OpenLoop) -> f64| median(self.samples.iter().map(pick));
        let sum = |pick: fn(&OpenLoop) -> u32| self.samples.iter().map(pick).sum::<u32>();
        [
            self.name.to_owned(),
            format!("{:.0}", self.p50()),
            format!("{:.0}", of(|sample| sample.latency.p90_us)),
            format!("{:.0}", of(|sample| sample.latency.p99_us)),
            format!("{:.1}", median(self.cpu_us.iter().copied())),
            format!("{} of {}", sum(|sample| sample.overflow_rows), sum(|sample| sample.rows)),
        ]
    }
}

/// Runs the benchmark.
pub(super) fn links(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!(
        "\nlinks: open loop, {RATE} batches/s of {ROWS} rows over 200 pools of 500, durability os;"
    );
    println!("half of the rows belong to another shard. All processes share the server's core.");
    let cores = &plan.machine.server_cores;
    let demo = |name, shards| {
        let demo = Demo { shards, ..Demo::usual(name, "os") };
        Server::demo(&plan.programs, cores, &demo, false)
    };
    let one = demo("links-1", 1)?;
    let pools = one.pools().context("the demo has no list of pools")?;
    let mut variants = vec![
        Variant::new("one shard", vec![one]),
        Variant::new("two shards in one process", vec![demo("links-2", 2)?]),
        Variant::new("two nodes, unix socket", Server::nodes(&plan.programs, cores, &pools, true)?),
        Variant::new("two nodes, TCP", Server::nodes(&plan.programs, cores, &pools, false)?),
    ];
    for _ in 0..plan.rounds {
        for variant in &mut variants {
            variant.measure(plan, &pools)?;
        }
    }
    let rows: Vec<_> = variants.iter().map(Variant::row).collect();
    table::print(["us", "p50", "p90", "p99", "CPU a batch", "overflow rows"], &rows);
    if let [_, process, unix, tcp] = variants.as_slice() {
        println!(
            "a hop to another process: {:.0} us over a unix socket, {:.0} us over TCP (p50)",
            unix.p50() - process.p50(),
            tcp.p50() - process.p50()
        );
    }
    let raw = variants.iter().map(|variant| {
        json!({"name": variant.name, "samples": variant.samples, "cpu_us": variant.cpu_us})
    });
    let raw = raw.collect();
    let problems = variants.iter().flat_map(|variant| {
        let found = variant.samples.iter().flat_map(|sample| sample.problems(false));
        found.map(|problem| format!("{}: {problem}", variant.name))
    });
    Ok(Findings { raw, problems: problems.collect() })
}
