//! Measures the alternatives that users would choose, in the same run as Ringwell.
//! `bench/peers/README.md` describes these peers and their tuning.
//!
//! Each peer is checked for correctness before it is timed. Only one peer runs at a time, so that
//! the background work of one store does not slow down another peer. Every peer runs once per
//! round.

mod proof;
mod start;
mod store;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::inputs::{BenchInputs, Findings};
use super::load::ROWS;
use super::loader::{Load, load};
use super::table::{self, median, range};
use start::{Kind, Running, Shop};

/// Batches a second in the open loop: as many as the slowest peer can serve.
const RATE: u32 = 200;
/// The share of Ringwell's rows that may overflow, because the machine may also do other work.
const SPARED: f64 = 0.01;
/// The count of connections in the closed loop and in the open loop.
const MANY: u32 = 64;

/// One line of the table.
struct Variant {
    name: &'static str,
    /// The data that remains after a power cut.
    keeps: &'static str,
    kind: Kind,
    /// Ringwell's durability in the comparison.
    beside: &'static str,
    samples: Vec<Sample>,
}

/// The results of one variant in one round.
struct Sample {
    many: Load,
    cpu_us_per_batch: f64,
    busy: f64,
    /// The load on one connection; omitted in smoke runs.
    one: Option<Load>,
    fixed: Load,
}

/// Runs the benchmark.
pub(super) fn peers(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\npeers: {ROWS} rows a batch over 200 pools of 500, lockout 10 ms, server and store");
    println!("on one core; closed loop, and open loop at {RATE} batches/s over {MANY} connections");
    let work = plan.programs.work.join("peers");
    std::fs::create_dir_all(&work)?;
    let asked = write_pools(&work.join("asked.csv"), false)?;
    let all = write_pools(&work.join("all.csv"), true)?;
    let shop = Shop::open(plan, all, work)?;
    let mut variants = variants();
    let mut skipped = Vec::new();
    let mut problems = Vec::new();
    for variant in std::mem::take(&mut variants) {
        match shop.prepare(variant.kind)? {
            None => variants.push(variant),
            Some(why) => {
                println!("skipped {} ({}): {why}", variant.name, variant.keeps);
                skipped.push(json!({"server": variant.name, "why": why}));
            }
        }
    }
    for round in 0..plan.rounds {
        for variant in &mut variants {
            let what = format!("{} ({})", variant.name, variant.keeps);
            let running = shop.start(variant.kind).with_context(|| what.clone())?;
            if round == 0 {
                proof::prove(running.server.address).with_context(|| format!("{what} is wrong"))?;
            }
            let sample = measure(plan, &running, &asked).with_context(|| what.clone())?;
            for load in sample.loads() {
                let found = load.problems(variant.spared());
                problems.extend(found.iter().map(|it| format!("{what}: {it}")));
            }
            if matches!(variant.kind, Kind::Ours(_)) {
                let reasons = running.server.overflow_reasons();
                println!("{what}, overflow rows, including those of the proof: {reasons}");
            }
            variant.samples.push(sample);
        }
    }
    println!("all {} variants were proved correct before they were timed", variants.len());
    print(&variants);
    Ok(Findings { raw: json!({"variants": raw(&variants), "skipped": skipped}), problems })
}

fn variants() -> Vec<Variant> {
    let variant =
        |name, keeps, kind, beside| Variant { name, keeps, kind, beside, samples: Vec::new() };
    vec![
        variant("ringwell", "nothing", Kind::Ours("memory"), "memory"),
        variant("go", "nothing", Kind::Go, "memory"),
        variant("node", "nothing", Kind::Node, "memory"),
        variant("ruby", "nothing", Kind::Ruby, "memory"),
        variant("redis", "nothing", Kind::Redis { flushed: false }, "memory"),
        variant("ringwell", "all", Kind::Ours("disk"), "disk"),
        variant("redis", "all", Kind::Redis { flushed: true }, "disk"),
        variant("postgres", "all", Kind::Postgres { flushed: true }, "disk"),
        variant("postgres", "most", Kind::Postgres { flushed: false }, "disk"),
    ]
}

