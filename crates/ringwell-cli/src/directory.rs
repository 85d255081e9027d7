//! The directory in a database: read at the start, followed while the server runs.
//!
//! A thread of its own asks for the newest version a few times a second and hands what has changed
//! to the running node. Without the database the node goes on with what it has; `/healthz` tells
//! how old that is. Source: docs/spec/directory.md.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use axum::Router;
use ringwell_admin::{Later, PoolState};
use ringwell_core::{Millis, PoolId};
use ringwell_directory::{Database, Listen, Management, RingPool};
use ringwell_node::{Live, LiveError};
use ringwell_store::{Delta, Location, Scope, Store, StoreError};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// How often the version is asked for.
const EVERY: Duration = Duration::from_millis(200);

/// How often numbers are looked for whose lockouts are over.
const DUE_EVERY: u32 = 10;

/// The directory as it was read.
pub(crate) struct Directory {
    runtime: Runtime,
    store: Store,
    /// Who this node is to the database.
    node: String,
    version: u64,
}

/// Opens the database and reads all pools. Pools of the configuration move into one that has none.
///
/// # Errors
/// If the database cannot be opened or read; the message has no secret.
pub(crate) fn open(
    database: &Database,
    data: &Path,
    node: &str,
    of_file: &[RingPool],
    inventory: &ringwell_directory::Inventory,
) -> anyhow::Result<(Directory, Vec<RingPool>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let location = match database {
        Database::File(path) => Location::File(path.clone()),
        Database::Postgres(url) => Location::Url(url.reveal().to_owned()),
    };
    if matches!(database, Database::File(_)) {
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot make the directory {}", data.display()))?;
    }
    let read = runtime.block_on(async {
        let store = Store::open(&location).await?.with_inventory(inventory.clone());
        import(&store, of_file).await?;
        let loaded = store.load_all().await?;
        // Before the first number goes out: nobody may give away what this node still serves.
        store.confirm(node, loaded.version, now()).await?;
        Ok::<_, StoreError>((store, loaded))
    });
    let (store, loaded) = read.context("the directory's database")?;
    tracing::info!(version = loaded.version, ring_pools = loaded.pools.len(), "read the directory");
    let node = node.to_owned();
    Ok((Directory { runtime, store, node, version: loaded.version }, loaded.pools))
}

async fn import(store: &Store, of_file: &[RingPool]) -> Result<(), StoreError> {
    if of_file.is_empty() || store.version().await? > 0 {
        return Ok(());
    }
    let mut change = store.change("ringwell: configuration", now()).await?;
    change.import(of_file, &Scope::of_file()).await?;
    change.commit().await?;
    tracing::info!(
        ring_pools = of_file.len(),
        "the pools of the configuration are in the database now"
    );
    Ok(())
}

impl Directory {
    /// Follows the database, and serves the management of its pools, on a thread of its own until
    /// the node ends.
    ///
    /// # Errors
    /// If there can be no thread, or management cannot listen.
    pub(crate) fn follow(self, live: Live, management: &Management) -> anyhow::Result<()> {
        let Self { runtime, store, node, version } = self;
        let changed = Arc::new(Notify::new());
        let server = Server { live: live.clone(), changed: Arc::clone(&changed) };
        let router = ringwell_admin::router(ringwell_admin::Management {
            store: store.clone(),
            live: Arc::new(server),
            token_sha256: management.token_sha256.clone(),
            requests_per_second: management.requests_per_second,
        });
        let address = management.address.clone();
        let listener = runtime.block_on(bind(&address));
        let listener =
            listener.with_context(|| format!("management cannot listen on {address}"))?;
        tracing::info!(address = %listener.address(), "management");
        let follow = move || {
            let (is_lost, refused) = (false, None);
            let mut follower = Follower { store, node, version, live, changed, is_lost, refused };
            runtime.block_on(async {
                tokio::select! {
                    () = async { while follower.round().await {} } => {}
                    () = listener.serve(router) => {}
                }
            });
        };
        thread::Builder::new().name("directory".to_owned()).spawn(follow)?;
        Ok(())
    }
}

/// Where management is listened for.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, String),
}

