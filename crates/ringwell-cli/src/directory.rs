//! The directory in a database: read at startup, then watched while the server runs.
//!
//! A separate thread checks for a newer version a few times a second and passes changes to the
//! running node. The thread also watches the demand for each pool, and lets busy pools draw numbers
//! from the inventory. While the database is unavailable, the node continues with its current
//! pools, and `/healthz` reports the directory's age. Source: docs/spec/directory.md.

mod follow;
mod growth;
mod journals;
mod server;
mod sites;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use ringwell_admin::{Dashboard, DatabaseTokens, SharedLoads};
use ringwell_calls::clock::now;
use ringwell_config::{Config, Database, Site};
use ringwell_directory::RingPool;
use ringwell_node::disk::create_directory;
use ringwell_node::{RunningNode, lower_priority};
use ringwell_store::{Location, Scope, Store, StoreError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use self::follow::Follower;
use self::growth::Grower;
use self::journals::Naming;
use self::server::Server;
use self::sites::together;
use crate::background::behind_the_shards;
use crate::database_lock::claim_for_server;
use crate::listener::CONNECTIONS_MAX;
use crate::management;
use crate::one_address::{self, Way};

/// The maximum time to wait for the database during an orderly shutdown.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// The directory as read at startup.
pub(crate) struct Directory {
    runtime: Runtime,
    store: Store,
    /// This node's name in the database.
    node: String,
    version: u64,
    /// The web sites in the configuration. Those in the database are in `sites`.
    sites_of_file: watch::Sender<Vec<Site>>,
    sites: Vec<Site>,
    naming: Naming,
    /// The lock that keeps other servers out of a SQLite database.
    claim: Option<File>,
}

/// The thread that follows changes to the directory.
pub(crate) struct Following {
    /// The channel to the thread, if ring pools can also be managed through the client addresses.
    pub(crate) way: Option<Way>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// Opens the database and reads all pools. If the database contains no pools, the pools in the
/// configuration are imported.
///
/// # Errors
/// If the database cannot be opened or read; the message contains no secret.
pub(crate) fn open(
    database: &Database,
    node: &str,
    of_file: &[RingPool],
    config: &Config,
) -> anyhow::Result<(Directory, Vec<RingPool>, Vec<Site>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let location = match database {
        Database::File(path) => Location::File(path.clone()),
        Database::Postgres(url) => Location::Url(url.reveal().to_owned()),
    };
    let had_journals = config.data.join("journal").is_dir();
    let claim = match database {
        Database::Postgres(_) => None,
        Database::File(path) => {
            // The data directory is created only after the database is locked, unless the database
            // is inside the data directory.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if !folder.is_none_or(Path::is_dir) {
                create_directory(&config.data)?;
            }
            let claim =
                claim_for_server(path, "ring pools", false).context("directory.database")?;
            create_directory(&config.data)?;
            Some(claim)
        }
    };
    let read = || {
        runtime.block_on(async {
            let store = Store::open(&location).await?.with_clocks(config.clock_skew_max);
            let store = store.with_inventory(config.inventory.clone());
            import(&store, of_file).await?;
            let loaded = store.load_all().await?;
            // The version must be confirmed before the first number is handed out, so that no other
            // process hands out a number that this node still serves.
            if !store.confirm_again(node, loaded.version, now()).await? {
                tracing::error!(
                    "the disk of the directory's database is full: the server serves the current \
                     pools, but changes to pools fail until disk space is freed"
                );
            }
            let noted = store.journal(node).await?;
            Ok::<_, StoreError>((store, loaded, noted))
        })
    };
    let read = behind_the_shards(read)?;
    let (store, loaded, noted) = read.map_err(|error| explained(database, error))?;
    journals::compare(config, noted.as_deref())?;
    if loaded.pools.is_empty() && had_journals {
        tracing::warn!(
            "the database contains no ring pools, but the data directory contains journals: if the \
             database was lost, stop the server and restore the database (ringwell restore \
             --config)"
        );
    }
    tracing::info!(version = loaded.version, ring_pools = loaded.pools.len(), "read the directory");
    let node = node.to_owned();
    let together = together(&config.sites, loaded.sites.clone());
    let (sites, sites_of_file) = (loaded.sites, watch::Sender::new(config.sites.clone()));
    let (version, naming) = (loaded.version, Naming::new(config));
    let directory =
        Directory { runtime, store, node, version, sites_of_file, sites, naming, claim };
    Ok((directory, loaded.pools, together))
}

/// Adds context to the error: the setting that names the database or, if its disk is full, the
/// database's path.
fn explained(database: &Database, error: StoreError) -> anyhow::Error {
    let is_full = error.is_full();
    let error = anyhow::Error::from(error);
    match database {
        Database::File(path) if is_full => error.context(format!(
            "cannot write the directory's database {}, because its disk is full: free disk space",
            path.display()
        )),
        _ => error.context("directory.database"),
    }
}

async fn import(store: &Store, of_file: &[RingPool]) -> Result<(), StoreError> {
    let who = "ringwell: configuration";
    if !of_file.is_empty() && store.import_once(who, now(), of_file, &Scope::of_file()).await? {
        tracing::info!(
            ring_pools = of_file.len(),
            "the pools in the configuration were imported into the database"
        );
    }
    Ok(())
}

impl Directory {
    /// Returns a sender that replaces the web sites in the configuration.
    pub(crate) fn sites_of_file(&self) -> watch::Sender<Vec<Site>> {
        self.sites_of_file.clone()
    }

    /// Starts a thread that follows the database and serves the API for managing its pools, until
    /// the node ends.
    ///
    /// # Errors
    /// If no thread can be started, or the management address cannot be bound.
    pub(crate) fn follow(
        self,
        live: RunningNode,
        config: &Config,
        dashboard: &Dashboard,
        (loads, tokens): (SharedLoads, DatabaseTokens),
    ) -> anyhow::Result<Following> {
        let Self { runtime, store, node, version, sites_of_file, sites, naming, claim } = self;
        let sites_of_file = sites_of_file.subscribe();
        let changed = Arc::new(Notify::new());
        let mut grower = Grower::new(
            store.clone(),
            live.clone(),
            loads.clone(),
            Arc::clone(&changed),
            config.growth,
        );
        let server = Server {
            live: live.clone(),
            changed: Arc::clone(&changed),
            sites_of_file: sites_of_file.clone(),
            loads,
        };
        let management =
            ringwell_admin::Management { store: store.clone(), live: Arc::new(server) };
        let (way, requests) = one_address::way();
        let ring_pools = management::on_data_port(config, management.clone());
        let (listener, router) =
            runtime.block_on(management::open(config, dashboard, Some(management)))?;
        // Clients may look numbers up as soon as the node serves. If the database does not answer,
        // the tokens are read later.
        let read = async { timeout(CLOSE_MAX, follow::read_tokens(&store, &tokens)).await };
        if !matches!(runtime.block_on(read), Ok(Ok(()))) {
            tracing::warn!("the tokens in the database cannot be read yet");
        }
        let dashboard = dashboard.clone();
        let (end, ended) = oneshot::channel();
        let follow = move || {
            let _claim = claim;
            lower_priority();
            let mut follower = Follower::new(
                store.clone(),
                node,
                version,
                live,
                (sites_of_file, sites),
                (changed, tokens),
                naming,
            );
            let serve_ring_pools = async {
                requests.serve(ring_pools).await;
                // The channel is closed, so no further requests arrive on it.
                std::future::pending::<()>().await;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = follower.run() => {}
                    () = grower.run() => {}
                    () = listener.serve(router, CONNECTIONS_MAX) => {}
                    () = dashboard.run() => {}
                    () = serve_ring_pools => {}
                    _ = ended => {}
                }
                // Closing makes SQLite move all changes into its main file. The wait is limited
                // because PostgreSQL may not answer.
                let _ = timeout(CLOSE_MAX, store.close()).await;
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("directory".to_owned()).spawn(follow)?;
        Ok(Following { way: config.management.on_data_port.then_some(way), end, thread })
    }
}

impl Following {
    /// Ends the thread and closes the database.
    pub(crate) fn stop(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that applies changes to ring pools panicked");
        }
    }
}
