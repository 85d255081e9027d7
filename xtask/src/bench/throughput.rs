//! Measures batches per second in a closed loop, compared with the fixed-bytes server in the same
//! run.

use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{ClosedLoop, ROWS, closed_loop};
use super::server::{Demo, Server};
use super::table::{self, median, range};

/// A server and a count of connections, measured once per round.
struct Variant<'a> {
    name: String,
    durability: &'static str,
    connections: u32,
    server: &'a Server,
    samples: Vec<ClosedLoop>,
}

impl Variant<'_> {
    fn rate(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.requests_per_second))
    }

    fn cpu_us(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.cpu_us_per_request))
    }

    fn is_ceiling(&self) -> bool {
        self.server.pools().is_none()
    }
}

/// Measures one core with 64 connections and durability `memory`.
pub(super) fn throughput(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\nthroughput: {ROWS} rows a batch over 200 pools of 500, memory only, one shard");
    let ceiling = Server::ceiling(&plan.programs, &plan.machine.server_cores)?;
    let memory = start(plan, &Demo::usual("memory", "memory"))?;
    let mut variants =
        vec![variant("ceiling", "-", 64, &ceiling), variant("ringwell", "memory", 64, &memory)];
    measure(plan, &mut variants)
}

/// Measures the cost of each durability, with three different counts of connections.
pub(super) fn durability(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\ndurability: {ROWS} rows a batch over 200 pools of 500, one shard");
    let ceiling = Server::ceiling(&plan.programs, &plan.machine.server_cores)?;
    let mut servers = Vec::new();
    for durability in ["memory", "os", "disk"] {
        servers.push((durability, start(plan, &Demo::usual(durability, durability))?));
    }
    let mut variants = Vec::new();
    for connections in if plan.smoke { vec![64] } else { vec![32, 64, 128] } {
        variants.push(variant("ceiling", "-", connections, &ceiling));
        for (durability, server) in &servers {
            variants.push(variant("ringwell", durability, connections, server));
        }
    }
    let findings = measure(plan, &mut variants)?;
    for group in variants.chunks(1 + servers.len()) {
        let [_, memory, os, disk] = group else { continue };
        println!(
            "at {} connections: os {:.2} and disk {:.2} of memory's rate",
            memory.connections,
            os.rate() / memory.rate(),
            disk.rate() / memory.rate()
        );
    }
    Ok(findings)
}

/// Compares two shards and four shards with a single shard, all on the same core, to measure the
/// CPU cost of scatter-gather.
pub(super) fn shards(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!(
        "\nshards: {ROWS} rows a batch over 200 pools of 500, memory only. With two shards, a"
    );
    println!(
        "batch gets half of its rows from the other shard; with four, three quarters from the others."
    );
    println!("All shards share the server's core.");
    let ceiling = Server::ceiling(&plan.programs, &plan.machine.server_cores)?;
    let one = start(plan, &Demo::usual("shards-1", "memory"))?;
    let two = start(plan, &Demo { shards: 2, ..Demo::usual("shards-2", "memory") })?;
    let four = start(plan, &Demo { shards: 4, ..Demo::usual("shards-4", "memory") })?;
    let mut variants = vec![
        variant("ceiling", "-", 64, &ceiling),
        variant("1 shard", "memory", 64, &one),
        variant("2 shards", "memory", 64, &two),
        variant("4 shards", "memory", 64, &four),
    ];
    let findings = measure(plan, &mut variants)?;
    if let [_, one, two, four] = variants.as_slice() {
        let of_one = |shards: &Variant<'_>| shards.cpu_us() / one.cpu_us();
        println!(
            "CPU per row relative to 1 shard: 2 shards {:.2}, 4 shards {:.2}",
            of_one(two),
            of_one(four)
        );
    }
    Ok(findings)
}

fn start(plan: &BenchInputs, demo: &Demo) -> anyhow::Result<Server> {
    Server::demo(&plan.programs, &plan.machine.server_cores, demo, false)
}

