//! This node's records of other nodes' journals: `peers.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "peers.json";

/// The identity and the last known position of a shard's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenJournals {
    /// By shard: the name of the data directory, and the number of its next group.
    pub shards: BTreeMap<u16, (String, u64)>,
}

impl SeenJournals {
    /// The records in `data`; none if there is no such file.
    ///
    /// # Errors
    /// [`FileError`] if there is a file that cannot be read or understood.
    pub fn read(files: &impl Files, data: &Path) -> Result<Self, FileError> {
        Ok(read_json(files, &data.join(FILE))?.unwrap_or_default())
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// [`FileError`]; then the old file stays.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }
}
