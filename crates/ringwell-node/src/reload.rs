//! SIGHUP: the pools of the configuration are read again and take effect while the node serves.

use std::sync::Arc;

use ringwell_directory::Directory;

use crate::change;
use crate::mesh::Peers;
use crate::node::Node;
use crate::run::Reload;

/// Reads the pools again. What cannot be read, or cannot be, leaves everything as it is, and says
/// so in the log.
pub(crate) async fn again(node: &Node, peers: &Peers, reload: Option<&mut Reload>) {
    let Some(reload) = reload else {
        tracing::warn!("SIGHUP: these pools come from no file; nothing is read again");
        return;
    };
    let read = match reload() {
        Ok(read) => read,
        Err(faults) => return refuse(&faults),
    };
    let _one = node.changes.lock().await;
    let before = node.directory();
    let pools = before.reconciled(read.pools());
    match before.succeed(before.version() + 1, pools, before.placement().clone()) {
        Ok(next) => apply(node, peers, next).await,
        Err(faults) => refuse(&faults),
    }
}

fn refuse(faults: &[ringwell_directory::Fault]) {
    for fault in faults {
        tracing::error!("{fault}");
    }
    tracing::error!(faults = faults.len(), "SIGHUP: the pools stay as they are");
}

async fn apply(node: &Node, peers: &Peers, next: Directory) {
    let next = Arc::new(next);
    match change::apply(node, peers, Arc::clone(&next)).await {
        Ok(()) => tracing::info!(
            version = next.version(),
            ring_pools = next.pools().len(),
            numbers = next.number_count(),
            "SIGHUP: the pools were read again; other settings need a restart"
        ),
        Err(error) => tracing::error!(%error, "SIGHUP: the pools stay as they are"),
    }
}
