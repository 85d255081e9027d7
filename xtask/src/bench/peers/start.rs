//! Builds and starts the peers, and reports missing programs. Each peer has a folder in
//! `bench/peers/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::server::{Server, free_address, pinned};
use super::store::{self, Store, StoreHome};
use crate::bench::inputs::BenchInputs;
use crate::shell::{is_installed, output, root, run};

/// The Node.js option that enlarges the heap space for short-lived objects; `bench/peers/README.md`
/// gives the reasons.
const YOUNG: &str = "--max-semi-space-size=64";
/// The oldest minor version of Go 1 whose net/http supports patterns with methods.
const GO_MINOR_MIN: u32 = 22;

/// The compared programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ringwell itself, with this durability.
    Ours(&'static str),
    Go,
    Node,
    Ruby,
    /// Redis behind Go, and whether each write is flushed before the answer.
    Redis {
        flushed: bool,
    },
    /// Postgres behind Go, and whether each commit is flushed before the answer.
    Postgres {
        flushed: bool,
    },
}

/// A server and, if it has one, the store behind it. Dropping this value ends both.
pub(super) struct Running {
    pub(super) server: Server,
    store: Option<Store>,
}

/// The paths that all peers use.
pub(super) struct Shop<'a> {
    plan: &'a BenchInputs,
    /// All pools, including the ones for the proof.
    pools: PathBuf,
    work: PathBuf,
    /// The directory for sockets. It is separate because socket paths must be short.
    sockets: PathBuf,
}

impl Drop for Shop<'_> {
    fn drop(&mut self) {
        // The sockets are in the system's directory for temporary files, so nothing else would
        // remove them.
        let _ = std::fs::remove_dir_all(&self.sockets);
    }
}

impl<'a> Shop<'a> {
    /// # Errors
    /// If a directory cannot be created.
    pub(super) fn open(
        plan: &'a BenchInputs,
        pools: PathBuf,
        work: PathBuf,
    ) -> anyhow::Result<Self> {
        let sockets = std::env::temp_dir().join(format!("ringwell-peers-{}", std::process::id()));
        std::fs::create_dir_all(&sockets)?;
        Ok(Self { plan, pools, work, sockets })
    }

    /// Builds the programs that `kind` needs. If `kind` cannot be measured, returns the reason.
    ///
    /// # Errors
    /// If our own program does not compile.
    pub(super) fn prepare(&self, kind: Kind) -> anyhow::Result<Option<String>> {
        let packages: &[(&str, &str)] = match kind {
            Kind::Ours(_) => &[],
            Kind::Go | Kind::Postgres { .. } => &[("go", "golang-go")],
            Kind::Node => &[("node", "nodejs"), ("npm", "npm")],
            Kind::Ruby => &[("ruby", "ruby")],
            Kind::Redis { .. } => &[("go", "golang-go"), ("redis-server", "redis-server")],
        };
        if let Some((program, package)) = packages.iter().find(|(it, _)| !is_installed(it)) {
            return Ok(Some(format!("{program} is not installed (Debian: {package})")));
        }
        match kind {
            Kind::Ours(_) => Ok(None),
            Kind::Go | Kind::Redis { .. } => self.build_go(),
            Kind::Node => Ok(install_node()),
            Kind::Ruby => Ok(ruby_lacks()),
            Kind::Postgres { .. } => match store::postgres_lacks(&self.work) {
                None => self.build_go(),
                lacking => Ok(lacking),
            },
        }
    }

    fn build_go(&self) -> anyhow::Result<Option<String>> {
        let peers = root().join("bench/peers");
        let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
        let minor = version.trim().trim_start_matches("go1.").split('.').next();
        if minor.and_then(|it| it.parse().ok()).is_none_or(|it: u32| it < GO_MINOR_MIN) {
            let version = version.trim();
            return Ok(Some(format!("Go 1.{GO_MINOR_MIN} or newer is needed, this is {version}")));
        }
        let download = Command::new("go").args(["mod", "download"]).current_dir(&peers).status()?;
        if !download.success() {
            return Ok(Some("the modules of bench/peers/go.sum cannot be fetched".to_owned()));
        }
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(self.work.join("bin/")).args(["./go", "./redis"]);
        run(build.arg("./postgres").current_dir(&peers))?;
        Ok(None)
    }

