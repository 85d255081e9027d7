//! `ringwell serve`: runs a server with a configuration.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::bail;
use ringwell_admin::{Dashboard, DatabaseTokens, SharedLoads};
use ringwell_config::{Cluster, Config, Database, Durability, Overrides, Reloaded, Site, load};
use ringwell_directory::{Directory, Fault, RingPool};
use ringwell_node::{Check, Directories, Logs, Membership, Routes, StartSignals};
use ringwell_node::{check_free, disk, lower_priority, order_channel, warn_of_validity};
use ringwell_store::ONLY_NODE;

use crate::calls::Running;
use crate::configuration::{
    InDatabase, TOKEN_VARIABLE, endless_unknown_numbers, has_no_journals_in_files, pools_in_file,
    pools_of, warn_of_destinations, warn_of_routing,
};
use crate::directory::Following;
use crate::doctor::databases;
use crate::environment::{check_variables, cores, variable, warn_of_slips};
use crate::faults::{NAME_CLUSTER, show, show_of_file, show_with_advice};
use crate::flags::Server;
use crate::print::{print_error, print_line, print_note};
use crate::{database_lock, directory, journal, logs, management};

const RESTORED_IN_MEMORY: &str = "--restored has no effect with durability `memory`: the server \
    then keeps no record of a hold, and hands out numbers at once after every start. If visitors \
    may still see numbers of an earlier run, wait for the longest lifetime of any ring pool \
    before you start this server without --restored";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE", env = "RINGWELL_CONFIG")]
    config: PathBuf,
    /// Only check the configuration and print its faults
    #[arg(long)]
    check: bool,
    /// Data directory for journals and snapshots
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The data directory was restored from a copy: hand out only overflow numbers until the
    /// longest lifetime of any ring pool has passed. Use this flag for one startup only; it is not
    /// needed after `ringwell restore`
    #[arg(long)]
    restored: bool,
    /// The cluster file, which lists this server's node and its shards
    #[arg(
        long,
        value_name = "FILE",
        env = "RINGWELL_CLUSTER",
        requires = "node",
        conflicts_with = "shards"
    )]
    cluster: Option<PathBuf>,
    /// Name of this server's node in the cluster
    #[arg(long, value_name = "NAME", env = "RINGWELL_NODE", requires = "cluster")]
    node: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// Serves until a signal ends the program, or only checks the configuration.
///
/// # Errors
/// If the server cannot start, or fails. Faults in the configuration are printed and not returned
/// as an error.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    check_variables()?;
    let (signals, flags) = (handle_signals(args.check)?, args.server.overrides(args.data));
    let (mut config, mut directory) =
        match read(&args.config, flags.clone(), args.cluster.is_some()) {
            Ok(loaded) => loaded,
            Err(code) => return Ok(code),
        };
    check_engine(&config)?;
    check_restored(args.restored, &config)?;
    database_lock::refuse_one_file(&config)?;
    let place = args.cluster.as_deref().zip(args.node.as_deref());
    let member = match place.map(|(cluster, node)| join(cluster, node)).transpose() {
        Ok(member) => member,
        Err(code) => return Ok(code),
    };
    // The addresses are not checked if the journal is replicated: this process may be a standby
    // that waits until the addresses are free.
    if !args.check && !config.data.exists() && config.journal.replicated.is_none() {
        check_addresses(&config)?;
    }
    let node = args.node.as_deref().unwrap_or(ONLY_NODE);
    let kept = match config.database.clone().filter(|_| !args.check) {
        None => None,
        Some(database) => {
            let (kept, pools) = open_database(&database, node, &directory, &mut config)?;
            directory = match Directory::new(1, pools, config.shards) {
                Ok(read) => read,
                Err(faults) => return Ok(show(&faults)),
            };
            Some(kept)
        }
    };
    let directory = match &member {
        None => directory,
        Some(member) => directory.placed(member.cluster().placement().clone()),
    };
    if let Some(pools) = pools_in_file(&config, &directory)
        && let faults = endless_unknown_numbers(&config, pools)
        && !faults.is_empty()
    {
        return Ok(show(&faults));
    }
    if args.check {
        return checked(&config, &directory, member.as_ref());
    }
    if kept.is_none() {
        logs::start(&config.log)?;
    }
    prepare(&config.data, args.restored)?;
    warn(warn_of_cluster(&config, member.as_ref()));
    warn(warnings(&config, &directory, Some(&directory)));
    let running = Arc::<OnceLock<Arc<Running>>>::default();
    let check = Some(check_of(args.config.clone(), flags.clone()));
    let mut reload = reload_of((args.config, flags), &config, Arc::clone(&running));
    let (loads, tokens, mut thread) = (SharedLoads::default(), DatabaseTokens::default(), None);
    let dashboard = Dashboard::new(loads.clone());
    let mut directories = Directories { signals, check, ..Directories::default() };
    if let Some(kept) = kept {
        let (handle, orders) = order_channel();
        directories.orders = Some(orders);
        let sites_of_file = kept.sites_of_file();
        let take = move |(_, sites)| drop(sites_of_file.send_replace(sites));
        directories.reload_settings = Some(Box::new(move || reload().map(&take)));
        thread = Some(kept.follow(handle, &config, &dashboard, (loads, tokens.clone()))?);
    } else {
        directories.reload = Some(Box::new(reload));
        if config.management.dashboard {
            management::serve(&config, &dashboard)?;
        }
    }
    serve(config, directory, member, directories, (dashboard, tokens, thread), &running)
        .map(|()| ExitCode::SUCCESS)
}

