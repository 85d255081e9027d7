//! The table and chart in docs/figures.md, drawn from the newest results of
//! `cargo xtask bench peers --save`.
//!
//! No figure is typed by hand: a test compares the table and the chart with the results. Results of
//! smoke runs are ignored.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::bench::median;
use crate::shell::root;

/// The chart's path, from the root.
const CHART: &str = "docs/peers.svg";
/// The page that contains the table and the chart.
const PAGE: &str = "docs/figures.md";
/// The markers before and after the generated part of the page.
const MARKS: [&str; 2] = ["<!-- cargo xtask chart -->\n", "<!-- end of chart -->\n"];

/// Sizes in pixels: the width of the name column, the width of the longest bar, the height of a
/// line, and the space at the top.
const NAMES: u32 = 190;
const BAR: f64 = 400.0;
const LINE: u32 = 26;
const TOP: u32 = 48;

/// One server in the comparison. Figures are medians over the rounds.
struct Entry {
    name: String,
    /// The data that remains after a power cut.
    keeps: String,
    /// Ringwell's durability in the comparison.
    beside: String,
    batches_per_second: f64,
    cpu_us: f64,
    /// The p99 in the open loop.
    p99_ms: f64,
}

/// The results of one run: the file that contains them, the machine, and the entries.
struct Results {
    file: String,
    machine: Value,
    entries: Vec<Entry>,
}

/// Writes the chart, and the generated part of the page.
///
/// # Errors
/// If there are no results, or the page has no markers.
pub(crate) fn run() -> anyhow::Result<()> {
    let Some(results) = newest()? else {
        bail!("bench/results has no figures of peers: cargo xtask bench peers --save");
    };
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path)?;
    std::fs::write(root().join(CHART), results.svg())?;
    std::fs::write(&path, placed(&page, &results.markdown())?)?;
    println!("{CHART} and {PAGE} match {}", results.file);
    Ok(())
}

/// The newest results that contain the peers.
fn newest() -> anyhow::Result<Option<Results>> {
    let mut files = Vec::new();
    for day in std::fs::read_dir(root().join("bench/results"))? {
        let day = day?.path();
        if day.is_dir() {
            for file in std::fs::read_dir(day)? {
                files.push(file?.path());
            }
        }
    }
    // File names begin with the date and the time, so the last name is the newest file.
    files.sort();
    for file in files.iter().rev() {
        if let Some(results) = read(file).with_context(|| file.display().to_string())? {
            return Ok(Some(results));
        }
    }
    Ok(None)
}

fn read(file: &PathBuf) -> anyhow::Result<Option<Results>> {
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let variants = all.pointer("/results/peers/variants").and_then(Value::as_array);
    let Some(variants) = variants.filter(|_| all["plan"]["smoke"] == false) else {
        return Ok(None);
    };
    let file = file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let entries = variants.iter().map(entry).collect::<anyhow::Result<_>>()?;
    Ok(Some(Results { file, machine: all["machine"].clone(), entries }))
}

fn entry(variant: &Value) -> anyhow::Result<Entry> {
    let text = |name: &str| variant[name].as_str().map(str::to_owned).context("no text");
    let samples = variant["samples"].as_array().context("no samples")?;
    let middle =
        |at: &str| median(samples.iter().filter_map(|it| it.pointer(at).and_then(Value::as_f64)));
    Ok(Entry {
        name: text("server")?,
        keeps: text("keeps")?,
        beside: text("beside")?,
        batches_per_second: middle("/many/batches_per_second"),
        cpu_us: middle("/cpu_us_per_batch"),
        p99_ms: middle("/fixed/latency/p99_us") / 1e3,
    })
}

impl Results {
    /// Ringwell's entry with the comparable durability.
    fn ours(&self, entry: &Entry) -> Option<&Entry> {
        self.entries.iter().find(|it| it.name == "ringwell" && it.beside == entry.beside)
    }

    fn machine_line(&self) -> String {
        let of = |name: &str| self.machine[name].as_str().unwrap_or("?");
        let cpus = &self.machine["cpus"];
        format!("{cpus} x {}, Linux {}, commit {}", of("cpu"), of("kernel"), of("commit"))
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "![Batches a second of Ringwell and its peers]({})\n\n\
             | server | keeps after a power cut | batches/s of 40 rows | Ringwell does | CPU per batch \
             | p99 at 200 batches/s |\n|---|---|---|---|---|---|\n",
            CHART.trim_start_matches("docs/")
        );
        for entry in &self.entries {
            let times = self.ours(entry).map_or(0.0, |ours| ours.batches_per_second);
            let times = times / entry.batches_per_second.max(0.001);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {times:.1} times as many | {:.0} us | {:.2} ms |",
                entry.name, entry.keeps, entry.batches_per_second, entry.cpu_us, entry.p99_ms
            );
        }
        let _ = writeln!(
            text,
            "\nServer and store on one core, load on another, 64 connections: {}. Medians from \
             [{}](../{}).",
            self.machine_line(),
            self.file,
            self.file
        );
        text
    }

    fn svg(&self) -> String {
        let most = self.entries.iter().map(|it| it.batches_per_second).fold(1.0, f64::max);
        let rows = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let (width, height) = (NAMES + 520, TOP + rows.saturating_mul(LINE) + 28);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"12\" y=\"26\" font-size=\"16\" fill=\"#1a1a1a\">Batches of 40 numbers a \
             second, on one core</text>\n"
        );
        let mut y = TOP;
        for Entry { name, keeps, batches_per_second: rate, .. } in &self.entries {
            let colour = if name == "ringwell" { "#b3261e" } else { "#7a869a" };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#1a1a1a\">{}, keeps {}</text>\n\
                 <rect x=\"{NAMES}\" y=\"{y}\" width=\"{:.1}\" height=\"18\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\" fill=\"#1a1a1a\">{rate:.0}</text>",
                NAMES - 8,
                y + 14,
                escaped(name),
                escaped(keeps),
                BAR * rate / most,
                f64::from(NAMES) + BAR * rate / most + 6.0,
                y + 14,
            );
            y += LINE;
        }
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{}\" font-size=\"11\" fill=\"#5f6368\">{}</text>\n</svg>",
            y + 16,
            escaped(&self.machine_line())
        );
        svg
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Returns the page with `part` between the markers.
fn placed(page: &str, part: &str) -> anyhow::Result<String> {
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).context("the page has no place for the table")?;
    let (_, after) =
        rest.split_once(end).context("the page has no mark for the end of the table")?;
    Ok(format!("{before}{begin}{part}{end}{after}"))
}

#[cfg(test)]
mod tests;
