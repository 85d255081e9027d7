//! This node's records of other nodes' journals: `peers.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "peers.json";

/// The names and last known positions of other shards' journals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenJournals {
    /// For each shard: the name of its data directory, and the number of its journal's next group.
    pub shards: BTreeMap<u16, (String, u64)>,
}

impl SeenJournals {
    /// Reads `peers.json` in the directory `data`. If the file does not exist, there are no
    /// records.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or parsed.
    pub fn read(files: &impl Files, data: &Path) -> Result<Self, FileError> {
        Ok(read_json(files, &data.join(FILE))?.unwrap_or_default())
    }

    /// Writes `peers.json` durably.
    ///
    /// # Errors
    /// Returns [`FileError`]; the old file then remains.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }
}