/// Returns a function that reads the file again, with its pools and web sites, and replaces the
/// tokens in `config`.
fn reload_of(
    (path, flags): (PathBuf, Overrides),
    config: &Config,
    calls: Arc<OnceLock<Arc<Running>>>,
) -> impl FnMut() -> Result<(Directory, Vec<Site>), Vec<Fault>> + Send + use<> {
    let hashes = config.management.token_sha256.clone();
    let lookup_hashes = config.management.lookup_sha256.clone();
    move || {
        let (config, directory) = read_again(&path, flags.clone(), calls.get())?;
        hashes.replace(&config.management.token_sha256.current());
        lookup_hashes.replace(&config.management.lookup_sha256.current());
        Ok((directory, config.sites))
    }
}

/// Returns a function that reads the configuration again, and returns its errors.
fn check_of(path: PathBuf, flags: Overrides) -> Check {
    Box::new(move || {
        let read = ringwell_config::reload(&path, variable, flags.clone(), cores());
        read.err().unwrap_or_default()
    })
}

/// Opens the directory's database, and adds its web sites to `config`. Also returns its ring pools.
fn open_database(
    database: &Database,
    node: &str,
    of_file: &Directory,
    config: &mut Config,
) -> anyhow::Result<(directory::Directory, Vec<RingPool>)> {
    logs::start(&config.log)?;
    // The database is opened before the data directory is locked.
    disk::check_complete(&config.data)?;
    let of_file: Vec<_> = of_file.pools().map(|pool| (**pool).clone()).collect();
    let (kept, pools, sites) = directory::open(database, node, &of_file, config)?;
    config.sites = sites;
    Ok((kept, pools))
}

/// If this machine cannot run a server with this configuration, prints the reasons and returns the
/// exit code.
fn refuse_unfit(config: &Config, has_cluster: bool) -> Option<ExitCode> {
    let unfit = ringwell_node::unfit(config, has_cluster);
    for fault in &unfit {
        print_error(fault);
    }
    (!unfit.is_empty()).then_some(ExitCode::FAILURE)
}

/// Checks that all addresses are free. If they are not, startup fails before a data directory is
/// created.
fn check_addresses(config: &Config) -> anyhow::Result<()> {
    let secure = config.tls.iter().flat_map(|tls| &tls.listen);
    let of_clients: Vec<_> =
        config.listen.iter().chain(secure).chain(&config.site_listen).cloned().collect();
    check_free(&of_clients)?;
    if config.database.is_some() || config.management.dashboard {
        management::check_free(&config.management.address)?;
    }
    config.calls.as_ref().map_or(Ok(()), |calls| Running::check_free(&calls.listen))
}

/// Handles signals during startup. With `--check`, installs no handlers: a signal then kills the
/// process, so an interrupted check cannot report success.
fn handle_signals(is_check: bool) -> anyhow::Result<Option<StartSignals>> {
    Ok((!is_check).then(StartSignals::begin).transpose()?)
}

/// Logs each warning.
fn warn(warnings: impl IntoIterator<Item = impl Display>) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// Reads a running server's configuration again, and applies its `[calls]` section.
fn read_again(
    path: &Path,
    flags: Overrides,
    running: Option<&Arc<Running>>,
) -> Result<(Config, Directory), Vec<Fault>> {
    let Reloaded { config, directory, ignored } =
        ringwell_config::reload(path, variable, flags, cores())?;
    warn(ignored.iter().map(|fault| format!("{fault}; what was read before stays in use")));
    let in_database = running.and_then(|calls| calls.pools());
    let pools = pools_in_file(&config, &directory).or(in_database.as_deref());
    let endless = pools.map(|pools| endless_unknown_numbers(&config, pools));
    if let Some(faults) = endless.filter(|faults| !faults.is_empty()) {
        return Err(faults);
    }
    reload_calls(running, &config).map_err(|fault| vec![fault])?;
    warn(warnings(&config, &directory, pools));
    Ok((config, directory))
}

