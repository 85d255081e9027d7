//! Measures allocation for batches of many sizes while the server does all its other work:
//! importing ten thousand lines, resizing every pool, taking snapshots and dropping history.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;

use super::inputs::{BenchInputs, Findings};
use super::load::{OpenLoop, ROWS, mixed_loop};
use super::server::{Demo, Server, free_address, pinned};
use super::table::{self, median};

/// Batches a second.
const RATE: u32 = 1_000;
/// The hash of the token `benchmark`, which only this server accepts.
const TOKEN_SHA256: &str = "0e89820860c342f2c7ec694d144023b10301c2accdd078cb5167a06d0c3d5bcc";
const TOKEN: &str = "benchmark";

/// Settings that make the server take snapshots and drop old history every few seconds instead of
/// every few minutes.
const SMALL_JOURNAL: &str = "[journal]\nsegment_bytes = \"8MiB\"\n\
    snapshot_every_bytes = \"16MiB\"\nhistory_bytes = \"32MiB\"\n";

#[derive(Serialize)]
struct Sample {
    quiet: OpenLoop,
    managed: OpenLoop,
    import_seconds: f64,
    resize_seconds: f64,
}

/// Runs the benchmark: alternates between a server that only allocates and a server that also does
/// all other work.
pub(super) fn manage(plan: &BenchInputs) -> anyhow::Result<Findings> {
    let lines: u32 = if plan.smoke { 200 } else { 10_000 };
    println!(
        "\nmanage: open loop, {RATE} batches/s of 1 to 500 rows, {ROWS} on average, over 200 pools of 500,"
    );
    println!(
        "on disk, one shard; a second server takes a snapshot after each 16 MiB of its journal,"
    );
    println!("keeps 32 MiB, imports {lines} lines into SQLite, and then resizes every pool;");
    println!("medians of {} rounds", plan.rounds);
    let calm = Stage::new(plan, "calm", "")?;
    let busy = Stage::new(plan, "busy", SMALL_JOURNAL)?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        let quiet = mixed_loop(plan, &calm.server, &calm.pools, RATE)?;
        let import = busy.new_pools(round, lines)?;
        let (managed, took) = thread::scope(|scope| {
            let managing = scope.spawn(|| [busy.import(&import), busy.resize(round)]);
            let managed = mixed_loop(plan, &busy.server, &busy.pools, RATE);
            (managed, managing.join())
        });
        let took = took.map_err(|_| anyhow::anyhow!("an import panicked"))?;
        let [import, resize] = took;
        samples.push(Sample {
            quiet,
            managed: managed?,
            import_seconds: import?.as_secs_f64(),
            resize_seconds: resize?.as_secs_f64(),
        });
    }
    let [written, kept] = ["ringwell_journal_bytes_total", "ringwell_journal_kept_bytes"]
        .map(|name| busy.server.metric(name).map(|bytes| bytes >> 20));
    println!("journal of the second server: {} MiB written, {} MiB kept", written?, kept?);
    print(&samples);
    let problems = samples.iter().flat_map(|sample| {
        let both = [("quiet", &sample.quiet), ("managed", &sample.managed)];
        both.into_iter().flat_map(|(name, sample)| {
            let found = sample.problems(false).into_iter();
            found.map(move |problem| format!("{name}: {problem}"))
        })
    });
    let problems = problems.collect();
    Ok(Findings { raw: json!(samples), problems })
}

fn print(samples: &[Sample]) {
    let row = |name: &str, pick: fn(&Sample) -> &OpenLoop| {
        let of =
            |field: fn(&OpenLoop) -> f64| median(samples.iter().map(|sample| field(pick(sample))));
        let us = |value: f64| format!("{value:.0}");
        let p99 = of(|it| it.latency.p99_us);
        let cells = [of(|it| it.latency.p50_us), p99, of(|it| it.latency.p999_us)].map(us);
        let [p50, p99_us, p999] = cells;
        (p99, [name.to_owned(), p50, p99_us, p999])
    };
    let (quiet, quiet_row) = row("quiet", |sample| &sample.quiet);
    let (managed, managed_row) = row("managed", |sample| &sample.managed);
    table::print(["us", "p50", "p99", "p99.9"], &[quiet_row, managed_row]);
    println!("p99 of the second server relative to the first: {:.2}", managed / quiet);
    println!(
        "import {:.2} s, resize of every pool {:.2} s",
        median(samples.iter().map(|sample| sample.import_seconds)),
        median(samples.iter().map(|sample| sample.resize_seconds))
    );
}

