//! Records in the database which data directory this node serves. If a node restarts without the
//! data directory that it used before, its data is treated as restored from a copy.
//!
//! Source: docs/spec/cluster.md, "A lost disk".

use std::path::{Path, PathBuf};

use ringwell_config::{Config, Durability};
use ringwell_node::disk::{FileError, Identity, OsFiles, is_restored, mark_restored};
use ringwell_store::{Store, StoreError};

use ringwell_calls::clock::now;

/// Records the name of the data directory.
pub(super) struct Naming {
    /// `None` if no data is kept.
    data: Option<PathBuf>,
}

impl Naming {
    pub(super) fn new(config: &Config) -> Self {
        Self { data: keeps(config).then(|| config.data.clone()) }
    }

    /// Records the name, but only after any required hold is durable. If the process ends earlier,
    /// the next startup must still find the old name. The name changes if other nodes report that
    /// the data is a copy.
    pub(super) async fn note(&self, store: &Store, node: &str) -> Result<(), StoreError> {
        let Some(data) = &self.data else { return Ok(()) };
        let named = Identity::read(&OsFiles, data).ok().flatten();
        if let Some(name) = named.filter(|_| !is_restored(&OsFiles, data)) {
            // Does not write if the name is already recorded, so that a restart also works while
            // the database's disk is full.
            if store.journal(node).await?.as_deref() != Some(&*name.id) {
                store.note_journal(node, &name.id).await?;
            }
            if store.forget_former(node, &name.id, now()).await? {
                tracing::info!(
                    node,
                    "this server has joined or left a cluster: the entry with its former name \
                     was removed from the list of nodes"
                );
            }
        }
        Ok(())
    }
}

fn keeps(config: &Config) -> bool {
    config.durability != Durability::Memory
}

/// Marks the data directory as restored if the recorded name `noted` is the name of another data
/// directory. If the journals are on NATS servers, another machine continues from them, so no
/// allocations are missing.
///
/// # Errors
/// [`FileError`]
pub(super) fn compare(config: &Config, noted: Option<&str>) -> Result<(), FileError> {
    let is_in_files = keeps(config) && config.journal.replicated.is_none();
    let Some(noted) = noted.filter(|_| is_in_files) else { return Ok(()) };
    let data: &Path = &config.data;
    let found = Identity::read(&OsFiles, data)?.map(|identity| identity.id);
    if found.as_deref() == Some(noted) {
        return Ok(());
    }
    tracing::error!(
        data = %data.display(),
        noted,
        found,
        "according to the database, this node used a different data directory before: the \
         current data directory lacks the allocations of the previous one"
    );
    mark_restored(&OsFiles, data)
}
