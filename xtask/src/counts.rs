//! Counts instructions and allocations on a batch's path, and compares them with the last accepted
//! counts.
//!
//! Owns `bench/counts.json`. Counts do not depend on the machine's load, so they show a change of
//! 3 %, which measured times would not show. They depend on the profile, the compiler and the
//! processor's features, so each profile has separate counts, and the file records the conditions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bench;
use crate::callgrind;
use crate::shell::{cargo, output, programs as programs_of, root};

/// The file with the last accepted counts, from the root.
const FILE: &str = "bench/counts.json";
/// The maximum rise of a figure, in percent. A figure that rises more must be accepted again.
const RISE_MAX: f64 = 3.0;
/// Rows per batch, in both programs whose instructions are counted.
const ROWS: u32 = 40;
/// The lengths of two runs. The startup costs the same in both, so the difference between their
/// counts excludes it.
const ENGINE_BATCHES: [u32; 2] = [200, 600];
const PATH_BATCHES: [u32; 2] = [20, 60];
/// The test of `ringwell-node` that is counted, and the environment variable for its count of
/// batches.
const PATH_TEST: &str = "bulk::tests::counted::the_counted_batches_get_their_numbers";
const PATH_VARIABLE: &str = "RINGWELL_COUNTED_BATCHES";

/// The environment variable for the batch style. [`STYLES`] are counted in addition to the compact
/// style. Real clients use these styles; the last one adds a look-up after each batch.
const STYLE_VARIABLE: &str = "RINGWELL_COUNTED_STYLE";
/// The prefix of the names of the styles' figures.
const STYLE_FIGURE: &str = "path, ";
/// The prefixes of figures that may be omitted.
const OPTIONAL: [&str; 2] = [STYLE_FIGURE, "server, "];
const STYLES: [&str; 16] = [
    "no id",
    "integer id",
    "id first",
    "ring_pools",
    "Python",
    "indented",
    "PHP",
    "Go",
    ".NET",
    "Go, id first",
    "key last",
    ".xml",
    "URL",
    "visitors",
    "idempotency key",
    "look-ups",
];

/// The environment variable for the rows per batch. [`SIZES`] contains the sizes that are counted,
/// each with the lengths of its two runs in batches.
const ROWS_VARIABLE: &str = "RINGWELL_COUNTED_ROWS";
const SIZES: [(u32, [u32; 2]); 3] = [(1, [50, 150]), (5, [50, 150]), (500, [4, 12])];

/// Flags of `cargo xtask counts`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cargo profile; CI has built `dev` anyway. With `guided`, the packaged program, only complete
    /// requests are counted (--server).
    #[arg(long, default_value = "dev")]
    profile: String,
    /// Omit other styles of JSON and other sizes of batches.
    #[arg(long)]
    quick: bool,
    /// Also count complete requests to a running server and its cache misses, compared with the
    /// fixed-bytes server.
    #[arg(long)]
    server: bool,
    /// Write the counts into bench/counts.json, for comparison with later runs.
    #[arg(long)]
    accept: bool,
}

/// The counts of one profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counts {
    /// The compiler, in the form that `rustc --version` prints.
    rustc: String,
    /// The processor's features that determine which instructions compiled code and the C library
    /// use.
    machine: String,
    /// The figures by name; lower is better.
    figures: BTreeMap<String, f64>,
}

impl Counts {
    /// Adds the compiler and the machine to `figures`.
    fn here(figures: BTreeMap<String, f64>) -> anyhow::Result<Self> {
        let rustc = output(Command::new("rustc").arg("--version"))?.trim().to_owned();
        Ok(Self { rustc, machine: machine(), figures })
    }
}

/// Counts, prints, and compares or accepts.
///
/// # Errors
/// If a program does not build or run. Without `--accept`, also if a figure has risen by more than
/// 3 %, or if there is no figure to compare with.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let profile = args.profile.as_str();
    let mut now = if profile == bench::GUIDED {
        Counts::here(BTreeMap::new())?
    } else {
        Counts::here(count(profile, !args.quick)?)?
    };
    if args.server {
        now.figures.extend(bench::requests(profile)?);
    }
    let path = root().join(FILE);
    let mut all: BTreeMap<String, Counts> = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).context(FILE)?,
        Err(_) => BTreeMap::new(),
    };
    println!("profile {profile}, {}, {}", now.rustc, now.machine);
    for (name, figure) in &now.figures {
        let before = all.get(profile).and_then(|last| last.figures.get(name));
        let before = before.map_or("new".to_owned(), |before| format!("before {before:.1}"));
        println!("{name:<40} {figure:>10.1}   {before}");
    }
    if args.accept {
        // Accepted figures that were not counted this time stay unchanged.
        let last = all.remove(profile).map(|last| last.figures).unwrap_or_default();
        let left_out =
            last.into_iter().filter(|(name, _)| OPTIONAL.iter().any(|of| name.starts_with(of)));
        let mut figures: BTreeMap<String, f64> = left_out.collect();
        figures.extend(now.figures);
        all.insert(profile.to_owned(), Counts { figures, ..now });
        std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")?;
        println!("accepted: {FILE}");
        return Ok(());
    }
    let how =
        format!("`cargo xtask counts --profile {profile} --accept` accepts the current counts");
    let last = all.get(profile).with_context(|| format!("{FILE} does not have it; {how}"))?;
    match compare(last, &now) {
        Compared::Alike => println!("none has risen by more than {RISE_MAX} %"),
        Compared::OtherMachine => println!("not compared: {FILE} was recorded on {}", last.machine),
        Compared::OtherCompiler => bail!("{FILE} was recorded with {}; {how}", last.rustc),
        Compared::Risen(names) => {
            bail!("these counts have risen by more than {RISE_MAX} %: {}; {how}", names.join(", "))
        }
    }
    Ok(())
}

