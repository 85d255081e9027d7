//! Starts and stops the stores behind two of the peers, Redis and Postgres.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::super::server::pinned;
use crate::shell::{is_installed, output, run};

/// The time limit for a store to start or stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Postgres' settings; `bench/peers/README.md` gives the reasons.
const POSTGRES_SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "autovacuum_naptime=1s",
    "autovacuum_vacuum_cost_delay=0",
    "jit=off",
    "max_connections=100",
];
/// The count of connections from the front server to Postgres.
const CONNECTIONS: u32 = 16;
/// The arguments that make Postgres run as its own user, because it refuses to run as root.
const AS_POSTGRES: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];

/// A running Redis or Postgres. Dropping it stops it.
pub(super) struct Store {
    child: Child,
    reached_at: String,
}

impl Store {
    /// The address at which the front server reaches the store.
    pub(super) fn reached_at(&self) -> &str {
        &self.reached_at
    }

    /// User and system time so far, of all the store's processes together.
    pub(super) fn cpu_seconds(&self) -> f64 {
        tree_seconds(self.child.id())
    }

    fn start(
        mut command: Command,
        is_ready: impl Fn() -> bool,
        log: &Path,
        reached_at: String,
    ) -> anyhow::Result<Self> {
        let out = File::create(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let begun = Instant::now();
        let mut store = Self { child: command.spawn()?, reached_at };
        while !is_ready() {
            if let Some(status) = store.child.try_wait()? {
                bail!("the store ended with {status}, see {}", log.display());
            }
            ensure!(begun.elapsed() < PATIENCE, "no answer after {PATIENCE:?}: {}", log.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(store)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // On SIGINT, both Redis and Postgres end without waiting for clients.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The directories and cores that a store uses.
pub(super) struct StoreHome<'a> {
    /// Directory for data and logs.
    pub(super) work: &'a Path,
    /// Directory for sockets, whose paths must be short.
    pub(super) sockets: &'a Path,
    /// The cores, in the form that `taskset -c` takes.
    pub(super) cores: &'a str,
}

impl StoreHome<'_> {
    /// Starts Redis; if `flushed`, it flushes each write before it answers.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn redis(&self, flushed: bool) -> anyhow::Result<Store> {
        let data = self.work.join("redis");
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        std::fs::create_dir_all(&data)?;
        let socket = self.sockets.join("redis.sock");
        let mut command = pinned(self.cores, Path::new("redis-server"));
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(&data);
        if flushed {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        } else {
            command.args(["--appendonly", "no"]);
        }
        let reached_at = socket.display().to_string();
        let is_ready = || UnixStream::connect(&socket).is_ok();
        Store::start(command, is_ready, &self.work.join("redis-server.log"), reached_at)
    }

    /// Starts Postgres; if `flushed`, it flushes each commit before it answers.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn postgres(&self, flushed: bool) -> anyhow::Result<Store> {
        let (data, made) = (self.work.join("postgres"), self.work.join("postgres-made"));
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        if !made.exists() {
            self.init_postgres(&made)?;
        }
        run(Command::new("cp").arg("-a").arg(&made).arg(&data))?;
        let program = postgres_program("postgres").context("postgres is gone")?;
        let mut command = if is_root() {
            let mut command = pinned(self.cores, Path::new("setpriv"));
            command.args(AS_POSTGRES).arg(&program);
            run(Command::new("chown").arg("postgres").arg(self.sockets))?;
            command
        } else {
            pinned(self.cores, &program)
        };
        command.arg("-D").arg(&data).arg("-k").arg(self.sockets);
        for setting in POSTGRES_SETTINGS {
            command.args(["-c", setting]);
        }
        command
            .args(["-c", if flushed { "synchronous_commit=on" } else { "synchronous_commit=off" }]);
        let host = self.sockets.display();
        let reached_at =
            format!("host={host} user=postgres database=postgres pool_max_conns={CONNECTIONS}");
        // Postgres writes this file when it is ready; pg_ctl also waits for it.
        let note = data.join("postmaster.pid");
        let is_ready = || std::fs::read_to_string(&note).is_ok_and(|it| it.contains("ready"));
        Store::start(command, is_ready, &self.work.join("postgres-server.log"), reached_at)
    }

    /// Creates an empty database cluster, which is copied for each start.
    fn init_postgres(&self, made: &Path) -> anyhow::Result<()> {
        // The directory has another name until the cluster is complete.
        let begun = self.work.join("postgres-begun");
        if begun.exists() {
            std::fs::remove_dir_all(&begun)?;
        }
        std::fs::create_dir(&begun)?;
        let program = postgres_program("initdb").context("initdb is gone")?;
        let mut command = if is_root() {
            run(Command::new("chown").arg("postgres").arg(&begun))?;
            let mut command = Command::new("setpriv");
            command.args(AS_POSTGRES).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(["--username=postgres", "--auth=trust", "--no-sync", "-D"]).arg(&begun);
        output(&mut command)?;
        Ok(std::fs::rename(begun, made)?)
    }
}

/// The reason why Postgres cannot run with its data in `work`, if there is one.
pub(super) fn postgres_lacks(work: &Path) -> Option<String> {
    if postgres_program("postgres").is_none() || postgres_program("initdb").is_none() {
        return Some("postgres is not installed (Debian: postgresql)".to_owned());
    }
    if !is_root() {
        return None;
    }
    let mut enter = Command::new("setpriv");
    enter.args(AS_POSTGRES).args(["test", "-x"]).arg(work);
    let entered = enter.stderr(Stdio::null()).status().is_ok_and(|it| it.success());
    (!entered).then(|| format!("the user postgres cannot enter {}", work.display()))
}

/// The path of this Postgres program; Debian does not put these programs in the PATH.
fn postgres_program(name: &str) -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = debian.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop().or_else(|| is_installed(name).then(|| PathBuf::from(name)))
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// User and system time of a process, its living children, and its ended ones.
fn tree_seconds(root: u32) -> f64 {
    /// Clock ticks a second in `/proc`, the same on every known Linux system.
    const TICKS_PER_SECOND: f64 = 100.0;
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let ticks = stats.filter_map(|stat| {
        let (pid, rest) = stat.split_once(' ')?;
        // The name, in parentheses, may contain spaces. The 12th and 13th fields after the name are
        // utime and stime; the next two are the same times for children that have ended.
        let fields: Vec<_> = rest.rsplit_once(") ")?.1.split(' ').collect();
        let ours = [pid, *fields.get(1)?].contains(&root.to_string().as_str());
        let times = fields.get(11..15)?.iter().map(|it| it.parse::<u32>().unwrap_or(0));
        ours.then(|| f64::from(times.sum::<u32>()))
    });
    ticks.sum::<f64>() / TICKS_PER_SECOND
}