    /// Starts a peer on the server's core, with all pools and all numbers free.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn start(&self, kind: Kind) -> anyhow::Result<Running> {
        let address = free_address()?;
        let peers = root().join("bench/peers");
        let program = |name: &str| self.pinned(&self.work.join("bin").join(name));
        let script = |interpreter: &str, flags: &[&str], path: &str| {
            let mut command = self.pinned(Path::new(interpreter));
            command.args(flags).arg(peers.join(path));
            command
        };
        let (name, mut command, store) = match kind {
            Kind::Ours(durability) => return self.start_ours(durability, address),
            Kind::Go => ("go", program("go"), None),
            Kind::Node => ("node", script("node", &[YOUNG], "node/server.js"), None),
            Kind::Ruby => ("ruby", script("ruby", &[], "ruby/server.rb"), None),
            Kind::Redis { flushed } => {
                ("redis", program("redis"), Some(self.place().redis(flushed)?))
            }
            Kind::Postgres { flushed } => {
                ("postgres", program("postgres"), Some(self.place().postgres(flushed)?))
            }
        };
        command.arg(address.port().to_string()).arg(&self.pools);
        command.args(store.iter().map(Store::reached_at));
        let log = self.work.join(format!("{name}.log"));
        Ok(Running { server: Server::start(command, address, log, None)?, store })
    }

    fn start_ours(&self, durability: &'static str, address: SocketAddr) -> anyhow::Result<Running> {
        let data = self.work.join(durability);
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let config = data.with_extension("toml");
        let deadline = self.plan.programs.deadline.unwrap_or("100ms");
        let text = format!(
            "data = \"{}\"\nlisten = [\"{address}\"]\ndurability = \"{durability}\"\n\
             shards = 1\ndeadline = \"{deadline}\"\nring_pools = \"{}\"\n",
            data.display(),
            self.pools.display()
        );
        std::fs::write(&config, text)?;
        let mut command = self.pinned(&self.plan.programs.ringwell);
        command.arg("serve").arg("--config").arg(config);
        let log = data.with_extension("log");
        Ok(Running { server: Server::start(command, address, log, None)?, store: None })
    }

    fn place(&self) -> StoreHome<'_> {
        let cores = &self.plan.machine.server_cores;
        StoreHome { work: &self.work, sockets: &self.sockets, cores }
    }

    fn pinned(&self, program: &Path) -> Command {
        pinned(&self.plan.machine.server_cores, program)
    }
}

impl Running {
    /// User and system time so far, of the server's and the store's processes together.
    ///
    /// # Errors
    /// If the server has ended.
    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let store = self.store.as_ref().map_or(0.0, Store::cpu_seconds);
        Ok(self.server.cpu_seconds()? + store)
    }
}

fn install_node() -> Option<String> {
    let folder = root().join("bench/peers/node");
    let made = |name: &str| folder.join(name).metadata().and_then(|it| it.modified()).ok();
    if made("node_modules/.package-lock.json") >= made("package-lock.json") {
        return None;
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--silent"]).current_dir(folder);
    let installed = install.status().is_ok_and(|it| it.success());
    (!installed).then(|| "the packages of its package-lock.json cannot be fetched".to_owned())
}

fn ruby_lacks() -> Option<String> {
    let mut load = Command::new("ruby");
    load.args(["-e", "require 'eventmachine'"]).stderr(Stdio::null());
    let loaded = load.status().is_ok_and(|it| it.success());
    (!loaded).then(|| "eventmachine is not installed (Debian: ruby-eventmachine)".to_owned())
}
