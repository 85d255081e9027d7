//! `ringwell doctor`: checks whether a machine and a configuration are fit to serve.
//!
//! Changes nothing, except that it writes a test file into the data directory. Each reported
//! problem includes a remedy. Works while a server is running, and without a configuration.

pub(crate) mod databases;
mod findings;
mod journal;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use hyper::Method;
use hyper::body::Bytes;
use ringwell_config::{
    Cluster, Config, Durability, Listen, Overrides, load, parse_shards, secret_files,
};
use ringwell_directory::Directory;
use ringwell_node::disk::{self, LockError};
use ringwell_node::warn_of_validity;
use rustix::process::{Resource, getrlimit};

use crate::api_client::{ApiClient, HEALTH_MAX, Url};
use crate::configuration::{
    InDatabase, TOKEN_VARIABLE, endless_unknown_numbers, pools_of, warn_of_destinations,
    warn_of_routing,
};
use crate::environment::{check_variables, cores, variable, warn_of_slips};
use crate::faults::{NAME_CONFIG, is_file};
use crate::flags::durability;
use crate::journal::erase;
use crate::print::{counted, print};
use crate::version::VERSION;

use findings::{Finding, Findings, Grade};

pub(crate) const HELP: &str = "\
Checks this machine (processor, memory, clock, limits and disk) and the configuration (faults, \
data directory, ports, databases and permissions of secrets). Without --config or \
RINGWELL_CONFIG, it checks /etc/ringwell/ringwell.toml if that file exists. If the server is \
started with --data, --listen, --shards, --durability or --cluster, pass the same flags to this \
command.

Exit codes: 0: fit to serve, perhaps with notes; 1: something must be fixed first.

Examples:
  ringwell doctor
  ringwell doctor --config ringwell.toml --json
  ringwell doctor --config ringwell.toml --listen 0.0.0.0:8080
  ringwell doctor engine --config ringwell.toml    # only the servers that keep the journals";

/// The path at which the package installs the configuration.
const USUAL_CONFIG: &str = "/etc/ringwell/ringwell.toml";

/// The minimum free disk space, in bytes: enough for one minute at 17 MB/s.
const FREE_MIN: u64 = 1 << 30;

/// The limit for the median duration of a flush. Slower flushes delay every answer.
const SLOW_FLUSH: Duration = Duration::from_millis(20);

/// 2025-01-01. A clock that shows an earlier time was never set.
const CLOCK_MIN: Duration = Duration::from_hours(482_136);

/// A part of the setup that can be checked on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The servers that keep the journals: their settings, streams and clocks, and the permissions
    /// that they grant to Ringwell
    Engine,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check only this part
    #[arg(value_enum)]
    part: Option<Part>,
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: Option<PathBuf>,
    /// The data directory; overrides the configuration
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address to listen on, as for `serve`: HOST:PORT or unix:PATH; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = str::parse::<Listen>)]
    listen: Vec<Listen>,
    /// Number of shards, as for `serve`; 0 for one per core
    #[arg(long, value_name = "N", value_parser = parse_shards)]
    shards: Option<u16>,
    /// Where an allocation is stored before the answer is sent, as for `serve`
    #[arg(long, value_name = "WHERE", value_parser = durability())]
    durability: Option<Durability>,
    /// The cluster file, as for `serve`
    #[arg(long, value_name = "FILE", env = "RINGWELL_CLUSTER")]
    cluster: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the flags as settings that take precedence over the configuration, as for `serve`.
    fn overrides(&self) -> Overrides {
        Overrides {
            data: self.data.clone(),
            listen: (!self.listen.is_empty()).then(|| self.listen.clone()),
            shards: self.shards,
            durability: self.durability,
            ..Overrides::default()
        }
    }
}

