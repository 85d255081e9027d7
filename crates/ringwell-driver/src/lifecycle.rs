//! The startup and shutdown of nodes and shards. Makes records durable before the first number is
//! handed out and after the last one.
//!
//! This module uses no threads, sockets or signals.

use std::path::Path;

use ringwell_config::Durability;
use ringwell_directory::{Directory, Owners};

use crate::canary::{Bug, planted};
use crate::maintenance::task;
use crate::membership::Membership;
use crate::node::{JournalState, Node};
use crate::platform::Platform;
use crate::shard::Shard;
use crate::store::{self, FileError, Files, ServedMap, Store};

/// Assigns the buckets of `directory` to their owners. Returns the directory and the owners. If the
/// cluster file has not changed, the owners recorded in the data directory override those in the
/// file. Buckets may have moved since the file was written.
///
/// # Errors
/// Returns [`FileError`] if the recorded owners cannot be read.
pub fn place(
    files: &impl Files,
    data: &Path,
    directory: Directory,
    membership: Option<&Membership>,
) -> Result<(Directory, Option<Owners>), FileError> {
    let Some(membership) = membership else { return Ok((directory, None)) };
    let by_file = membership.cluster().map().owners();
    let served = ServedMap::read(files, data)?.and_then(|served| served.owners);
    let is_of_file = |served: &Owners| {
        let is_version = served.version() == by_file.version() || planted(Bug::StaleMap);
        is_version && served.shards() == by_file.shards()
    };
    let served = served.filter(|_| !planted(Bug::OwnersForgotten));
    let owners = served.filter(is_of_file).unwrap_or(by_file);
    Ok((directory.placed(owners.placement()), Some(owners)))
}

/// Takes a snapshot, so that later startups need not rely on older files: an earlier flush of those
/// files may have failed. If lockouts were lengthened, the snapshot must succeed.
///
/// # Errors
/// The reason why the shard must not continue serving.
pub async fn begin_shard<P: Platform>(
    shard: &Shard<P>,
    store: &impl Store,
    is_lengthened: bool,
) -> Result<(), String> {
    if planted(Bug::LengthenedUnsaved) {
        return Ok(());
    }
    if !is_lengthened {
        save(shard, store).await;
        return Ok(());
    }
    // The snapshot must be stored before any record with the shard time of this run. Otherwise, a
    // later startup would not detect that lockouts must be lengthened.
    task::snapshot(shard, store).await
}

/// Flushes the journal and takes a snapshot. Returns `false` if records could not be stored.
///
/// With durability `os`, only the snapshot flushes the journal.
pub async fn save<P: Platform>(shard: &Shard<P>, store: &impl Store) -> bool {
    if !shard.node.answers_wait() {
        return true;
    }
    match task::snapshot(shard, store).await {
        Ok(()) => true,
        Err(trouble) => {
            tracing::error!(shard = shard.id, trouble, "no snapshot could be taken");
            shard.note_failure(format!("no snapshot: {trouble}"));
            shard.is_stored() && shard.node.config.durability == Durability::Disk
        }
    }
}

/// Removes the marks for data that was restored from a copy or may have been truncated by a power
/// cut. The shards' journals now contain the holds of all pools, so the next startup need not begin
/// new holds.
pub fn unmark(files: &impl Files, node: &Node) {
    let are_stored = node.journals().all(|(_, state)| state == JournalState::Writing);
    if !node.answers_wait() || !are_stored {
        return;
    }
    let data = &node.config.data;
    let unmarked = store::unmark_restored(files, data);
    let settled = match node.config.journal.replicated {
        Some(_) => Ok(()),
        None => store::settle_unflushed(files, data, node.config.durability, node.begun.boot),
    };
    if let Err(error) = unmarked.and(settled) {
        tracing::warn!(
            %error,
            "the files that mark the data as restored or incomplete could not be removed: after \
            the next startup, all pools will answer with overflow numbers for one more lockout"
        );
    }
}

/// Records that all data is on the disk. Runs after all shards have ended and have saved their
/// state.
pub fn end(files: &impl Files, node: &Node) {
    if !node.answers_wait() || node.config.journal.replicated.is_some() {
        return;
    }
    if let Err(error) = store::end_unflushed(files, &node.config.data) {
        tracing::warn!(
            %error,
            "the clean shutdown could not be recorded: after the machine's next boot, all pools \
            will answer with overflow numbers for the longest lifetime"
        );
    }
}
