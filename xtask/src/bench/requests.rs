//! Sends complete requests to servers that run under cachegrind; counts instructions and cache
//! misses.
//!
//! Kernel code is not counted. There are two runs of different lengths. The startup costs the same
//! in both, so the difference between their counts excludes it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::guided;
use super::load::wrk;
use super::machine::Machine;
use super::server::{Demo, Programs, Server};
use crate::shell::target_dir;

const SECONDS: [u32; 2] = [2, 12];
const CONNECTIONS: [u32; 3] = [32, 64, 128];
/// Models a core with a 48 KiB L1 data cache, a 32 KiB L1 instruction cache and a 2 MiB L2 cache.
const CACHES: [&str; 3] = ["--D1=49152,12,64", "--I1=32768,8,64", "--LL=2097152,16,64"];

/// The counts of one run, or the mean counts per request.
#[derive(Clone, Copy)]
struct Counted {
    requests: f64,
    instructions: f64,
    /// Misses in the L1 instruction cache.
    first_misses: f64,
    /// Misses in the L2 cache, for instructions and data together.
    large_misses: f64,
}

/// The programs, the machine, and the location of cachegrind's output.
struct Bench {
    programs: Programs,
    machine: Machine,
    out: PathBuf,
}

/// Prints a table, and returns by name the figures that have almost no noise.
///
/// # Errors
/// If a program does not build or run, or an answer is wrong.
pub(crate) fn requests(profile: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let out = target_dir().join("cachegrind.out");
    let mut under: Vec<OsString> = ["valgrind", "--quiet", "--tool=cachegrind", "--cache-sim=yes"]
        .into_iter()
        .chain(CACHES)
        .map(OsString::from)
        .collect();
    under.push(format!("--cachegrind-out-file={}", out.display()).into());
    // Under valgrind, everything takes about fifty times as long, so deadlines are longer.
    let mut programs = guided::programs(profile, true)?;
    programs.under = under;
    let bench = Bench { programs, machine: Machine::look(profile)?, out };
    println!("{}", bench.machine.line());
    println!(
        "a request of 40 rows      instructions   misses of 32 KiB   of 2 MiB   instructions, x"
    );
    let mut figures = BTreeMap::new();
    let mut fixed = None;
    for connections in CONNECTIONS {
        let ringwell = bench.a_request(connections, Bench::ringwell)?;
        let fixed = match fixed {
            Some(fixed) => fixed,
            None => *fixed.insert(bench.a_request(64, Bench::fixed)?),
        };
        print(&format!("{connections} connections"), &ringwell, &fixed);
        let name = format!("server, {connections} connections: instructions a request");
        figures.insert(name, ringwell.instructions.round());
    }
    if let Some(fixed) = fixed {
        print("fixed bytes, 64", &fixed, &fixed);
    }
    Ok(figures)
}

fn print(name: &str, counted: &Counted, fixed: &Counted) {
    let Counted { instructions, first_misses, large_misses, .. } = counted;
    let ratio = instructions / fixed.instructions;
    println!("{name:<24}{instructions:>14.0}{first_misses:>19.0}{large_misses:>11.1}{ratio:>18.2}");
}

impl Bench {
    fn a_request(
        &self,
        connections: u32,
        start: impl Fn(&Self) -> anyhow::Result<Server>,
    ) -> anyhow::Result<Counted> {
        let [short, long] = SECONDS.map(|seconds| self.run(start(self)?, connections, seconds));
        let (short, long) = (short?, long?);
        let requests = long.requests - short.requests;
        ensure!(
            requests > 0.0,
            "unexpected count of requests in the longer run: {}",
            long.requests
        );
        Ok(Counted {
            requests,
            instructions: (long.instructions - short.instructions) / requests,
            first_misses: (long.first_misses - short.first_misses) / requests,
            large_misses: (long.large_misses - short.large_misses) / requests,
        })
    }

    fn run(&self, server: Server, connections: u32, seconds: u32) -> anyhow::Result<Counted> {
        let pools = self.programs.work.join("requests").join("demo-pools.csv");
        let sent = wrk(&self.machine, &server, &pools, connections, seconds)?;
        let problems = sent.problems();
        ensure!(problems.is_empty(), "{}", problems.join(", "));
        let overflow =
            if server.pools().is_some() { server.overflow_reasons() } else { String::new() };
        ensure!(overflow.is_empty(), "rows got overflow numbers: {overflow}");
        server.stop()?;
        read(&self.out, f64::from(sent.requests))
    }

    fn ringwell(&self) -> anyhow::Result<Server> {
        let demo = Demo::usual("requests", "memory");
        Server::demo(&self.programs, &self.machine.server_cores, &demo, false)
    }

    fn fixed(&self) -> anyhow::Result<Server> {
        Server::ceiling(&self.programs, &self.machine.server_cores)
    }
}

/// Reads the totals of a run from cachegrind's output.
fn read(out: &Path, requests: f64) -> anyhow::Result<Counted> {
    let text = std::fs::read_to_string(out)?;
    let line = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.with_context(|| format!("cachegrind printed no {name}"))
    };
    let events = line("events: ")?.split(' ');
    let sums = line("summary: ")?.split(' ').map(str::parse::<f64>);
    let sums: BTreeMap<&str, f64> =
        events.zip(sums).map(|(name, sum)| Ok((name, sum?))).collect::<anyhow::Result<_>>()?;
    let sum = |names: &[&str]| -> anyhow::Result<f64> {
        names.iter().map(|name| sums.get(name).with_context(|| format!("no {name}")).copied()).sum()
    };
    Ok(Counted {
        requests,
        instructions: sum(&["Ir"])?,
        first_misses: sum(&["I1mr"])?,
        large_misses: sum(&["ILmr", "DLmr", "DLmw"])?,
    })
}
