//! The management address: its listener and its thread.
//!
//! If ring pools are in a database, the thread that watches the database also serves this address
//! (`directory.rs`). Otherwise, a separate thread serves only the dashboard at this address.

use std::thread;

use axum::Router;
use ringwell_admin::{Dashboard, Entrance, Management};
use ringwell_config::{Config, Listen};
use ringwell_node::{bodies_bytes, lower_priority, try_bind};
use tokio::runtime::Builder;

use crate::listener::{self, Listener, cannot_listen};

/// The listener's name, and the name of the setting for its address.
const PLACE: (&str, &str) = ("management", "management.address");

/// Binds the address, and creates the router for its requests.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) async fn open(
    config: &Config,
    dashboard: &Dashboard,
    management: Option<Management>,
) -> anyhow::Result<(Listener, Router)> {
    let (settings, limits) = (&config.management, &config.limits);
    let entrance = Entrance {
        token_sha256: settings.token_sha256.clone(),
        requests_per_second: settings.requests_per_second,
        hosts: listener::hosts(settings),
        bodies_bytes: limits.bodies_bytes.unwrap_or_else(|| bodies_bytes(0)),
        dashboard: Some(dashboard.clone()),
    };
    let router = ringwell_admin::router(entrance, management);
    let address = &settings.address;
    let listener = Listener::bind(address).await;
    let listener = listener.map_err(|error| cannot_listen(PLACE, address, error))?;
    tracing::info!(address = %listener.address(), "management");
    Ok((listener, router))
}

/// Checks that the process can listen on `address` now. Does not keep the socket.
///
/// # Errors
/// Returns the same error as [`open`].
pub(crate) fn check_free(address: &Listen) -> anyhow::Result<()> {
    try_bind(address).map_err(|error| cannot_listen(PLACE, address, error))
}

/// Creates the published API's routes for ring pools, which are served at the addresses for
/// clients.
pub(crate) fn on_data_port(config: &Config, management: Management) -> Router {
    let settings = &config.management;
    let entrance = Entrance {
        token_sha256: settings.token_sha256.clone(),
        requests_per_second: settings.requests_per_second,
        // Requests to the addresses for clients may contain any host name.
        hosts: None,
        bodies_bytes: config.limits.bodies_bytes.unwrap_or_else(|| bodies_bytes(0)),
        dashboard: None,
    };
    ringwell_admin::ring_pools(entrance, management)
}

/// Serves only the dashboard, on a separate thread, until the process ends. Returns the listener's
/// address.
///
/// # Errors
/// If no thread can be started, and for the same reasons as [`open`].
pub(crate) fn serve(config: &Config, dashboard: &Dashboard) -> anyhow::Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (listener, router) = runtime.block_on(open(config, dashboard, None))?;
    let address = listener.address();
    let dashboard = dashboard.clone();
    let serve = move || {
        lower_priority();
        runtime.block_on(async {
            tokio::join!(listener.serve(router, listener::CONNECTIONS_MAX), dashboard.run());
        });
    };
    thread::Builder::new().name("management".to_owned()).spawn(serve)?;
    Ok(address)
}
