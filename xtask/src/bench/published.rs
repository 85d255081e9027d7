//! Repeats experiments that the authors of comparable systems published with their figures. Prints
//! one line for each experiment, with the published result and ours.
//!
//! The authors' machines were different, so do not compare the results directly. Compare how close
//! each result is to the limit that its experiment sets.

use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::backend;
use super::inputs::{BenchInputs, Findings};
use super::load::ROWS;
use super::loader::{Load, load};
use super::server::{Demo, Server};
use super::table;
use crate::shell::{is_installed, output, root};

/// The gem's programs that print `what: figure (published: figure)`.
const EXAMPLES: [&str; 3] = ["slow_proxy", "slow_backend", "counter"];
/// The count of North American telephone numbers to hand out.
const ALL_NUMBERS: f64 = 5.5e9;
/// The load tests: the connections, the requests per second, and the published result.
const LOADS: [(u32, u32, &str); 5] = [
    (1, 30, "wanted: p90 under 200 ms"),
    (1, 1_000, "wanted: p90 under 200 ms"),
    (64, 400, "p50 93 ms, on 3 to 4 machines"),
    (64, 1_700, "p50 102 ms, on 3 to 4 machines"),
    (64, 2_000, "the most that could be sent"),
];

/// The experiment, the published result, and the result of this run.
type Line = [String; 3];

/// Runs all experiments.
pub(super) fn published(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!(
        "\npublished: experiments by the authors of comparable systems, their results and ours"
    );
    let mut lines = Vec::new();
    if is_installed("ruby") {
        for example in EXAMPLES {
            lines.extend(ruby(example)?);
        }
    } else {
        println!("skipped the gem's examples: ruby is not installed");
    }
    let (mut raw, mut problems) = (Vec::new(), Vec::new());
    let demo = Demo::usual("published", "disk");
    let server = Server::demo(&plan.programs, &plan.machine.server_cores, &demo, false)?;
    let pools = server.pools().context("the demo has no list of pools")?;
    for (connections, rate, wanted) in LOADS {
        let load = load(plan, server.address, &pools, connections, Some(rate))?;
        problems.extend(load.problems(0.01).iter().map(|it| format!("{rate}/s: {it}")));
        lines.push(at_rate(connections, rate, wanted, &load));
        raw.push(load.0);
    }
    let fastest = load(plan, server.address, &pools, 64, None)?;
    problems.extend(fastest.problems(0.01).iter().map(|it| format!("as fast as it goes: {it}")));
    lines.extend(all_numbers(&fastest));
    raw.push(fastest.0);
    drop(server);
    let asked = backend::requests_a_second(plan, &pools)?;
    lines.push([
        "a server that fetches each request's pool from an application that takes 100 ms"
            .to_owned(),
        "9.34/s blocking, 220/s evented".to_owned(),
        format!("{asked:.0}/s"),
    ]);
    table::print(["what", "published", "here"], &lines);
    println!(
        "Ruby: one process, without a Ringwell server. Others: one shard, every answer \
        on disk."
    );
    let lines: Vec<Value> = lines.iter().map(|line| json!(line)).collect();
    Ok(Findings { raw: json!({"lines": lines, "loads": raw}), problems })
}

/// The figures of one of the gem's examples.
fn ruby(example: &str) -> anyhow::Result<Vec<Line>> {
    let program = root().join(format!("ruby/ringwell/examples/{example}.rb"));
    let printed = output(Command::new("ruby").arg("-W:no-experimental").arg(program))?;
    let lines: Vec<_> = printed.lines().filter_map(line).collect();
    anyhow::ensure!(!lines.is_empty(), "{example} printed no figure: {printed}");
    Ok(lines)
}

/// Reads `what: figure (published: figure)`.
fn line(text: &str) -> Option<Line> {
    let (ours, theirs) = text.split_once("(published:")?;
    let (what, here) = ours.split_once(": ")?;
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    Some([
        format!("Ruby: {what}"),
        theirs.trim_end_matches(')').trim().to_owned(),
        here.trim().to_owned(),
    ])
}

fn at_rate(connections: u32, rate: u32, wanted: &str, load: &Load) -> Line {
    let ms = |percentile: &str| load.number(&format!("/latency/{percentile}_us")) / 1e3;
    let held = load.answered() / load.number("/seconds").max(0.001);
    [
        format!("{rate} requests/s of {ROWS} rows, connections: {connections}"),
        wanted.to_owned(),
        format!("{held:.0}/s, p50 {:.2}, p90 {:.2}, p99 {:.2} ms", ms("p50"), ms("p90"), ms("p99")),
    ]
}

/// The time that handing out all numbers would take at this run's rate.
fn all_numbers(load: &Load) -> [Line; 2] {
    let numbers = load.rate() * f64::from(ROWS);
    let what = format!("as many requests of {ROWS} rows as it takes, connections: 64");
    let hours = ALL_NUMBERS / numbers.max(1.0) / 3600.0;
    [
        [
            what,
            "2000/s, 80000 numbers/s".to_owned(),
            format!("{:.0}/s, {numbers:.0} numbers/s", load.rate()),
        ],
        [
            "all 5.5 billion numbers, at that rate".to_owned(),
            "wanted: 12 h (127315 numbers/s)".to_owned(),
            format!("{hours:.2} h"),
        ],
    ]
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_figure_of_an_example_is_read_with_the_published_one() {
        let text = "10 requests,  5 at a time, evented:   4.20 s   (published:  4.21)";
        let wanted = ["Ruby: 10 requests, 5 at a time, evented", "4.21", "4.20 s"];
        assert_eq!(line(text), Some(wanted.map(str::to_owned)));
        assert_eq!(line("readers saw whole steps only: true"), None);
    }
}