fn variant<'a>(
    name: &str,
    durability: &'static str,
    connections: u32,
    server: &'a Server,
) -> Variant<'a> {
    Variant { name: name.to_owned(), durability, connections, server, samples: Vec::new() }
}

/// Warms up every server, and then measures all variants in turn, round by round.
fn measure(plan: &BenchInputs, variants: &mut [Variant<'_>]) -> anyhow::Result<Findings> {
    let with_pools = variants.iter().find_map(|variant| variant.server.pools());
    // The fixed-bytes server gets the same bodies, although it does not parse them.
    let Some(pools) = with_pools else { anyhow::bail!("none of the servers has a list of pools") };
    if !plan.smoke {
        for variant in variants.iter() {
            closed_loop(plan, variant.server, &pools, variant.connections, 1)?;
        }
    }
    for _ in 0..plan.rounds {
        for variant in variants.iter_mut() {
            let sample =
                closed_loop(plan, variant.server, &pools, variant.connections, plan.seconds)?;
            variant.samples.push(sample);
        }
    }
    print(variants);
    Ok(Findings { raw: raw(variants), problems: problems(variants) })
}

fn print(variants: &[Variant<'_>]) {
    let rows: Vec<_> = variants.iter().map(|variant| row(variant, variants)).collect();
    let headings = [
        "server",
        "durability",
        "conns",
        "req/s",
        "lowest-highest",
        "x",
        "us/req",
        "x",
        "core",
        "p50 ms",
        "p99 ms",
        "overflow rows",
    ];
    table::print(headings, &rows);
}

fn row(variant: &Variant<'_>, all: &[Variant<'_>]) -> [String; 12] {
    let ceiling =
        all.iter().find(|other| other.is_ceiling() && other.connections == variant.connections);
    let (rate, cpu) = (variant.rate(), variant.cpu_us());
    let over = |value: f64, of: f64| format!("{:.2}", value / of);
    let of = |pick: fn(&ClosedLoop) -> f64| variant.samples.iter().map(pick);
    let (low, high) = range(of(|sample| sample.requests_per_second));
    let (rows, overflow) = variant.samples.iter().fold((0, 0), |(rows, overflow), sample| {
        let (more, more_overflow) = sample.witnessed();
        (rows + more, overflow + more_overflow)
    });
    [
        variant.name.clone(),
        variant.durability.to_owned(),
        variant.connections.to_string(),
        format!("{rate:.0}"),
        format!("{low:.0}-{high:.0}"),
        ceiling.map_or(String::new(), |ceiling| over(rate, ceiling.rate())),
        format!("{cpu:.1}"),
        ceiling.map_or(String::new(), |ceiling| over(cpu, ceiling.cpu_us())),
        format!("{:.0} %", 100.0 * median(of(|sample| sample.busy))),
        format!("{:.2}", median(of(ClosedLoop::p50_us)) / 1e3),
        format!("{:.2}", median(of(ClosedLoop::p99_us)) / 1e3),
        if variant.is_ceiling() { "-".to_owned() } else { format!("{overflow} of {rows}") },
    ]
}

fn raw(variants: &[Variant<'_>]) -> serde_json::Value {
    let raw = |variant: &Variant<'_>| {
        json!({
            "server": variant.name,
            "durability": variant.durability,
            "connections": variant.connections,
            "samples": variant.samples,
        })
    };
    variants.iter().map(raw).collect()
}

fn problems(variants: &[Variant<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    for variant in variants {
        let found = variant.samples.iter().flat_map(|sample| sample.problems(variant.is_ceiling()));
        problems.extend(found.map(|problem| {
            let Variant { name, durability, connections, .. } = variant;
            let reasons = variant.server.overflow_reasons();
            format!("{name} ({durability}, {connections} connections): {problem} {reasons}")
        }));
    }
    problems
}