/// The result of comparing two counts.
#[derive(Debug, PartialEq)]
enum Compared {
    Alike,
    /// The names of the figures that have risen or have never been accepted.
    Risen(Vec<String>),
    /// The repository determines the compiler's version; after it changes, the counts must be
    /// accepted again.
    OtherCompiler,
    OtherMachine,
}

fn compare(last: &Counts, now: &Counts) -> Compared {
    if last.machine != now.machine {
        return Compared::OtherMachine;
    }
    if last.rustc != now.rustc {
        return Compared::OtherCompiler;
    }
    let risen = now.figures.iter().filter(|(name, figure)| {
        let before = last.figures.get(*name);
        before.is_none_or(|before| **figure > before * (1.0 + RISE_MAX / 100.0))
    });
    let risen: Vec<String> = risen.map(|(name, _)| name.clone()).collect();
    if risen.is_empty() { Compared::Alike } else { Compared::Risen(risen) }
}

fn count(profile: &str, with_styles: bool) -> anyhow::Result<BTreeMap<String, f64>> {
    let built = build(profile)?;
    let program = |name| built.get(name).with_context(|| format!("cargo built no {name}"));
    let (engine, node) = (program("example engine")?, program("lib ringwell_node")?);
    let engine = a_row(ENGINE_BATCHES, ROWS, |batches| {
        Ok(callgrind::count(engine, |it| it.arg(batches.to_string()))?.instructions)
    })?;
    let (path, memory) = path_of(node, PATH_BATCHES, "compact", ROWS)?;
    let of_memory = |name| memory[name].as_f64().with_context(|| format!("no {name}"));
    let figures = [
        ("engine: instructions a row", engine),
        ("path: instructions a row", path),
        ("path: allocations a batch", of_memory("allocations")?),
        ("path: bytes a batch", of_memory("bytes")?),
    ];
    let figures = figures.map(|(name, figure)| (name.to_owned(), figure));
    let mut figures: BTreeMap<String, f64> = figures.into();
    let mut add = |name: &str, figure| {
        figures.insert(format!("{STYLE_FIGURE}{name}: instructions a row"), figure);
    };
    if with_styles {
        for style in STYLES {
            add(style, path_of(node, PATH_BATCHES, style, ROWS)?.0);
        }
        for (rows, batches) in SIZES {
            add(&format!("{rows} in a batch"), path_of(node, batches, "compact", rows)?.0);
        }
    }
    Ok(figures)
}

/// Counts the instructions per row on a batch's path, and the memory that a batch needs.
fn path_of(node: &Path, batches: [u32; 2], style: &str, rows: u32) -> anyhow::Result<(f64, Value)> {
    let mut memory = Value::Null;
    let figure = a_row(batches, rows, |batches| {
        let counted = callgrind::count(node, |it| {
            it.args([PATH_TEST, "--exact", "--nocapture", "--test-threads=1"]);
            it.env(PATH_VARIABLE, batches.to_string());
            it.env(STYLE_VARIABLE, style).env(ROWS_VARIABLE, rows.to_string())
        })?;
        let line = counted.printed.lines().find_map(|line| line.split_once("COUNTED "));
        let line = line.with_context(|| format!("{PATH_TEST} printed no figures for memory"))?;
        memory = serde_json::from_str(line.1)?;
        Ok(counted.instructions)
    })?;
    Ok((figure, memory))
}

/// The instructions per row, rounded to a tenth. They are computed from the difference between two
/// runs, whose lengths in batches of `rows` rows are in `batches`.
fn a_row(
    batches: [u32; 2],
    rows: u32,
    mut run: impl FnMut(u32) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let [short, long] = [run(batches[0])?, run(batches[1])?];
    let rows = f64::from((batches[1] - batches[0]) * rows);
    Ok(((long - short) / rows * 10.0).round() / 10.0)
}

/// Builds the programs that are counted; returns them by the kinds and names of their targets.
fn build(profile: &str) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut programs = BTreeMap::new();
    for (what, package) in [
        (["test", "--no-run", "--lib"].as_slice(), "ringwell-node"),
        (["build", "--example", "engine"].as_slice(), "ringwell-bench"),
    ] {
        let mut command = cargo();
        // Incremental compilation changes the codegen units, and with them the counts. CI also
        // builds without it.
        command.env("CARGO_INCREMENTAL", "0");
        command.args(what);
        // With `dev`, the features are those of CI's tests, so that nothing is built again. Other
        // profiles are only used by hand.
        if profile == "dev" {
            command.arg("--workspace");
        } else {
            command.args(["-p", package, "--profile", profile]);
        }
        for message in programs_of(&mut command)? {
            let target = &message["target"];
            let names = (target["kind"][0].as_str(), target["name"].as_str());
            if let ((Some(kind), Some(name)), Some(program)) =
                (names, message["executable"].as_str())
            {
                programs.insert(format!("{kind} {name}"), PathBuf::from(program));
            }
        }
    }
    Ok(programs)
}

/// Describes the machine. If the processor has AVX2, the C library copies bytes differently.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let with = if cpu.contains(" avx2 ") { "with" } else { "without" };
    format!("{} {with} AVX2", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests;
