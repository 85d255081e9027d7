//! Measures the cost of one visitor to a web page, compared with one row of a batch. Alternates
//! between `POST /site/v1/numbers` and a bulk request with one row for a new visitor, on one
//! keep-alive connection each.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::server::{Server, free_address, pinned};
use super::table::{self, median};
use crate::shell::{is_installed, target_dir};

/// The number of requests of each kind in one round. It is small enough that the server can
/// remember all new visitors of a run until their first keep-alive.
const ROUND: u32 = 2_000;
/// The number of requests of one kind before the other kind's turn. It is small, so that other work
/// on the machine affects both kinds equally.
const TURN: u32 = 20;
/// The lengths of two runs under callgrind. The startup costs the same in both, so the difference
/// between their counts excludes it.
const COUNTED: [u32; 2] = [200, 600];
const NAMES: [&str; 2] = ["one row of a batch", "POST /site/v1/numbers"];
const KEY: &str = "0123456789ABCDEF0123456789ABCDEF";
/// The head that a browser sends. It is used for both kinds, so that both heads cost the same.
const HEAD: &str = "host: calls.example\r\nuser-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    sec-fetch-site: cross-site\r\naccept: */*\r\naccept-language: en\r\n\
    referer: https://shop.example/\r\ncontent-type: text/plain;charset=UTF-8\r\n";

/// A kept connection.
struct Connection {
    stream: BufReader<TcpStream>,
    visitors: u32,
}

impl Connection {
    fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        Ok(Self { stream: BufReader::new(stream), visitors: 0 })
    }

    /// Sends a request for a new visitor; returns the time until the whole answer has arrived.
    fn ask(&mut self, is_page: bool) -> anyhow::Result<Duration> {
        self.visitors += 1;
        let n = self.visitors;
        // The header `origin` identifies a web page, so a bulk request must not have it. The name
        // `x-page` has the same length.
        let origin = if is_page { "origin" } else { "x-page" };
        let (path, body) = if is_page {
            let body = format!(
                "{{\"site\":\"pk_bench\",\"params\":{{\"gclid\":\"c-{n}\"}},\
                 \"landing\":\"https://shop.example/cars\",\"referrer\":\"\"}}"
            );
            ("/site/v1/numbers", body)
        } else {
            let suffix = format!(
                "1/allocate_number.json?ring_pool_key={KEY}&ringwell_visitor={n:032x}\
                 &gclid=c-{n}&landing=https%3A%2F%2Fshop.example%2Fcars"
            );
            let row = format!("{{\"requests\":[{{\"api_suffix\":\"{suffix}\"}}]}}");
            ("/api/2013-07-01/bulk.json", row)
        };
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{origin}: https://shop.example\r\n{HEAD}content-length: {length}\r\n\r\n{body}"
        );
        let began = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let answer = self.receive()?;
        let took = began.elapsed();
        let is_own = if is_page {
            answer.contains("\"lease\"")
        } else {
            answer.contains("\"promo_number\"") && !answer.contains("\"overflow\":true")
        };
        ensure!(is_own, "the visitor did not get a number of their own: {answer}");
        Ok(took)
    }

    fn receive(&mut self) -> anyhow::Result<String> {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the server closed the connection");
            if line == "\r\n" {
                break;
            }
            let field = line.to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().context("content-length")?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?)
    }
}

