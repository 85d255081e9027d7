//! SIGHUP: pools, web sites, calls and management tokens of the configuration are read again while the node serves.

use crate::platform::Tokio;
use crate::run::Directories;
use crate::server::Server;
use crate::site;
use ringwell_driver::change::{self, ChangeError};
use ringwell_driver::queue::Peers;

/// Reads the pools again. An unreadable or invalid configuration leaves everything unchanged, and
/// is logged.
pub(crate) async fn again(server: &Server, peers: &Peers, directories: &mut Directories) {
    let Some(reload) = &mut directories.reload else {
        match directories.reload_settings.as_mut().map(|reload| reload()) {
            Some(Ok(())) => tracing::info!(
                "SIGHUP: web sites, calls and management tokens were read again; the pools are in \
                 the database"
            ),
            Some(Err(faults)) => refuse(&faults),
            None => tracing::warn!("SIGHUP: nothing comes from a file; nothing is read again"),
        }
        return;
    };
    let (read, sites) = match reload() {
        Ok(read) => read,
        Err(faults) => return refuse(&faults),
    };
    let node = &server.node;
    let _one = node.changes.lock().await;
    match change::apply(&Tokio, node, peers, move |before| before.replace(read.pools())).await {
        Ok(next) => {
            if let Err(error) = site::serve(server, sites) {
                tracing::error!(%error, "SIGHUP: the web sites are unchanged");
            }
            server.application.iter().for_each(|application| application.disown_all());
            tracing::info!(
                version = next.version(),
                ring_pools = next.pool_count(),
                numbers = next.number_count(),
                "SIGHUP: pools, web sites, calls and management tokens were read again; \
                 other settings need a restart"
            );
        }
        Err(ChangeError::Rules(faults)) => refuse(&faults),
        Err(error) => tracing::error!(%error, "SIGHUP: the pools are unchanged"),
    }
}

fn refuse(faults: &[ringwell_directory::Fault]) {
    for fault in faults {
        tracing::error!("{fault}");
    }
    tracing::error!(faults = faults.len(), "SIGHUP: the pools are unchanged");
}
