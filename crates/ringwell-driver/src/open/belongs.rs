//! Checks whether this process may serve a data directory, and marks the journals in it that the
//! process does not read.

use std::path::{Path, PathBuf};

use super::read::{Read, found_journals};
use crate::store::{FileError, Files, Identity, ServedMap, Settings, mark_restored};

/// The data directory belongs to a node of a cluster, but there is no cluster file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} shows that this data directory belongs to a node of a cluster. Without the cluster file, \
     numbers of the other nodes' visitors would be handed out again: start with --cluster and \
     --node (RINGWELL_CLUSTER, RINGWELL_NODE), as before. To leave the cluster, use a new version \
     of the cluster file that lists only this node (docs/operations.md, \"From a cluster to one \
     machine\")",
    file.display()
)]
pub struct OfCluster {
    file: PathBuf,
}

/// Returns an error if `data` belongs to a node of a cluster. Other nodes may then have handed out
/// numbers from any pool, and may still do so. Such data must not be served without the cluster
/// file.
///
/// # Errors
/// [`FileError`]
pub fn of_cluster(files: &impl Files, data: &Path) -> Result<Option<OfCluster>, FileError> {
    // With durability `memory`, an embedded engine may have no data directory.
    if data.as_os_str().is_empty() || ServedMap::read(files, data)?.is_none() {
        return Ok(None);
    }
    Ok(Some(OfCluster { file: ServedMap::path(data) }))
}

/// Marks the journals that exist. Like journals that were restored from a copy, they will lack this
/// process's allocations, which exist only in memory.
pub(super) fn mark_unread(
    files: &impl Files,
    settings: &Settings,
    on_disk: &[u16],
) -> Result<(), FileError> {
    if on_disk.is_empty() {
        return Ok(());
    }
    mark_restored(files, &settings.data).map_err(|error| {
        error.and(
            "a server with durability `memory` must mark the journals in its data directory, \
             because they will lack the numbers that it hands out: make the directory writable, \
             or set another one",
        )
    })
}

/// Returns the shards whose journals in `data` were not written by this data directory. These
/// journals may belong to another installation. Reads only the heads of the segments. Used by
/// programs that do not start a node.
///
/// # Errors
/// [`FileError`]
pub fn unnamed_journals(files: &impl Files, data: &Path) -> Result<Vec<u16>, FileError> {
    unnamed(files, data, found_journals(files, data)?.into_keys())
}

/// Warns of the journals in `reads` that this data directory did not write. A startup that was
/// interrupted leaves journals without a group, which are not reported.
pub(super) fn warn_of_unnamed<F: Files>(
    files: &F,
    settings: &Settings,
    reads: &[Read<F>],
) -> Result<(), FileError> {
    let written = reads.iter().filter(|read| !read.is_new() && read.journal().is_some());
    for shard in unnamed(files, &settings.data, written.map(|read| read.shard))? {
        tracing::warn!(
            shard,
            journal = %settings.shard_directory(shard.into()).display(),
            "the data directory contains a journal that it did not write. Its lockouts and its \
            history are used from now on. If it belongs to another installation, look-ups may name \
            that installation's visitors: stop the server, move the journal away, and restore a \
            backup"
        );
    }
    Ok(())
}

/// Returns those of the `found` journals that `identity.json` does not name.
fn unnamed(
    files: &impl Files,
    data: &Path,
    found: impl Iterator<Item = u16>,
) -> Result<Vec<u16>, FileError> {
    let known = Identity::read(files, data)?.map(|known| known.journals).unwrap_or_default();
    // Earlier releases did not write a list of journals.
    Ok(found.filter(|shard| !known.is_empty() && !known.contains_key(shard)).collect())
}
