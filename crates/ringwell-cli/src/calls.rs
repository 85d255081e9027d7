//! A running node's call service: a separate thread that owns the call log and listens for
//! providers.
//!
//! Connects the service to the node: the service queries the node for a number's holder, and the
//! node's management API serves the service's paths.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use ringwell_calls::http::{self, Tokens};
use ringwell_calls::{FoundKeepAlives, HolderError, Holders, Log, Numbers, Service, Serving};
use ringwell_config::{Calls, Config, Database, Listen};
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::{Directory, Fault, TokenHashes};
use ringwell_node::{Handle, lower_priority, try_bind};
use ringwell_store::Location;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use crate::background::behind_the_shards;
use crate::data_files::WAITING;
use crate::database_lock::{CALL_LOG, claim_for_server, usual_call_log};
use crate::listener::{Reserved, cannot_listen};

/// The listener's name, and the setting that contains its address.
const PLACE: (&str, &str) = ("calls", "calls.listen");
/// The maximum number of open connections from providers.
const CONNECTIONS_MAX: usize = 2_048;
/// The maximum time that startup waits for calls to be accepted. Calls are accepted later only if
/// another process has taken the address.
const LISTEN_MAX: Duration = Duration::from_secs(1);

/// The call service, running on its own thread.
pub(crate) struct Running {
    service: Service,
    tokens: Tokens,
    node: NodeNumbers,
    address: String,
    /// The settings that can change only with a restart.
    fixed: (Listen, Option<Database>),
    /// The path of [`WAITING`].
    waiting: PathBuf,
    /// Receives a message when calls are accepted. `None` once startup has waited for it.
    listens: Mutex<Option<mpsc::Receiver<()>>>,
    end: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Access to a node's numbers. The node may not be serving yet.
#[derive(Clone)]
struct NodeNumbers {
    node: Arc<OnceLock<Handle>>,
    /// Becomes true once the node serves.
    serves: Arc<watch::Sender<bool>>,
}

impl Numbers for NodeNumbers {
    fn pools(&self, number: PromoNumber) -> Vec<Serving> {
        self.node.get().map(|node| serving(&node.directory(), number)).unwrap_or_default()
    }

    fn has_pool(&self, pool: PoolId) -> Option<bool> {
        self.node.get().map(|node| node.directory().pool(pool).is_some())
    }

    fn holders(&self, number: PromoNumber, at: Millis, most: usize) -> Holders<'_> {
        Box::pin(async move {
            let not_serving = || HolderError::Unavailable("the node is not serving yet".to_owned());
            let node = self.node.get().ok_or_else(not_serving)?;
            ringwell_admin::holders(node, number, at, most).await
        })
    }

    fn keep_alives(
        &self,
        number: PromoNumber,
        allocated_at: Millis,
        at: Millis,
    ) -> FoundKeepAlives<'_> {
        Box::pin(async move {
            let node = self.node.get()?;
            ringwell_admin::keep_alives(node, number, (allocated_at, at)).await
        })
    }
}

/// Returns the pools that serve `number` according to `directory`.
pub(crate) fn serving(directory: &Directory, number: PromoNumber) -> Vec<Serving> {
    let serving = |pool, is_overflow| {
        let name = directory.pool(pool).and_then(|pool| pool.name().map(str::to_owned));
        Serving { pool, name, is_overflow }
    };
    let own = directory.pool_by_number(number).map(|pool| serving(pool, false));
    let shared = directory.overflow_pools(number);
    own.into_iter().chain(shared.into_iter().map(|pool| serving(pool, true))).collect()
}