/// Applies the new `[calls]` section without a restart.
fn reload_calls(running: Option<&Arc<Running>>, config: &Config) -> Result<(), Fault> {
    match (running, &config.calls) {
        (Some(running), Some(calls)) => running.reload(calls)?,
        (None, None) => {}
        _ => tracing::warn!(
            "[calls] was added to or removed from the configuration: restart the server to apply \
            the change"
        ),
    }
    Ok(())
}

/// Checks that the server can hold its pools if its data was restored.
fn check_restored(is_restored: bool, config: &Config) -> anyhow::Result<()> {
    if is_restored && config.durability == Durability::Memory {
        bail!(RESTORED_IN_MEMORY);
    }
    Ok(())
}

/// Prepares the data directory before it is opened.
fn prepare(data: &Path, is_restored: bool) -> anyhow::Result<()> {
    disk::check_complete(data)?;
    journal::erase::finish(data)?;
    if is_restored {
        // A running server's data must not be marked.
        let _lock = disk::DataLock::acquire(data)?;
        disk::mark_restored(&disk::OsFiles, data)?;
    }
    Ok(())
}

/// Returns warnings about settings that have no effect, or have a dangerous effect. `pools` are the
/// pools that are served, if they are known.
fn warnings(config: &Config, directory: &Directory, pools: Option<&Directory>) -> Vec<String> {
    let mut found = warn_of_sites(&config.sites, directory);
    found.extend(pools.into_iter().flat_map(|pools| warn_of_destinations(config, pools)));
    found.extend(warn_of_routing(config));
    found.extend(warn_of_slips());
    if config.management.token_variable_wins {
        found.push(TOKEN_VARIABLE.to_owned());
    }
    found.extend(config.tls.as_ref().and_then(warn_of_validity));
    found
}

/// Returns warnings about a cluster node's settings.
fn warn_of_cluster(config: &Config, member: Option<&Membership>) -> Vec<String> {
    let Some(cluster) = member.map(Membership::cluster) else { return Vec::new() };
    let mut found: Vec<String> = cluster.warnings().iter().map(ToString::to_string).collect();
    if matches!(config.database, Some(Database::File(_))) && cluster.nodes().len() > 1 {
        found.push(
            "directory.database is a SQLite file, which only this node reads: the other nodes do \
             not see changes to pools. Use PostgreSQL in a cluster"
                .to_owned(),
        );
    }
    found
}

/// Returns warnings about ring pools whose lifetime is too short for the sites' pages.
fn warn_of_sites(sites: &[Site], directory: &Directory) -> Vec<String> {
    let lifetime = |pool| directory.pool(pool).map(ringwell_directory::RingPool::lifetime);
    let of = |site: &Site| {
        let pools = site.short_lived(lifetime).into_iter();
        let warning = |pool| {
            format!(
                "site {}: ring pool {pool} has a lifetime of a minute or less, and pages extend \
                    their number's lockout once a minute: a number may go to another visitor while \
                    a page still shows it. Set a longer lifetime",
                site.key
            )
        };
        pools.map(warning).collect::<Vec<_>>()
    };
    sites.iter().flat_map(of).collect()
}

/// Completes the check of a configuration, and prints the result.
fn checked(
    config: &Config,
    directory: &Directory,
    member: Option<&Membership>,
) -> anyhow::Result<ExitCode> {
    logs::filter(&config.log)?;
    let faults = database_lock::faults(config);
    if !faults.is_empty() {
        return Ok(show(&faults));
    }
    if let Some(warning) = ringwell_node::disk::warn_of_mode(&config.data) {
        print_note(format_args!("warning: {warning}"));
    }
    if let Some(fault) = databases::refusal(config) {
        print_error(fault);
        return Ok(ExitCode::FAILURE);
    }
    let in_database = InDatabase::read(config);
    if let InDatabase::Faulty(faults) = &in_database {
        faults.iter().for_each(print_error);
        return Ok(ExitCode::FAILURE);
    }
    let of_config = warnings(config, directory, in_database.or_in_file(config, directory));
    let all = warn_of_cluster(config, member).into_iter().chain(of_config);
    for warning in all.chain(in_database.warning()) {
        print_note(format_args!("warning: {warning}"));
    }
    print_line(format_args!("ok: {}", pools_of(config, directory, &in_database)));
    Ok(ExitCode::SUCCESS)
}

