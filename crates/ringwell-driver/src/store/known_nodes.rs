//! The nodes of the cluster file that was last in use: `cluster-nodes.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "cluster-nodes.json";

/// A node of a cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNode {
    /// The node's name.
    pub name: String,
    /// The address at which other nodes reach it.
    pub link: String,
    /// The node's shards.
    pub shards: Vec<u16>,
}

/// Reads `cluster-nodes.json` in the directory `data`. Returns no nodes if the file does not exist.
///
/// # Errors
/// Returns [`FileError`] if the file exists but cannot be read or parsed.
pub fn read_nodes(files: &impl Files, data: &Path) -> Result<Vec<KnownNode>, FileError> {
    Ok(read_json(files, &data.join(FILE))?.unwrap_or_default())
}

/// Writes `cluster-nodes.json` durably.
///
/// # Errors
/// Returns [`FileError`]; the old file then remains.
pub fn write_nodes(files: &impl Files, data: &Path, nodes: &[KnownNode]) -> Result<(), FileError> {
    files.make_directory(data)?;
    write_json(files, data, FILE, &nodes)
}