/// Runs the benchmark.
pub(super) fn pages(plan: &BenchInputs) -> anyhow::Result<Findings> {
    println!("\npages: {} and {}, new visitors, closed loop, in turns", NAMES[0], NAMES[1]);
    let mut raw = Vec::new();
    for durability in ["memory", "disk"] {
        let (command, address) = serve(plan, durability, &[])?;
        let log = plan.programs.work.join("pages.log");
        let server = Server::start(command, address, log, None)?;
        let mut connection = Connection::open(address)?;
        let turns = if plan.smoke { 100 } else { ROUND } / TURN;
        let mut samples: [Vec<[f64; 2]>; 2] = [Vec::new(), Vec::new()];
        for round in 0..=plan.rounds {
            let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
            for turn in 0..2 * turns {
                let kind = (turn % 2) as usize;
                for _ in 0..TURN {
                    times[kind].push(connection.ask(kind == 1)?.as_secs_f64() * 1e6);
                }
            }
            // The first round only warms up the server.
            if round == 0 && !plan.smoke {
                continue;
            }
            for (times, samples) in times.iter_mut().zip(&mut samples) {
                times.sort_by(f64::total_cmp);
                let at = |share: usize| times[times.len() * share / 100];
                samples.push([at(50), at(99)]);
            }
        }
        server.stop()?;
        let of = |kind: usize, which: usize| median(samples[kind].iter().map(|it| it[which]));
        let row = |kind: usize| {
            let figure = |which| format!("{:.1}", of(kind, which));
            [format!("{}, {durability}", NAMES[kind]), figure(0), figure(1)]
        };
        table::print(["us", "p50", "p99"], &[row(0), row(1)]);
        // Each ratio is of two values from the same round, so that a slow round affects both
        // values.
        let ratio = |which: usize| {
            median(samples[1].iter().zip(&samples[0]).map(|(page, row)| page[which] / row[which]))
        };
        println!("a page's request: {:.2} of a row's p50, {:.2} of its p99", ratio(0), ratio(1));
        raw.push(json!({"durability": durability, "samples": samples}));
    }
    let counted = counted(plan)?;
    Ok(Findings { raw: json!({"turns": raw, "instructions": counted}), problems: Vec::new() })
}

/// Instructions per request of each kind.
fn counted(plan: &BenchInputs) -> anyhow::Result<Option<[f64; 2]>> {
    if !is_installed("valgrind") {
        println!("valgrind is not installed: instructions were not counted");
        return Ok(None);
    }
    let mut counts = [0.0; 2];
    for kind in [0, 1] {
        let mut runs = [0.0; 2];
        for (run, requests) in runs.iter_mut().zip(COUNTED) {
            let file = target_dir().join("callgrind-pages.out");
            let out = format!("--callgrind-out-file={}", file.display());
            let valgrind = ["valgrind", "--quiet", "--tool=callgrind", out.as_str()];
            let (command, address) = serve(plan, "memory", &valgrind)?;
            let log = plan.programs.work.join("pages.log");
            let server = Server::start(command, address, log, None)?;
            let mut connection = Connection::open(address)?;
            for _ in 0..requests {
                connection.ask(kind == 1)?;
            }
            drop(connection);
            server.stop()?;
            let profile = std::fs::read_to_string(&file)?;
            let lines = profile.lines();
            let line = lines.filter_map(|it| it.strip_prefix("totals: ")).next_back();
            *run = line.context("no totals in callgrind's file")?.trim().parse()?;
        }
        counts[kind] = (runs[1] - runs[0]) / f64::from(COUNTED[1] - COUNTED[0]);
    }
    let [row, page] = counts;
    println!("{page:.0} instructions a page's request, {row:.0} a row's: {:.2} of it", page / row);
    Ok(Some(counts))
}

/// A server with a site, one pool and one shard; `before` precedes the program on the command line.
fn serve(
    plan: &BenchInputs,
    durability: &str,
    before: &[&str],
) -> anyhow::Result<(Command, SocketAddr)> {
    let address = free_address()?;
    let data = plan.programs.work.join("pages");
    if data.exists() {
        std::fs::remove_dir_all(&data)?;
    }
    let config = plan.programs.work.join("pages.toml");
    // The lifetime is so short that the pool is never exhausted, even with thousands of visitors.
    let text = format!(
        "data = \"{}\"\nlisten = [\"{address}\"]\nshards = 1\ndurability = \"{durability}\"\n\
         deadline = \"10s\"\ndrain_pause = \"0s\"\n\
         [[site]]\nkey = \"pk_bench\"\norigins = [\"https://shop.example\"]\n\
         leases_per_minute = 1000000\n\
         [[site.swap]]\nnumber = \"+18005550100\"\nring_pool = 1\n\
         [[ring_pool]]\nid = 1\nring_pool_key = \"{KEY}\"\nlifetime = \"10ms\"\n\
         numbers = [\"2125550000-2125554999\"]\noverflow_number = \"2125559999\"\n",
        data.display()
    );
    std::fs::write(&config, text)?;
    let program = match before {
        [] => pinned(&plan.machine.server_cores, &plan.programs.ringwell),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&plan.programs.ringwell);
            command
        }
    };
    let mut command = program;
    command.arg("serve").arg("--config").arg(config);
    Ok((command, address))
}