async fn bind(address: &Listen) -> std::io::Result<Listener> {
    match address {
        Listen::Tcp { host, port } => {
            Ok(Listener::Tcp(TcpListener::bind((host.as_str(), *port)).await?))
        }
        Listen::Unix(path) => {
            // Left by a server that was killed.
            let _ = std::fs::remove_file(path);
            Ok(Listener::Unix(UnixListener::bind(path)?, address.to_string()))
        }
    }
}

impl Listener {
    fn address(&self) -> String {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string()),
            Self::Unix(_, address) => address.clone(),
        }
    }

    /// Until the process ends: a broken listener is told, and the pools are followed without it.
    async fn serve(self, router: Router) {
        let served = match self {
            Self::Tcp(listener) => axum::serve(listener, router).await,
            Self::Unix(listener, _) => axum::serve(listener, router).await,
        };
        tracing::error!(?served, "management has ended");
        std::future::pending::<()>().await;
    }
}

/// The running server, as the management API asks it.
struct Server {
    live: Live,
    changed: Arc<Notify>,
}

impl ringwell_admin::Live for Server {
    fn now(&self) -> Millis {
        now()
    }

    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>> {
        Box::pin(async move {
            let state = self.live.states(vec![pool]).await.ok()?.pop()?;
            let free = u64::from(state.numbers - state.locked.min(state.numbers));
            let exhausted = ("exhausted".to_owned(), u64::from(state.exhausted));
            Some(PoolState {
                free,
                locked: state.locked.into(),
                next_free: state.next_free,
                overflow: [exhausted].into(),
            })
        })
    }

    fn changed(&self, _version: u64) {
        self.changed.notify_one();
    }
}

struct Follower {
    store: Store,
    node: String,
    version: u64,
    live: Live,
    /// Told when this process itself has changed the directory.
    changed: Arc<Notify>,
    /// The database did not answer the last time.
    is_lost: bool,
    /// Why the newest version cannot be served.
    refused: Option<String>,
}

/// What a look at the database came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// The node serves the newest version.
    Current,
    /// It does not.
    Behind,
    /// The node has ended.
    Ended,
}

impl Follower {
    /// A few looks; `false` when the node has ended.
    async fn round(&mut self) -> bool {
        for _ in 0..DUE_EVERY {
            let _ = tokio::time::timeout(EVERY, self.changed.notified()).await;
            let looked = self.look().await;
            match looked {
                Ok(Looked::Ended) => return false,
                Ok(Looked::Current | Looked::Behind) => self.found(),
                Err(error) => self.lost(&error),
            }
        }
        if let Err(error) = self.store.due(now()).await {
            self.lost(&error);
        }
        true
    }

    /// Takes over what is new.
    async fn look(&mut self) -> Result<Looked, StoreError> {
        let mut looked = Looked::Current;
        if self.store.version().await? != self.version {
            let delta = self.store.changed_since(self.version).await?;
            looked = self.take(delta).await?;
        }
        if looked == Looked::Current {
            self.live.is_current().await;
        }
        Ok(looked)
    }

    async fn take(&mut self, delta: Delta) -> Result<Looked, StoreError> {
        let Delta { version, changed, removed } = delta;
        let (put, gone) = (changed.len(), removed.len());
        match self.live.change(changed, removed).await {
            Ok(()) => {
                tracing::info!(version, changed = put, removed = gone, "the directory has changed");
                self.refused = None;
            }
            Err(LiveError::Refused(reason)) => {
                self.refused(version, reason);
                return Ok(Looked::Behind);
            }
            Err(LiveError::Stopping) => return Ok(Looked::Ended),
        }
        self.version = version;
        self.store.confirm(&self.node, version, now()).await?;
        Ok(Looked::Current)
    }

    /// The shards do not take what the database allows. Nothing is confirmed: numbers that have left
    /// a pool there may still go out of it here. It is tried again with whatever comes next.
    fn refused(&mut self, version: u64, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(version, reason, "a change of the directory cannot be served yet");
            self.refused = Some(reason);
        }
    }

    fn lost(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_lost, true) {
            tracing::error!(
                %error,
                "the directory's database cannot be read: the server goes on with the pools it has"
            );
        }
    }

    fn found(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            tracing::info!("the directory's database is there again");
        }
    }
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