/// Serves ring pools, and accepts calls if the configuration has a `[calls]` section.
fn serve(
    config: Config,
    directory: Directory,
    member: Option<Membership>,
    directories: Directories,
    (dashboard, tokens, mut following): (Dashboard, DatabaseTokens, Option<Following>),
    running: &OnceLock<Arc<Running>>,
) -> anyhow::Result<()> {
    export_traces(&config)?;
    let calls = config.calls.as_ref();
    let calls =
        calls.map(|calls| Running::start(calls, &config, tokens.lookup.clone())).transpose()?;
    if let Some(calls) = &calls {
        // Setting `running` cannot fail, because no other code sets it.
        let _ = running.set(Arc::clone(calls));
        dashboard.attach_calls(calls.service());
    }
    let mut routes = with_calls(routes(&config, dashboard, tokens), calls.clone());
    if let Some(way) = following.as_mut().and_then(|following| following.way.take()) {
        routes = way.beside(routes);
    }
    let logs = journal_logs(&config)?;
    let on_ready = Box::new(|_: &[String]| ());
    let logs = logs.as_deref();
    let served =
        ringwell_node::serve(config, directory, member, directories, routes, logs, on_ready);
    if let Some(calls) = calls {
        calls.stop();
    }
    if let Some(following) = following {
        following.stop();
    }
    Ok(served?)
}

/// Connects to the servers that keep the journals, unless the journals are files on this machine.
fn journal_logs(config: &Config) -> anyhow::Result<Option<Arc<dyn Logs>>> {
    check_engine(config)?;
    #[cfg(feature = "nats")]
    if let Some(replicated) = &config.journal.replicated {
        return Ok(Some(Arc::new(ringwell_nats::NatsLogs::connect(replicated)?)));
    }
    Ok(None)
}

/// Checks that this program was built with support for the configured journal store.
fn check_engine(config: &Config) -> anyhow::Result<()> {
    match &config.journal.replicated {
        Some(replicated) if !cfg!(feature = "nats") => anyhow::bail!(
            "journals on {} require the feature `nats`, but this program was built without that \
             feature: build the program with `cargo install --features nats`",
            replicated.shown_servers()
        ),
        Some(_) => has_no_journals_in_files(&config.data),
        None => Ok(()),
    }
}

/// Sends traces to the configured collector, on a separate thread.
fn export_traces(config: &Config) -> anyhow::Result<()> {
    let Some(collector) = config.log.traces.clone() else { return Ok(()) };
    let one_in = config.log.traces_one_in.into();
    let Some(exporter) = ringwell_trace::start(collector, one_in) else { return Ok(()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let export = move || {
        lower_priority();
        runtime.block_on(exporter.run());
    };
    std::thread::Builder::new().name("traces".to_owned()).spawn(export)?;
    Ok(())
}

/// Creates the operators' routes, which are served at the clients' addresses.
pub(crate) fn routes(config: &Config, dashboard: Dashboard, tokens: DatabaseTokens) -> Routes {
    let hashes = config.management.token_sha256.clone();
    let lookup = config.management.lookup_sha256.clone();
    Arc::new(move |node| {
        dashboard.attach(node.clone());
        let tokens = (hashes.clone(), lookup.clone(), tokens.clone());
        ringwell_admin::data_port(node, tokens, dashboard.clone())
    })
}

/// Adds the routes for calls to `routes`.
pub(crate) fn with_calls(routes: Routes, calls: Option<Arc<Running>>) -> Routes {
    let Some(calls) = calls else { return routes };
    Arc::new(move |node| {
        let of_calls = calls.attach(&node);
        ringwell_admin::whole_bodies(routes(node).merge(of_calls))
    })
}

/// Reads the configuration at `path`, and checks that this machine can run a server with it. If
/// there are faults, prints them and returns the exit code.
fn read(path: &Path, flags: Overrides, has_cluster: bool) -> Result<(Config, Directory), ExitCode> {
    let loaded =
        load(path, variable, flags, cores()).map_err(|faults| show_of_file(&faults, path))?;
    refuse_unfit(&loaded.0, has_cluster).map_or(Ok(loaded), Err)
}

/// Joins the cluster described by the file at `path`, as the node `name`. If there are faults,
/// prints them and returns the exit code.
fn join(path: &Path, name: &str) -> Result<Membership, ExitCode> {
    let cluster =
        Cluster::load(path).map_err(|faults| show_with_advice(&faults, path, NAME_CLUSTER))?;
    let names: Vec<&str> = cluster.nodes().iter().map(|node| node.name.as_str()).collect();
    let hint = format!("its nodes are {}", names.join(", "));
    let file = Some(path.display().to_string());
    let fault = |field: &str, message, hint| {
        let (file, field) = (file.clone(), field.to_owned());
        show(&[Fault { file, field, message, hint, ..Fault::default() }])
    };
    let member = Membership::new(cluster, name);
    let member = member.map_err(|error| fault("tls", error.to_string(), None))?;
    member.ok_or_else(|| fault("node", format!("has no node \"{name}\""), Some(hint)))
}
