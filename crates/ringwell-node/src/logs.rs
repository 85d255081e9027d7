//! Journals in a log that machines share: a node's work for them at its start and while it serves.

use std::sync::Arc;
use std::time::Duration;

use ringwell_directory::Config;
use ringwell_driver::node::{JournalState, Node, Phase};
use ringwell_driver::store::Logs;
use ringwell_journal::Durability;

use crate::{ServeError, disk};

/// The settings that exclude such journals.
const LOG_ALONE: &str = "with `engine = \"nats\"` in [journal] durability must be \"disk\", and there \
                         must be no cluster file";

/// The interval between two checks whether another process has taken all shards.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Prepares the files for use beside a log, as a copy, and waits while another process serves, if
/// configured.
///
/// # Errors
/// [`ServeError::Log`] if settings of the configuration exclude each other.
pub(crate) fn prepare(
    logs: &dyn Logs,
    config: &Config,
    is_member: bool,
    settings: &mut disk::Settings,
) -> Result<(), ServeError> {
    if settings.durability != Durability::Disk || is_member {
        return Err(ServeError::Log(LOG_ALONE.to_owned()));
    }
    settings.durability = Durability::Os;
    if let Some(replicated) = &config.journal.replicated {
        // The copy counts plain bodies, so that the stream is never longer. The rest is room for what
        // is written while the oldest part is given up.
        let bytes_max = replicated.stream_bytes / 4 * 3;
        settings.history_bytes = settings.history_bytes.min(bytes_max);
    }
    if stands_by(config) {
        logs.stand_by();
    }
    Ok(())
}

fn stands_by(config: &Config) -> bool {
    config.journal.replicated.as_ref().is_some_and(|replicated| replicated.standby)
}

/// Announces to other processes that this one serves, for as long as it does.
pub(crate) fn report(logs: Option<&dyn Logs>, node: &Arc<Node>) {
    let Some(logs) = logs else { return };
    let node = Arc::clone(node);
    logs.serving(Box::new(move || {
        let is_own = |state| !matches!(state, JournalState::Taken | JournalState::Failed);
        node.phase() == Phase::Serving && node.journals().all(|(_, state)| is_own(state))
    }));
}

/// Returns when another process serves all shards, and this one should stand by instead.
pub(crate) async fn is_fenced(node: &Node) {
    if !stands_by(&node.config) {
        std::future::pending::<()>().await;
    }
    while !node.journals().all(|(_, state)| state == JournalState::Taken) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
