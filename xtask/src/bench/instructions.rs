//! Measures one shard's engine alone: instructions per row under callgrind, and nanoseconds per row
//! without callgrind.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::ROWS;
use super::table::median;
use crate::callgrind;
use crate::shell::{is_installed, output};

/// The counts of batches in two runs. The startup costs the same in both, so the difference between
/// their counts excludes it.
const BATCHES: [u32; 2] = [200, 600];

/// Runs the benchmark.
pub(super) fn instructions(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\ninstructions: the engine alone, {ROWS} rows a batch, journal records in memory");
    let engine = plan.programs.example("engine")?;
    let few = nanos(plan, &engine, ["200", "500"])?;
    println!("200 pools of 500: {few:.0} ns a row (median)");
    let pools = if plan.smoke { "2000" } else { "100000" };
    let many = nanos(plan, &engine, [pools, "100"])?;
    println!("{pools} pools of 100: {many:.0} ns a row (median), {:.1} times as dear", many / few);
    let counted = if is_installed("valgrind") {
        let count = |batches: u32| callgrind::count(&engine, |it| it.arg(batches.to_string()));
        let [short, long] = BATCHES.map(count);
        let rows = (BATCHES[1] - BATCHES[0]) * ROWS;
        let counted = (long?.instructions - short?.instructions) / f64::from(rows);
        println!("200 pools of 500: {counted:.0} instructions a row");
        Some(counted)
    } else {
        println!("valgrind is not installed: instructions were not counted");
        None
    };
    let raw = json!({"ns_few_pools": few, "ns_many_pools": many, "instructions": counted});
    Ok(Findings { raw, problems: Vec::new() })
}

fn nanos(plan: &BenchInputs, engine: &Path, pools: [&str; 2]) -> anyhow::Result<f64> {
    let batches = if plan.smoke { "2000" } else { "40000" };
    let mut values = Vec::new();
    for _ in 0..plan.rounds {
        let mut command = Command::new("taskset");
        command.args(["-c", &plan.machine.server_cores]).arg(engine).arg(batches).args(pools);
        let printed = output(&mut command)?;
        values.push(printed.trim().parse().context("unexpected output of the engine")?);
    }
    Ok(median(values))
}