/// Writes the list of pools: the pools for the load, followed by the pools for the proof if `proof`
/// is set.
fn write_pools(path: &Path, proof: bool) -> anyhow::Result<PathBuf> {
    let columns = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers";
    let mut list = format!("{columns}\n");
    for id in 1..=200_u64 {
        let first = 2_000_000_000 + (id - 1) * 500;
        // The key is as long as a real key, but need not be secret here.
        let key = format!("{:032x}", u128::from(id) * 0x9e37_79b9_7f4a_7c15_f39c_c060);
        writeln!(list, "{id},{key},{},0.01,{first},500", 9_000_000_000 + id)?;
    }
    for proof::Pool { id, key, first, numbers, overflow } in proof::POOLS.iter().filter(|_| proof) {
        let lockout = proof::LOCKOUT.as_secs_f64();
        writeln!(list, "{id},{key},{overflow},{lockout},{first},{numbers}")?;
    }
    std::fs::write(path, list)?;
    Ok(path.to_owned())
}

impl Sample {
    fn loads(&self) -> impl Iterator<Item = &Load> {
        [&self.many, &self.fixed].into_iter().chain(&self.one)
    }
}

fn measure(plan: &BenchInputs, running: &Running, pools: &Path) -> anyhow::Result<Sample> {
    let address = running.server.address;
    if !plan.smoke {
        load(plan, address, pools, MANY, None)?; // lets just-in-time compilers warm up
    }
    let before = running.cpu_seconds()?;
    let many = load(plan, address, pools, MANY, None)?;
    let cpu = running.cpu_seconds()? - before;
    let one = if plan.smoke { None } else { Some(load(plan, address, pools, 1, None)?) };
    let fixed = load(plan, address, pools, MANY, Some(RATE))?;
    Ok(Sample {
        cpu_us_per_batch: cpu * 1e6 / many.answered().max(1.0),
        busy: cpu / many.number("/seconds").max(0.001),
        many,
        one,
        fixed,
    })
}

impl Variant {
    /// The share of rows that may overflow. Only Ringwell has a deadline and bounded queues: when
    /// the machine is busy, some of Ringwell's rows overflow, while another server's answers would
    /// only be late.
    fn spared(&self) -> f64 {
        if matches!(self.kind, Kind::Ours(_)) { SPARED } else { 0.0 }
    }

    fn median(&self, pick: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(pick))
    }

    fn row(&self, ours: &Self) -> [String; 13] {
        let rate = |it: &Sample| it.many.rate();
        let one = |it: &Sample| it.one.as_ref().map_or(0.0, Load::rate);
        let fixed = |path: &'static str| move |it: &Sample| it.fixed.number(path) / 1e3;
        let cpu = |it: &Sample| it.cpu_us_per_batch;
        let over = |pick: &dyn Fn(&Sample) -> f64| {
            let of = ours.median(pick);
            // A smoke run omits the load on one connection.
            if of > 0.0 { format!("{:.2}", self.median(pick) / of) } else { "-".to_owned() }
        };
        let (low, high) = range(self.samples.iter().map(rate));
        let held = self.median(|it| it.fixed.answered() / it.fixed.number("/seconds"));
        [
            self.name.to_owned(),
            self.keeps.to_owned(),
            format!("{:.0}", self.median(rate)),
            format!("{low:.0}-{high:.0}"),
            over(&rate),
            format!("{:.1}", self.median(cpu)),
            over(&cpu),
            format!("{:.0} %", 100.0 * self.median(|it| it.busy)),
            format!("{:.0}", self.median(one)),
            over(&one),
            format!("{held:.0}"),
            format!("{:.2}", self.median(fixed("/latency/p50_us"))),
            format!("{:.2}", self.median(fixed("/latency/p99_us"))),
        ]
    }
}

fn print(variants: &[Variant]) {
    let ours =
        |variant: &Variant| variants.iter().find(|other| other.kind == Kind::Ours(variant.beside));
    let rows = variants.iter().filter_map(|variant| Some(variant.row(ours(variant)?)));
    let headings = [
        "server",
        "keeps",
        "batch/s",
        "lowest-highest",
        "x",
        "us/batch",
        "x",
        "core",
        "1 conn",
        "x",
        "at 200/s",
        "p50 ms",
        "p99 ms",
    ];
    table::print(headings, &rows.collect::<Vec<_>>());
    println!(
        "x: relative to ringwell that keeps nothing (the first five) or everything (the others)"
    );
}

fn raw(variants: &[Variant]) -> Value {
    let sample = |sample: &Sample| {
        json!({
            "many": sample.many.0,
            "cpu_us_per_batch": sample.cpu_us_per_batch,
            "busy": sample.busy,
            "one": sample.one.as_ref().map(|one| &one.0),
            "fixed": sample.fixed.0,
        })
    };
    let variant = |variant: &Variant| {
        json!({
            "server": variant.name,
            "keeps": variant.keeps,
            "beside": variant.beside,
            "samples": variant.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    variants.iter().map(variant).collect()
}
