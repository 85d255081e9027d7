//! Measures latency in an open loop at 1,000 batches a second, compared with the disk's own time
//! for a flush.

use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{Flush, Latency, OpenLoop, ROWS, flush, open_loop};
use super::server::{Demo, Server};
use super::table::{self, median};

/// Batches a second.
const RATE: u32 = 1_000;
/// The counts of bytes to flush: one block (the size of a batch of 40 rows), and ten blocks (the
/// size of a large group).
const PROBE_BYTES: [u32; 2] = [4_096, 40_960];

/// Runs the benchmark.
pub(super) fn latency(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\nlatency: open loop, {RATE} batches/s of {ROWS} rows over 200 pools of 500,");
    println!(
        "32 connections, one shard; measured from the intended time; medians of {} rounds",
        plan.rounds
    );
    let cores = &plan.machine.server_cores;
    let ceiling = Server::ceiling(&plan.programs, cores)?;
    let mut servers = vec![("ceiling", ceiling, Vec::new())];
    for durability in ["memory", "os", "disk"] {
        let demo = Demo::usual(&format!("latency-{durability}"), durability);
        servers.push((durability, Server::demo(&plan.programs, cores, &demo, false)?, Vec::new()));
    }
    let Some(pools) = servers.iter().find_map(|(_, server, _)| server.pools()) else {
        anyhow::bail!("none of the servers has a list of pools");
    };
    let mut probes: [Vec<Flush>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..plan.rounds {
        for (_, server, samples) in &mut servers {
            samples.push(open_loop(plan, server, &pools, RATE, plan.seconds)?);
        }
        for (bytes, probe) in PROBE_BYTES.into_iter().zip(&mut probes) {
            probe.push(flush(plan, bytes, plan.seconds)?);
        }
    }
    let mut rows: Vec<_> =
        servers.iter().map(|(name, _, samples)| server_row(name, samples)).collect();
    for (bytes, probe) in PROBE_BYTES.into_iter().zip(&probes) {
        rows.push(row(
            &format!("fdatasync of {bytes} bytes"),
            probe.iter().map(|it| it.latency),
            "-",
        ));
    }
    let headings = ["us", "p50", "p90", "p99", "p99.9", "max", "overflow rows"];
    table::print(headings, &rows);
    print_difference(&servers, &probes);
    let raw = servers.iter().map(|(name, _, samples)| json!({"server": name, "samples": samples}));
    let raw = json!({"servers": raw.collect::<Vec<_>>(), "fdatasync": probes});
    let problems = servers.iter().flat_map(|(name, server, samples)| {
        let fixed = server.pools().is_none();
        let found = samples.iter().flat_map(move |sample| sample.problems(fixed));
        found.map(move |problem| format!("{name}: {problem}"))
    });
    Ok(Findings { raw, problems: problems.collect() })
}

fn server_row(name: &str, samples: &[OpenLoop]) -> [String; 7] {
    let overflow: u32 = samples.iter().map(|sample| sample.overflow_rows).sum();
    let seen: u32 = samples.iter().map(|sample| sample.rows).sum();
    let overflow = if seen == 0 { "-".to_owned() } else { format!("{overflow} of {seen}") };
    row(name, samples.iter().map(|sample| sample.latency), &overflow)
}

fn row(name: &str, samples: impl Iterator<Item = Latency>, overflow: &str) -> [String; 7] {
    let samples: Vec<_> = samples.collect();
    let of = |pick: fn(&Latency) -> f64| format!("{:.0}", median(samples.iter().map(pick)));
    [
        name.to_owned(),
        of(|it| it.p50_us),
        of(|it| it.p90_us),
        of(|it| it.p99_us),
        of(|it| it.p999_us),
        of(|it| it.max_us),
        overflow.to_owned(),
    ]
}

fn print_difference(servers: &[(&str, Server, Vec<OpenLoop>)], probes: &[Vec<Flush>; 2]) {
    let Some((_, _, disk)) = servers.iter().find(|(name, _, _)| *name == "disk") else { return };
    let p99 = median(disk.iter().map(|sample| sample.latency.p99_us));
    let probe = median(probes[0].iter().map(|probe| probe.latency.p99_us));
    println!("p99 on disk is {:.2} ms above the p99 of a flush", (p99 - probe) / 1e3);
}
