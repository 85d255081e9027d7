//! Starts servers under test, pinned to their cores. Waits until they are ready, measures them and
//! stops them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::shell::{WORKSPACE, cargo, run, target_dir};

/// The time limit for a server to be ready or to stop.
const PATIENCE: Duration = Duration::from_mins(2);
/// Clock ticks a second in `/proc/PID/stat`: 100 on every known machine with Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// The count of open files that 10,000 connections need. If the hard limit is lower, only root can
/// raise it.
const FILES_NEEDED: u32 = 11_000;
/// The programs that a benchmark uses.
pub(super) struct Programs {
    pub(super) ringwell: PathBuf,
    /// `ringwell-bench`.
    pub(super) bench: PathBuf,
    /// The directory for data and logs, on a real disk.
    pub(super) work: PathBuf,
    profile: String,
    /// The deadline of a batch, if it is not the server's default.
    pub(super) deadline: Option<&'static str>,
    /// The program that runs a server, with its arguments; `None` if the server runs directly.
    pub(super) under: Vec<OsString>,
}

impl Programs {
    /// Builds the programs with one profile, so that both servers are optimised in the same way.
    ///
    /// # Errors
    /// If the build fails.
    pub(super) fn build(profile: &str, smoke: bool) -> anyhow::Result<Self> {
        let packages = ["-p", "ringwell-cli", "-p", "ringwell-bench"];
        Self::build_packages(profile, smoke, &packages)
    }

    /// Uses an existing `ringwell`, and builds the other programs.
    ///
    /// # Errors
    /// If the build fails.
    pub(super) fn beside(ringwell: PathBuf, profile: &str, smoke: bool) -> anyhow::Result<Self> {
        let built = Self::build_packages(profile, smoke, &["-p", "ringwell-bench"])?;
        Ok(Self { ringwell, ..built })
    }

    fn build_packages(profile: &str, smoke: bool, packages: &[&str]) -> anyhow::Result<Self> {
        let mut build = cargo();
        // Smoke runs use CI's development build. For figures, only the features of the program
        // itself are built.
        if profile == "dev" {
            build.args(["build", "--all-targets"]).args(WORKSPACE);
        } else {
            build.args(["build", "--locked", "--profile", profile, "--bins"]).args(packages);
        }
        run(&mut build)?;
        let dir = target_dir().join(if profile == "dev" { "debug" } else { profile });
        let work = target_dir().join("bench-work");
        std::fs::create_dir_all(&work)?;
        // A smoke run shares its cores with the rest of CI. With the default deadline, some rows
        // would therefore be late and get overflow numbers.
        let deadline = smoke.then_some("5s");
        Ok(Self {
            ringwell: dir.join("ringwell"),
            bench: dir.join("ringwell-bench"),
            work,
            profile: profile.to_owned(),
            deadline,
            under: Vec::new(),
        })
    }

    /// Returns the path of an example from `bench/`, and builds it if necessary.
    ///
    /// # Errors
    /// If the build fails.
    pub(super) fn example(&self, name: &str) -> anyhow::Result<PathBuf> {
        if self.profile != "dev" {
            let arguments = ["build", "--locked", "-p", "ringwell-bench", "--example", name];
            run(cargo().args(arguments).args(["--profile", &self.profile]))?;
        }
        Ok(self.bench.with_file_name("examples").join(name))
    }

    /// A server on `cores`.
    fn server(&self, cores: &str, program: &Path) -> Command {
        let Some((first, others)) = self.under.split_first() else { return pinned(cores, program) };
        let mut command = pinned(cores, Path::new(first));
        command.args(others).arg(program);
        command
    }
}

/// Settings for nodes that share their cores with the rest of CI.
const PATIENT_LINKS: &str = "[links]\ndeadline = \"3s\"\nslow = \"2s\"\nwait = \"1s\"\n";