/// Runs the checks, and prints the findings.
///
/// # Errors
/// If the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    check_variables()?;
    let mut findings = Findings::default();
    findings.ok("version", format!("ringwell {}", *VERSION));
    let usual = || Some(PathBuf::from(USUAL_CONFIG)).filter(|path| path.exists());
    let path = args.config.clone().or_else(usual);
    if args.part == Some(Part::Engine) {
        engine(path.as_deref(), args.overrides(), &mut findings);
    } else {
        all(path, args, &mut findings);
    }
    let is_bad = findings.0.iter().any(|finding| finding.grade == Grade::Bad);
    let text = if args.json {
        serde_json::to_string_pretty(&findings.0)? + "\n"
    } else {
        drawn(&findings.0)
    };
    print(text.as_bytes())?;
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks the servers that keep the journals.
fn engine(path: Option<&Path>, flags: Overrides, findings: &mut Findings) {
    let Some(path) = path else {
        return findings.bad("config", "no configuration was found: use --config FILE");
    };
    let Some((config, _)) = loaded(path, flags, findings) else { return };
    if config.journal.replicated.is_none() {
        return findings
            .bad("journal", "`engine` in [journal] is \"files\": there are no servers to check");
    }
    journal::servers(&config, findings);
}

fn all(path: Option<PathBuf>, args: &Args, findings: &mut Findings) {
    machine(findings);
    if let Some(path) = path {
        return configuration(&path, args, findings);
    }
    findings.note("config", "no configuration was found: use --config FILE");
    let mut config = Config::new(args.data.clone().unwrap_or_default(), cores());
    config.shards = args.shards.unwrap_or(config.shards);
    config.durability = args.durability.unwrap_or(config.durability);
    config.listen.clone_from(&args.listen);
    unfit(&config, args.cluster.is_some(), findings);
    if args.data.is_some() {
        data_directory(&config, findings);
    }
    ports(&config, findings);
}

fn drawn(findings: &[Finding]) -> String {
    let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::new();
    for Finding { grade, about, text: said } in findings {
        let (word, colour) = match grade {
            Grade::Ok => ("ok  ", "32"),
            Grade::Note => ("note", "33"),
            Grade::Bad => ("bad ", "31"),
        };
        let _ = if is_coloured {
            writeln!(text, "\x1b[{colour}m{word}\x1b[0m  {about:<9}  {said}")
        } else {
            writeln!(text, "{word}  {about:<9}  {said}")
        };
    }
    let count = |wanted| findings.iter().filter(|finding| finding.grade == wanted).count();
    let _ = match (count(Grade::Bad), count(Grade::Note)) {
        (0, 0) => writeln!(text, "\nAll is well."),
        (0, 1) => writeln!(text, "\nFit to serve; 1 note."),
        (0, notes) => writeln!(text, "\nFit to serve; {notes} notes."),
        (bad, _) => {
            writeln!(text, "\nNot fit to serve; {} to fix first.", counted(bad as u64, "problem"))
        }
    };
    text
}

fn machine(findings: &mut Findings) {
    findings.ok("cores", format!("{} for this process", cores()));
    match memory_mib() {
        Some(mib) if mib < 256 => {
            findings.note("memory", format!("{mib} MiB free; ten million numbers take 3 GiB"));
        }
        Some(mib) => findings.ok("memory", format!("{mib} MiB free")),
        None => findings.note("memory", "/proc/meminfo cannot be read"),
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now < CLOCK_MIN {
        findings.bad(
            "clock",
            "the clock was never set, but calls are looked up by time: set the clock, and run \
             chrony",
        );
    } else if has_time_service() {
        findings.ok("clock", "a time service synchronizes the clock");
    } else {
        findings.note(
            "clock",
            "no time service (chronyd, ntpd, systemd-timesyncd) is running: start one, because \
             calls are looked up by time",
        );
    }
}

/// Returns the memory that programs can use without swapping.
fn memory_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? / 1024)
}

