//! SIGHUP: reloads pools, web sites, management tokens and the settings of `[calls]` from the
//! configuration while the node is serving.

use std::sync::Arc;
use std::time::Duration;

use crate::directories::Directories;
use crate::platform::Tokio;
use crate::server::Server;
use ringwell_driver::change::{self, ChangeError};
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;
use ringwell_driver::{Moment, Platform};

/// Reads the configuration again, including the pools, and applies it. If the configuration cannot
/// be read or is invalid, this is logged and nothing is changed.
pub(crate) async fn again(
    server: &Server,
    peers: &Peers,
    directories: &mut Directories,
    cause: &str,
) {
    let Some(reload) = &mut directories.reload else {
        match directories.reload_settings.as_mut().map(|reload| reload()) {
            Some(Ok(())) => tracing::info!(
                "{cause}: web sites, [calls] and management tokens were reloaded; the pools are \
                 in the database and need no reload"
            ),
            Some(Err(faults)) => refuse(&faults, cause),
            None => {
                tracing::warn!("{cause}: nothing to reload, because no settings come from a file");
            }
        }
        return;
    };
    let (read, sites) = match reload() {
        Ok(read) => read,
        Err(faults) => return refuse(&faults, cause),
    };
    let node = &server.node;
    let _one = node.changes.lock().await;
    match change::apply(&Tokio, node, peers, move |before| before.replace(read.pools())).await {
        Ok(next) => {
            let mut what = "pools, web sites, [calls] and management tokens";
            if let Err(error) = server.sites.serve(&server.node, sites) {
                tracing::error!(
                    %error,
                    "{cause}: cannot apply the new web sites: the previous ones stay in use"
                );
                what = "pools, [calls] and management tokens";
            }
            server.application.iter().for_each(|application| application.disown_all());
            tracing::info!(
                version = next.version(),
                ring_pools = next.pool_count(),
                numbers = next.number_count(),
                "{cause}: {what} were reloaded; other settings require a restart"
            );
        }
        Err(ChangeError::Rules(faults)) => refuse(&faults, cause),
        Err(error) => {
            tracing::error!(%error, "{cause}: cannot reload the pools, so they are unchanged");
        }
    }
}

/// The interval between two checks of whether the database has been read.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// The time limit for the reload after waiting as a standby.
const REFRESH_MAX: Duration = Duration::from_secs(5);

/// Reads the configuration again before the node accepts clients, because the configuration may
/// have changed while this process was a standby. If the pools are in a database, waits until they
/// have been read from there.
pub(crate) async fn refresh(server: &Arc<Server>, peers: &Peers, directories: &mut Directories) {
    let (node, asked) = (&server.node, Tokio.moment());
    let request = *node.reload_requests.asked().borrow();
    again(server, peers, directories, "after the wait as a standby").await;
    if directories.reload.is_none()
        && Tokio.within(REFRESH_MAX, read_since(node, asked)).await.is_none()
    {
        tracing::warn!(
            "the database with the pools does not answer: until it does, the node serves the pools \
             that it read when it began to wait as a standby"
        );
        return;
    }
    node.reload_requests.finish(request);
}

/// Waits until the pools have been read from the database after `asked`.
async fn read_since(node: &Node, asked: Moment) {
    let is_read = |now: Moment| node.directory_age(now).is_some_and(|age| age < now.since(asked));
    while !is_read(Tokio.moment()) {
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Reads the pools again, because a shard was suspended and may have missed a change. If the pools
/// are in a database, this function waits until they have been read from there.
pub(crate) async fn confirm(
    server: &Arc<Server>,
    peers: &Peers,
    directories: &mut Directories,
    request: u64,
) {
    if directories.reload.is_some() {
        again(server, peers, directories, "a shard stalled").await;
        server.node.reload_requests.finish(request);
        return;
    }
    let server = Arc::clone(server);
    tokio::spawn(async move {
        // Waits for two reads of the database, because the first may have been in progress while
        // the process was suspended.
        for _ in 0..2 {
            read_since(&server.node, Tokio.moment()).await;
        }
        server.node.reload_requests.finish(request);
    });
}

fn refuse(faults: &[ringwell_directory::Fault], cause: &str) {
    for fault in faults {
        tracing::error!("{fault}");
    }
    tracing::error!(
        faults = faults.len(),
        "{cause}: the configuration has errors: pools, web sites, [calls] and management tokens \
         are unchanged. Correct the configuration, then send SIGHUP"
    );
}