impl Running {
    /// Opens the call log and reserves the address for providers, which can connect once the node
    /// serves. Calls can be read with the tokens in `lookup`, which the directory keeps current.
    ///
    /// # Errors
    /// If the log cannot be opened, or the address is in use.
    pub(crate) fn start(
        settings: &Calls,
        config: &Config,
        lookup: TokenHashes,
    ) -> anyhow::Result<Arc<Self>> {
        ringwell_node::disk::create_directory(&config.data)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (serves, _) = watch::channel(false);
        let node = NodeNumbers { node: Arc::default(), serves: Arc::new(serves) };
        let location = match &settings.database {
            None => Location::File(usual_call_log(config)),
            Some(Database::File(path)) => Location::File(path.clone()),
            Some(Database::Postgres(url)) => Location::Url(url.reveal().to_owned()),
        };
        // The log's checks and locks come first: a server that cannot start must not change the
        // log.
        let claim = match &location {
            Location::File(path) => {
                let is_own = settings.database.is_none();
                Some(claim_for_server(path, CALL_LOG, is_own).context("calls.database")?)
            }
            Location::Url(_) => None,
        };
        let numbers: Arc<dyn Numbers> = Arc::new(node.clone());
        let open = || {
            runtime.block_on(async {
                let log = Log::open_or_later(&location).await.context("the call log")?;
                let service = Service::start(settings, log, numbers)?;
                let reserved = Reserved::new(&settings.listen).await;
                let address = &settings.listen;
                let reserved = reserved.map_err(|error| cannot_listen(PLACE, address, error))?;
                Ok::<_, anyhow::Error>((service, reserved))
            })
        };
        let (service, reserved) = behind_the_shards(open)??;
        let address = reserved.address();
        tracing::info!(%address, "calls");
        let ((end, ended), (listening, listens)) = (oneshot::channel(), mpsc::channel());
        let thread = {
            let (service, serves) = (service.clone(), node.serves.subscribe());
            let work = move || {
                let _claim = claim;
                run(&runtime, &service, reserved, (serves, listening), ended);
            };
            thread::Builder::new().name("calls".to_owned()).spawn(work)?
        };
        let (end, thread) = (Mutex::new(Some(end)), Mutex::new(Some(thread)));
        let listens = Mutex::new(Some(listens));
        let tokens = Tokens {
            management: config.management.token_sha256.clone(),
            lookup: [config.management.lookup_sha256.clone(), lookup].into(),
        };
        let fixed = (settings.listen.clone(), settings.database.clone());
        let waiting = config.data.join(WAITING);
        Ok(Arc::new(Self { service, tokens, node, address, fixed, waiting, listens, end, thread }))
    }

    /// Checks that the process can listen on `address` now. Does not keep the socket.
    ///
    /// # Errors
    /// If the process cannot listen on `address`.
    pub(crate) fn check_free(address: &Listen) -> anyhow::Result<()> {
        try_bind(address).map_err(|error| cannot_listen(PLACE, address, error))
    }

    /// Reports that the node serves, so that it can be queried from now on. Returns a router with
    /// the service's paths, for the node's management API.
    pub(crate) fn attach(&self, node: &Handle) -> Router {
        // Every shard's thread calls this function with a handle to the same node, so only the
        // first call has an effect here.
        if self.node.node.set(node.clone()).is_ok() {
            // The data directory is locked by now, so reports that wait for the call log can be
            // kept in a file there.
            self.service.keep_in(&self.waiting);
        }
        let service = self.service.clone();
        node.on_taps(move |number| service.tapped(number));
        self.node.serves.send_replace(true);
        // A server that reports that it serves should accept calls.
        let listens = self.listens.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = listens.map(|listens| listens.recv_timeout(LISTEN_MAX));
        http::management(self.service.clone(), self.tokens.clone())
    }

    /// Applies changed settings, except for the address and the database.
    ///
    /// # Errors
    /// Returns a [`Fault`] and changes nothing if the settings are invalid.
    pub(crate) fn reload(&self, settings: &Calls) -> Result<(), Fault> {
        self.service.reload(settings).map_err(|error| Fault {
            field: "calls.destination.time_zone".to_owned(),
            message: error.to_string(),
            ..Fault::default()
        })?;
        if self.fixed != (settings.listen.clone(), settings.database.clone()) {
            tracing::warn!(
                "changes to calls.listen and calls.database take effect only after a restart"
            );
        }
        Ok(())
    }

    /// Returns the address to which providers connect.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the node's pools, or `None` before the node serves.
    pub(crate) fn pools(&self) -> Option<Arc<Directory>> {
        self.node.node.get().map(Handle::directory)
    }

    /// Returns the call service, for the dashboard.
    pub(crate) fn service(&self) -> Service {
        self.service.clone()
    }

    /// Stops accepting calls, and stores all pending reports.
    pub(crate) fn stop(&self) {
        drop(self.end.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that handles calls panicked");
        }
    }
}

fn run(
    runtime: &Runtime,
    service: &Service,
    reserved: Reserved,
    (mut serves, listening): (watch::Receiver<bool>, mpsc::Sender<()>),
    ended: oneshot::Receiver<()>,
) {
    lower_priority();
    let router = http::providers(service.clone());
    runtime.block_on(async {
        let answer = async {
            // Until the node serves, connections are refused, so the provider uses its own
            // fallback.
            let _ = serves.wait_for(|serves| *serves).await;
            let listener = reserved.listen(PLACE).await;
            let _ = listening.send(());
            listener.serve(router, CONNECTIONS_MAX).await;
        };
        tokio::select! {
            () = answer => {}
            _ = ended => {}
        }
        service.close().await;
    });
}