/// The options of `ringwell demo`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Demo {
    /// A name that is unique within a run; part of the data directory's name.
    pub(super) name: String,
    pub(super) durability: &'static str,
    pub(super) shards: u32,
    pub(super) pools: u32,
    /// Numbers per pool.
    pub(super) numbers: u32,
}

impl Demo {
    /// The usual demo: one shard, and 200 pools of 500 numbers.
    pub(super) fn usual(name: &str, durability: &'static str) -> Self {
        Self { name: name.to_owned(), durability, shards: 1, pools: 200, numbers: 500 }
    }
}

/// A running server. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    /// Its address.
    pub(super) address: SocketAddr,
    log: PathBuf,
    data: Option<PathBuf>,
    /// The time from the start of the process until `/readyz` first answered 200.
    pub(super) ready_after: Duration,
}

impl Server {
    /// Starts the fixed-bytes server.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn ceiling(programs: &Programs, cores: &str) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = programs.server(cores, &programs.bench);
        command.args(["ceiling", "--listen", &address.to_string()]);
        Self::start(command, address, programs.work.join("ceiling.log"), None)
    }

    /// Starts `ringwell demo` in its own data directory, which is emptied unless `keep` is set.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn demo(
        programs: &Programs,
        cores: &str,
        demo: &Demo,
        keep: bool,
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let data = programs.work.join(&demo.name);
        if !keep && data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let mut command = programs.server(cores, &programs.ringwell);
        command.arg("demo").arg("--data").arg(&data);
        command.args(["--listen", &address.to_string(), "--durability", demo.durability]);
        command.args(["--shards", &demo.shards.to_string(), "--pools", &demo.pools.to_string()]);
        command.args(["--numbers", &demo.numbers.to_string()]);
        // The lifetime is so short that a small set of pools is never exhausted.
        command.args(["--lifetime", "10ms"]);
        if let Some(deadline) = programs.deadline {
            command.args(["--deadline", deadline]);
        }
        let log = programs.work.join(format!("{}.log", demo.name));
        Self::start(command, address, log, Some(data))
    }

    /// Starts the two nodes of a cluster, with one shard each, for the pools in a demo's list.
    ///
    /// # Errors
    /// If they do not start.
    pub(super) fn nodes(
        programs: &Programs,
        cores: &str,
        pools: &Path,
        over_unix: bool,
    ) -> anyhow::Result<Vec<Self>> {
        let data = programs.work.join(if over_unix { "nodes-unix" } else { "nodes-tcp" });
        if data.exists() {
            // Journals from an earlier run would make the nodes hold their pools.
            std::fs::remove_dir_all(&data)?;
        }
        std::fs::create_dir_all(&data)?;
        let mut cluster = "version = 1\nsecret = \"the-secret-of-the-benchmark\"\n".to_owned();
        let names = ["a", "b"];
        let mut addresses = Vec::new();
        for (shard, name) in names.into_iter().enumerate() {
            let address = free_address()?;
            let link = if over_unix {
                format!("unix:{}", data.join(name).with_extension("link").display())
            } else {
                free_address()?.to_string()
            };
            let listen = format!("listen = [\"{address}\"]\n");
            let node = format!("name = \"{name}\"\nshards = [{shard}]\nlink = \"{link}\"\n");
            cluster.extend(["[[node]]\n", &node, &listen]);
            addresses.push(address);
        }
        std::fs::write(data.join("cluster.toml"), cluster)?;
        let start = |(name, address): (&str, SocketAddr)| {
            let config = data.join(name).with_extension("toml");
            let deadline = programs.deadline.unwrap_or("100ms");
            // If batches have a long deadline, links get one too. Otherwise, a slow link would get
            // fewer requests.
            let links = programs.deadline.map_or("", |_| PATIENT_LINKS);
            let text = format!(
                "data = \"{}\"\nlisten = [\"{address}\"]\ndurability = \"os\"\n\
                 deadline = \"{deadline}\"\nring_pools = \"{}\"\n{links}",
                data.join(name).display(),
                pools.display()
            );
            std::fs::write(&config, text)?;
            let mut command = pinned(cores, &programs.ringwell);
            command.arg("serve").arg("--config").arg(config);
            command.arg("--cluster").arg(data.join("cluster.toml")).args(["--node", name]);
            Self::start(command, address, data.join(name).with_extension("log"), None)
        };
        names.into_iter().zip(addresses).map(start).collect()
    }

    /// Starts a program that answers `/readyz` at `address` as soon as it serves.
    ///
    /// # Errors
    /// If the program ends, or is not ready in time.
    pub(crate) fn start(
        mut command: Command,
        address: SocketAddr,
        log: PathBuf,
        data: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let out = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let begun = Instant::now();
        let child = command.spawn().context("cannot start prlimit")?;
        let mut server = Self { child, address, log, data, ready_after: Duration::ZERO };
        while !is_ready(address) {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server ended with {status}: {}", server.log_tail());
            }
            if begun.elapsed() > PATIENCE {
                bail!("not ready after {PATIENCE:?}: {}", server.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        server.ready_after = begun.elapsed();
        Ok(server)
    }

    /// `demo-pools.csv` of this server, if it has pools.
    pub(super) fn pools(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("demo-pools.csv"))
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all threads so far.
    ///
    /// # Errors
    /// If the process has ended.
    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // The program's name, in parentheses, may contain spaces; utime and stime are the 12th and
        // 13th fields after it.
        let rest = stat.rsplit_once(") ").context("/proc/PID/stat has no name")?.1;
        let fields = rest.split(' ').skip(11).take(2);
        let ticks: u32 = fields.map(str::parse::<u32>).sum::<Result<_, _>>()?;
        Ok(f64::from(ticks) / TICKS_PER_SECOND)
    }

    /// The counts of overflow numbers by reason since the server started, according to its metrics;
    /// empty if there were none.
    pub(super) fn overflow_reasons(&self) -> String {
        let metrics = get(self.address, "/metrics").unwrap_or_default();
        let counts = metrics.lines().filter(|line| line.starts_with("ringwell_overflow_rows"));
        let some = counts.filter(|line| !line.ends_with(" 0"));
        some.collect::<Vec<_>>().join(", ")
    }

    /// An integer metric, summed over all shards.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let metrics = get(self.address, "/metrics")?;
        let lines = metrics.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(values.sum())
    }

    /// Resident memory in KiB.
    ///
    /// # Errors
    /// If the process has ended.
    pub(super) fn resident_kib(&self) -> anyhow::Result<u32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let field = line.and_then(|line| line.split_whitespace().nth(1)).context("no VmRSS")?;
        Ok(field.parse()?)
    }

    /// Drains the server and waits until it ends. The fixed-bytes server has nothing to drain.
    ///
    /// # Errors
    /// If the server does not end, or ends with a status other than 0.
    pub(super) fn stop(mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        run(Command::new("kill").args(["-TERM", &self.pid().to_string()]))?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() && self.data.is_some() {
                    bail!("the server ended with {status}: {}", self.log_tail());
                }
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > PATIENCE {
                bail!("still running {PATIENCE:?} after SIGTERM: {}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the server, which simulates a crash.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        format!("{}\n{}", self.log.display(), lines[lines.len().saturating_sub(10)..].join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that runs `program` on `cores`, with a limit on open files that is high enough for
/// the idle connections.
pub(super) fn pinned(cores: &str, program: &Path) -> Command {
    let mut command = Command::new("prlimit");
    let files = FILES_NEEDED.max(open_files_max());
    command.arg(format!("--nofile={files}:{files}"));
    command.args(["taskset", "-c", cores]).arg(program);
    command
}

/// This process's hard limit on open files.
fn open_files_max() -> u32 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok()).unwrap_or(0)
}

/// Returns a local address with a port that was free at the time of the call.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn is_ready(address: SocketAddr) -> bool {
    get(address, "/readyz").is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

/// The whole answer to a GET, including the head.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