fn has_time_service() -> bool {
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return true;
    }
    let names = ["chronyd", "ntpd", "systemd-timesyn", "openntpd", "phc2sys"];
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let name = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("comm")).ok();
    processes.flatten().filter_map(name).any(|name| names.contains(&name.trim()))
}

/// Loads the configuration. If the configuration has faults, adds them to the findings and returns
/// `None`.
fn loaded(path: &Path, flags: Overrides, findings: &mut Findings) -> Option<(Config, Directory)> {
    let of_service = variables_of_service(path);
    let get = |name: &str| variable(name).or_else(|| of_service.get(name).cloned());
    match load(path, get, flags, cores()) {
        Ok(loaded) => Some(loaded),
        Err(faults) => {
            let advice = if is_file(path) { String::new() } else { format!("; {NAME_CONFIG}") };
            for fault in faults.iter().take(10) {
                findings.bad("config", format!("{fault}{advice}"));
            }
            if let Some(more) = faults.len().checked_sub(10).filter(|more| *more > 0) {
                let more = counted(more as u64, "more fault");
                findings
                    .bad("config", format!("and {more}: run `ringwell serve --check` to see all"));
            }
            None
        }
    }
}

fn configuration(path: &Path, args: &Args, findings: &mut Findings) {
    let Some((config, directory)) = loaded(path, args.overrides(), findings) else { return };
    let in_database = InDatabase::read(&config);
    let pools = pools_of(&config, &directory, &in_database);
    findings.ok("config", format!("{}: no faults; {pools}", path.display()));
    if config.management.token_sha256.current().is_empty() {
        findings.note(
            "tokens",
            "no management token, so calls cannot be looked up; `ringwell token` creates one",
        );
    }
    if config.management.token_variable_wins {
        findings.note("tokens", TOKEN_VARIABLE);
    }
    for slip in warn_of_slips() {
        findings.note("config", slip);
    }
    match &in_database {
        InDatabase::Faulty(faults) => faults.iter().for_each(|it| findings.bad("pools", it)),
        other => other.warning().into_iter().for_each(|it| findings.note("pools", it)),
    }
    let pools = in_database.or_in_file(&config, &directory);
    let of_pools = pools.into_iter().flat_map(|pools| warn_of_destinations(&config, pools));
    for fault in pools.into_iter().flat_map(|pools| endless_unknown_numbers(&config, pools)) {
        findings.bad("calls", fault.to_string());
    }
    for warning in of_pools.chain(warn_of_routing(&config)) {
        findings.note("calls", warning);
    }
    if let Some(warning) = config.tls.as_ref().and_then(warn_of_validity) {
        findings.note("tls", warning);
    }
    secrets(path, findings);
    let of_service = variables_of_service(path).remove("RINGWELL_CLUSTER").map(PathBuf::from);
    let cluster = args.cluster.clone().or(of_service);
    for fault in cluster.iter().filter_map(|path| Cluster::load(path).err()).flatten() {
        findings.bad("cluster", fault.to_string());
    }
    unfit(&config, cluster.is_some(), findings);
    descriptors(&config, findings);
    data_directory(&config, findings);
    journal::servers(&config, findings);
    ports(&config, findings);
    databases::check(&config, findings);
}

/// Returns the variables that the service reads from the file `environment` next to its
/// configuration.
fn variables_of_service(config: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(config.with_file_name("environment")).unwrap_or_default();
    let set = text.lines().filter_map(|line| line.trim().split_once('='));
    set.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

/// Checks whether other users can read files that contain keys: the configuration at `path`, and
/// the files that it names.
fn secrets(path: &Path, findings: &mut Findings) {
    let files = [path.to_owned()].into_iter().chain(secret_files(path));
    let is_open = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
    };
    let open: Vec<PathBuf> = files.filter(is_open).collect();
    if open.is_empty() {
        findings.ok("secrets", "other users cannot read the configuration and its secrets");
    }
    for path in open {
        let path = path.display();
        findings.note(
            "secrets",
            format!("every user can read {path}, which may contain keys: chmod 640 {path}"),
        );
    }
}