/// A server whose database contains the same pools as a demo.
struct Stage<'a> {
    plan: &'a BenchInputs,
    folder: PathBuf,
    /// The list of pools, which the senders read.
    pools: PathBuf,
    management: SocketAddr,
    server: Server,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a BenchInputs, name: &str, journal: &str) -> anyhow::Result<Self> {
        let cores = &plan.machine.server_cores;
        let folder = plan.programs.work.join(format!("manage-{name}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let demo =
            Server::demo(&plan.programs, cores, &Demo::usual("manage-list", "memory"), false)?;
        let pools = folder.join("pools.csv");
        std::fs::copy(demo.pools().context("the demo has no list of pools")?, &pools)?;
        drop(demo);
        let (address, management) = (free_address()?, free_address()?);
        let config = folder.join("ringwell.toml");
        let text = format!(
            "data = \"{data}/data\"\nlisten = [\"{address}\"]\nshards = 1\ndeadline = \"{}\"\n\
             ring_pools = \"{pools}\"\n[management]\naddress = \"{management}\"\nrequests_per_second = 10000\n\
             token_sha256 = [\"{TOKEN_SHA256}\"]\n[directory]\n\
             database = \"sqlite:{data}/directory.sqlite\"\n[inventory]\n\
             check_numbers = \"possible\"\n{journal}",
            plan.programs.deadline.unwrap_or("100ms"),
            data = folder.display(),
            pools = pools.display(),
        );
        std::fs::write(&config, text)?;
        let mut command = pinned(cores, &plan.programs.ringwell);
        command.arg("serve").arg("--config").arg(config);
        let server = Server::start(command, address, folder.join("log"), None)?;
        Ok(Self { plan, folder, pools, management, server })
    }

    /// Writes a list of pools that are new to the server; each pool has one number.
    fn new_pools(&self, round: u32, lines: u32) -> anyhow::Result<PathBuf> {
        let mut list = HEADING.to_owned();
        for line in 0..lines {
            let id = 1_000 + round * lines + line;
            let number = 3_000_000_000 + u64::from(id);
            writeln!(list, "{id},key-of-import-{id},,1800,{number},1")?;
        }
        let path = self.folder.join("import.csv");
        std::fs::write(&path, list)?;
        Ok(path)
    }

    /// Adds ten numbers to every pool; returns the time that this took.
    fn resize(&self, round: u32) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        for pool in 1..=200 {
            let first = 4_000_000_000_u64 + u64::from((round * 200 + pool) * 10);
            let body = format!("{{\"ranges\":[\"{first}-{}\"]}}", first + 9);
            let mut stream = TcpStream::connect(self.management)?;
            write!(
                stream,
                "POST /v1/pools/{pool}/numbers HTTP/1.1\r\nhost: localhost\r\n\
                 authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "pool {pool}: {answer}");
        }
        Ok(begun.elapsed())
    }

    /// Makes the server import a list; returns the time that this took. The client runs on the
    /// server's core, because the sender needs the other core for itself.
    fn import(&self, list: &Path) -> anyhow::Result<Duration> {
        let cores = &self.plan.machine.server_cores;
        let mut command = pinned(cores, &self.plan.programs.ringwell);
        let url = format!("http://{}", self.management);
        command.args(["pools", "import", "--only-bad", "--url", &url]).arg(list);
        let begun = Instant::now();
        let done = command.env("RINGWELL_TOKEN", TOKEN).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        let printed = String::from_utf8_lossy(&done.stdout);
        ensure!(done.status.success(), "{}: {said}{printed}", list.display());
        Ok(begun.elapsed())
    }
}

const HEADING: &str = "id,ring_pool_key,overflow_number,lifetime_seconds,first_number,numbers\n";
