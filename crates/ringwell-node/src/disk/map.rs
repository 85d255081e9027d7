//! Which buckets of the cluster's map this data directory has served: `cluster-map.json`.
//!
//! A bucket that comes to a node by a new map was served by another one, whose lockouts this node
//! does not know. Its pools hand nothing out for a lifetime, unless the bucket was moved here with
//! its lockouts; pools that appear later neither. The file says since when.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ringwell_directory::{BucketHolds, Owners};
use serde::{Deserialize, Serialize};

use crate::handover::Leaving;

use super::file::{FileError, read_json, write_json};

const FILE: &str = "cluster-map.json";

/// The buckets that a data directory has served, by which map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedMap {
    /// Which state of the map it was.
    pub version: u64,
    /// The buckets.
    pub buckets: BTreeSet<u16>,
    /// The owners of all buckets, with the moves since the map's version began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
    /// Buckets that were given up, and that nobody has taken yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leaving: Vec<Leaving>,
    /// Buckets that came without the lockouts of the owner before.
    #[serde(default, skip_serializing_if = "BucketHolds::is_empty")]
    pub holds: BucketHolds,
}

impl ServedMap {
    /// What `data` has served last; `None` if it was never part of a cluster.
    ///
    /// # Errors
    /// [`FileError`] if there is a file that cannot be read or understood.
    pub fn read(data: &Path) -> Result<Option<Self>, FileError> {
        read_json(&path(data))
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// [`FileError`]; the file before stays then.
    pub fn write(&self, data: &Path) -> Result<(), FileError> {
        write_json(data, FILE, self)
    }
}

fn path(data: &Path) -> PathBuf {
    data.join(FILE)
}

#[cfg(test)]
#[test]
fn what_was_served_is_read_again_and_damage_is_told() {
    let data = tempfile::TempDir::new().unwrap();
    assert_eq!(ServedMap::read(data.path()).unwrap(), None);
    for version in 1..3 {
        let buckets = (0..512).collect();
        let holds = BucketHolds::default();
        let map = ServedMap { version, buckets, owners: None, leaving: Vec::new(), holds };
        map.write(data.path()).unwrap();
        assert_eq!(ServedMap::read(data.path()).unwrap(), Some(map));
    }
    std::fs::write(path(data.path()), "{\"version\":3").unwrap();
    let error = ServedMap::read(data.path()).unwrap_err().to_string();
    assert!(error.contains("cluster-map.json"), "{error}");
}