/// Runs the checks that `serve` runs at startup.
fn unfit(config: &Config, has_cluster: bool, findings: &mut Findings) {
    for fault in ringwell_node::unfit(config, has_cluster) {
        findings.bad("start", fault.to_string());
    }
}

fn descriptors(config: &Config, findings: &mut Findings) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = config.limits.connections as u64 + 64 + 16 * u64::from(config.shards);
    match limit.maximum {
        Some(maximum) if maximum < wanted => findings.note(
            "files",
            format!(
                "this user may open {maximum} files, but {wanted} are needed for \
                 limits.connections = {}: raise the limit (LimitNOFILE, ulimit -n)",
                config.limits.connections
            ),
        ),
        maximum => findings.ok(
            "files",
            maximum.map_or("no limit".to_owned(), |maximum| format!("up to {maximum} can be open")),
        ),
    }
}

fn data_directory(config: &Config, findings: &mut Findings) {
    if config.durability == Durability::Memory {
        return findings.note("data", "durability \"memory\": a restart loses every allocation");
    }
    // The path is made absolute, because a relative path's ancestors cannot be examined.
    let data = std::path::absolute(&config.data).unwrap_or_else(|_| config.data.clone());
    let data = data.as_path();
    let there = data.ancestors().find(|place| place.symlink_metadata().is_ok());
    // If the nearest existing path is not a directory, the check in `unfit` reports it.
    let Some(place) = there.filter(|place| place.is_dir()) else { return };
    let shown = data.display();
    if place != data {
        findings.ok("data", format!("{shown} will be created at the first start"));
    }
    if let Err(error) = disk::check_lock(data) {
        findings.bad("data", error.to_string());
    }
    if let Err(error) = disk::check_complete(data) {
        findings.bad("data", error.to_string());
    }
    match erase::unplanned(data) {
        Ok(warning) => warning.into_iter().for_each(|it| findings.note("data", it)),
        Err(error) => findings.bad("data", format!("{error:#}")),
    }
    let unreadable = disk::unreadable_files(data);
    let can_be_read = unreadable.is_empty();
    for error in unreadable {
        findings.bad("data", error);
    }
    if config.journal.replicated.is_none() && can_be_read {
        replaced_journal(data, findings);
        unnamed_journals(data, findings);
    }
    space(config, place, findings);
    match disk::probe(place) {
        Err(error) => findings.bad(
            "data",
            if error.is_full() {
                format!("{error}; free up space on the disk of {}", place.display())
            } else if error.source.kind() == io::ErrorKind::PermissionDenied {
                format!(
                    "{error}; run doctor as the server's user: sudo -u ringwell ringwell doctor"
                )
            } else {
                error.to_string()
            },
        ),
        Ok(probe) => {
            let warnings = probe.warnings();
            if warnings.is_empty() {
                let text = format!(
                    "{}: a flush takes {:.1?} (median), {:.1?} (99th percentile)",
                    place.display(),
                    probe.flush_p50,
                    probe.flush_p99
                );
                if probe.flush_p50 > SLOW_FLUSH {
                    let effect = ": with durability \"disk\", every answer waits for a flush";
                    findings.note("disk", text + effect);
                } else {
                    findings.ok("disk", text);
                }
            }
            for warning in warnings {
                findings.note("disk", warning);
            }
        }
    }
}

fn replaced_journal(data: &Path, findings: &mut Findings) {
    match disk::replaced_journal(data) {
        Ok(None) => {}
        Ok(Some(shard)) => findings.bad(
            "data",
            format!(
                "the journal that shard {shard} wrote last is missing from {}: put it back, or \
                 mount its volume, before the next start. Otherwise, all ring pools hand out only \
                 overflow numbers for the longest lifetime of any pool",
                data.display()
            ),
        ),
        Err(error) => findings.bad("data", error.to_string()),
    }
}

