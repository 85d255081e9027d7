//! Measures a server with ten million numbers in 100,000 pools: its memory, the additional cost of
//! a request, and the time that restarts take.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{ClosedLoop, ROWS, closed_loop};
use super::server::{Demo, Server};
use super::table::{self, median};

/// The count of connections in the closed loop.
const CONNECTIONS: u32 = 64;

/// The warm-up time of the server with many pools. It is long enough for the server to write each
/// memory page of its history once. The kernel has to zero new pages, which costs as much as all of
/// the server's other work.
const WARM_UP_SECONDS: u32 = 20;

/// Runs the benchmark.
pub(super) fn size(plan: &BenchInputs) -> anyhow::Result<Findings> {
    let pools = if plan.smoke { 2_000 } else { 100_000 };
    let large = Demo { pools, numbers: 100, ..Demo::usual("size-large", "memory") };
    println!("\nsize: {ROWS} rows a batch, {CONNECTIONS} connections, one shard");
    let (costs, mut problems) = compare(plan, &large)?;
    let durable = Demo { durability: "disk", name: "size-disk".to_owned(), ..large };
    let (restarts, more) = restarts(plan, &durable)?;
    problems.extend(more);
    Ok(Findings { raw: json!({"cost": costs, "restarts": restarts}), problems })
}

/// Alternates between a server with many pools and a server with few pools.
fn compare(plan: &BenchInputs, large: &Demo) -> anyhow::Result<(serde_json::Value, Vec<String>)> {
    let demos = [Demo::usual("size-small", "memory"), large.clone()];
    let mut servers = Vec::new();
    for demo in &demos {
        let server = Server::demo(&plan.programs, &plan.machine.server_cores, demo, false)?;
        servers.push((demo, server, Vec::new()));
    }
    // The first round warms up the servers, and its results are kept separately.
    let mut first = Vec::new();
    for round in 0..=plan.rounds {
        for (demo, server, samples) in &mut servers {
            let pools = server.pools().context("no pools")?;
            let seconds = match round {
                0 if demo.pools > 10_000 => WARM_UP_SECONDS,
                0 => 1,
                _ => plan.seconds,
            };
            let sample = closed_loop(plan, server, &pools, CONNECTIONS, seconds)?;
            if round > 0 {
                samples.push(sample);
            } else {
                first.push(sample.cpu_us_per_request);
            }
        }
    }
    let mut rows = Vec::new();
    for (demo, server, samples) in &servers {
        rows.push(row(demo, samples, server.resident_kib()?));
    }
    let headings = ["pools x numbers", "durability", "req/s", "us/req", "RSS MiB", "overflow rows"];
    table::print(headings, &rows);
    let cpu = |samples: &[ClosedLoop]| median(samples.iter().map(|it| it.cpu_us_per_request));
    let rate = |samples: &[ClosedLoop]| median(samples.iter().map(|it| it.requests_per_second));
    let (few, many) = (&servers[0].2, &servers[1].2);
    println!(
        "many pools relative to few: CPU per request {:.2}, req/s {:.2}",
        cpu(many) / cpu(few),
        rate(many) / rate(few)
    );
    println!(
        "CPU per request while memory was used for the first time, relative to few pools: {:.2}",
        first[1] / cpu(few)
    );
    let mut problems = Vec::new();
    for (demo, server, samples) in &servers {
        let reasons = server.overflow_reasons();
        let found = samples.iter().flat_map(|sample| sample.problems(false));
        problems.extend(found.map(|problem| format!("{} pools: {problem} {reasons}", demo.pools)));
    }
    let raw = servers.iter().map(|(demo, server, samples)| {
        json!({"demo": demo, "rss_kib": server.resident_kib().ok(), "samples": samples})
    });
    Ok((raw.collect(), problems))
}

fn row(demo: &Demo, samples: &[ClosedLoop], resident_kib: u32) -> [String; 6] {
    let of = |pick: fn(&ClosedLoop) -> f64| median(samples.iter().map(pick));
    let seen: u32 = samples.iter().map(|sample| sample.witnessed().0).sum();
    let overflow: u32 = samples.iter().map(|sample| sample.witnessed().1).sum();
    [
        format!("{} x {}", demo.pools, demo.numbers),
        demo.durability.to_owned(),
        format!("{:.0}", of(|it| it.requests_per_second)),
        format!("{:.1}", of(|it| it.cpu_us_per_request)),
        format!("{:.0}", f64::from(resident_kib) / 1024.0),
        format!("{overflow} of {seen}"),
    ]
}

/// Measures the first startup, the startup after a drain (from a snapshot), and the startup after a
/// kill (from a snapshot and the rest of the journal).
fn restarts(plan: &BenchInputs, demo: &Demo) -> anyhow::Result<(serde_json::Value, Vec<String>)> {
    let start = |keep| Server::demo(&plan.programs, &plan.machine.server_cores, demo, keep);
    let mut problems = Vec::new();
    let mut load = |server: &Server| -> anyhow::Result<()> {
        let pools = server.pools().context("no pools")?;
        let sample = closed_loop(plan, server, &pools, CONNECTIONS, plan.seconds)?;
        let reasons = server.overflow_reasons();
        let found = sample.problems(false);
        problems.extend(found.iter().map(|it| format!("on disk: {it} {reasons}")));
        Ok(())
    };
    let first = start(false)?;
    let first_ready = first.ready_after;
    load(&first)?;
    let drained = first.stop()?;
    let second = start(true)?;
    let second_ready = second.ready_after;
    load(&second)?;
    second.kill()?;
    let third = start(true)?;
    let third_ready = third.ready_after;
    load(&third)?;
    let kib = third.resident_kib()?;
    drop(third);
    let seconds = |time: Duration| time.as_secs_f64();
    println!(
        "{} x {} on disk: first start ready after {:.2} s; drain after {} s of load {:.2} s;",
        demo.pools,
        demo.numbers,
        seconds(first_ready),
        plan.seconds,
        seconds(drained)
    );
    println!(
        "restart after the drain {:.2} s, after kill -9 under the same load {:.2} s; RSS then {} MiB",
        seconds(second_ready),
        seconds(third_ready),
        kib / 1024
    );
    remove(&plan.programs.work.join(&demo.name));
    let raw = json!({
        "demo": demo, "first_s": seconds(first_ready), "drain_s": seconds(drained),
        "after_drain_s": seconds(second_ready), "after_kill_s": seconds(third_ready),
        "rss_kib": kib,
    });
    Ok((raw, problems))
}

/// Removes this run's data now; otherwise the next run would have to remove it.
fn remove(data: &Path) {
    std::fs::remove_dir_all(data).ok();
}