fn space(config: &Config, place: &Path, findings: &mut Findings) {
    let Ok(found) = rustix::fs::statvfs(place) else { return };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let shards = u64::from(config.shards);
    let journal = &config.journal;
    let start = shards * journal.segment_bytes * (1 + u64::from(journal.spare_segments));
    let most = shards * (journal.history_bytes + 2 * journal.snapshot_every_bytes);
    let [free_mib, start_mib, most_mib] = [free, start, most].map(|bytes| bytes >> 20);
    let text = format!(
        "{free_mib} MiB free; the journal needs {start_mib} MiB at the start, and later at most \
         {most_mib} MiB"
    );
    if free < start.max(FREE_MIN) {
        findings.bad("space", text + ": free up disk space");
    } else if free < most {
        findings.note("space", text + ": lower journal.history_bytes, or monitor the free space");
    } else {
        findings.ok("space", text);
    }
}

fn ports(config: &Config, findings: &mut Findings) {
    let client = ApiClient::without_token(HEALTH_MAX);
    // Returns the body of the answer to a health request, if any.
    let asked = |address: &Listen| {
        let (url, client) = address.to_string().parse::<Url>().ok().zip(client.as_ref().ok())?;
        let nothing = ("application/json", Bytes::new());
        client.send(&url, Method::GET, "/healthz", nothing).ok().map(|(_, body)| body)
    };
    // A data directory in use is locked, because only one server at a time may use it.
    let is_served = matches!(disk::ReadLock::acquire(&config.data), Err(LockError::Held { .. }));
    let mut running = None;
    for address in &config.listen {
        if is_free(address) {
            findings.ok("port", format!("{address} is free"));
            continue;
        }
        let health = asked(address);
        let health =
            health.and_then(|body| serde_json::from_slice::<serde_json::Value>(&body).ok());
        let version = health.and_then(|health| health["version"].as_str().map(str::to_owned));
        if let Some(version) = version.as_ref().filter(|_| is_served) {
            findings.ok("port", format!("{address} is in use by the running ringwell {version}"));
        } else {
            taken(address, findings);
        }
        running = running.or(version).filter(|_| is_served);
    }
    // The addresses for web sites, webhooks and management do not serve a health path. Any answer
    // there is assumed to come from the running server.
    let manages = config.database.is_some() || config.management.dashboard;
    let manages = manages.then_some(&config.management.address);
    let calls = config.calls.as_ref().map(|calls| &calls.listen);
    for address in config.site_listen.iter().chain(calls).chain(manages) {
        if is_free(address) {
            findings.ok("port", format!("{address} is free"));
        } else if running.is_some() && asked(address).is_some() {
            findings.ok("port", format!("{address} is in use by the running server"));
        } else {
            taken(address, findings);
        }
    }
}

fn taken(address: &Listen, findings: &mut Findings) {
    let show = if matches!(address, Listen::Unix(_)) { "ss -lxp" } else { "ss -ltnp" };
    let text = format!(
        "{address} is in use or not available: `{show}` shows whether a program uses this \
         address. If another Ringwell server uses it, stop that server or choose another address"
    );
    findings.bad("port", text);
}

fn is_free(address: &Listen) -> bool {
    match address {
        Listen::Tcp { host, port } => TcpListener::bind((host.as_str(), *port)).is_ok(),
        Listen::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_err(),
    }
}

fn unnamed_journals(data: &Path, findings: &mut Findings) {
    // The check for replaced journals has already reported any error.
    for shard in disk::unnamed_journals(data).unwrap_or_default() {
        let journal = data.join("journal").join(shard.to_string());
        findings.note(
            "data",
            format!(
                "{} is not a journal that this data directory wrote: move it away before the next \
                 start if it belongs to another installation. Otherwise, look-ups may name that \
                 installation's visitors",
                journal.display()
            ),
        );
    }
}
