//! The buckets of the cluster's map that were served from this data directory: `cluster-map.json`.
//!
//! If a new map assigns a bucket to this node, another node served the bucket before. That node's
//! lockouts are unknown here. The bucket's pools, including those added later, are held for a
//! lifetime, unless the bucket was moved here together with its lockouts. The file records the time
//! when the bucket arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringwell_directory::{BUCKETS, BucketHolds, Owner, Owners};
use serde::{Deserialize, Serialize};

use crate::lifetimes::Lifetimes;
use crate::lists::Lists;

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "cluster-map.json";

/// The file with the [`Lifetimes`] of the lists of pools that were served. Every node has this
/// file.
const LIFETIMES: &str = "lifetimes.json";

/// The buckets that were served from a data directory, and the map that assigned them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedMap {
    /// The version of the map.
    pub version: u64,
    /// The buckets.
    pub buckets: BTreeSet<u16>,
    /// The owners of all buckets, including the moves since this version of the map came into use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
    /// Released buckets that no node has accepted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
    /// The holds of buckets that arrived without their previous owner's lockouts.
    #[serde(default, skip_serializing_if = "BucketHolds::is_empty")]
    pub holds: BucketHolds,
    /// Buckets that were served although they already belonged to another node, unless that node
    /// now holds their pools.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stale: BTreeSet<u16>,
    /// Owners that took a bucket back, because this node had not accepted it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abandoned: BTreeMap<u16, Owner>,
    /// Digests of the lists of pools that were served; `None` in files from older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<Lists>,
    /// The wall-clock time, in milliseconds, at which `lists` were served for the last time as far
    /// as this file shows. `None` if the node had not begun to serve, or in files from older
    /// releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_at: Option<u64>,
    /// Present only in files from older releases, which did not write a separate file of
    /// [`Lifetimes`].
    #[serde(default, skip_serializing)]
    pub lifetimes: Option<Lifetimes>,
}

/// Released buckets whose next owner has not confirmed that it has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaving {
    /// The next owner.
    pub to: u16,
    /// The buckets.
    pub buckets: Vec<u16>,
    /// Held pools, with the end of each hold.
    pub holds: Vec<(u64, u64)>,
    /// The shards that owned the buckets, in the order of `buckets`. Empty in files from older
    /// releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<u16>,
    /// The largest request that the next owner's node accepts, in bytes; `None` if that node runs
    /// an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<usize>,
}

impl ServedMap {
    /// Returns the record of a node whose buckets are determined by `owners`. `is_own` returns
    /// whether a shard belongs to the node. Only the holds of the node's own buckets and of buckets
    /// in transit are kept.
    pub fn of(
        owners: Owners,
        is_own: impl Fn(u16) -> bool,
        leaving: Vec<Leaving>,
        mut holds: BucketHolds,
        stale: BTreeSet<u16>,
    ) -> Self {
        let own = |bucket: &u16| owners.get(*bucket).is_some_and(|owner| is_own(owner.shard));
        let buckets: BTreeSet<u16> = (0..BUCKETS).filter(own).collect();
        holds.retain(|of| {
            buckets.contains(&of) || leaving.iter().any(|it| it.buckets.contains(&of))
        });
        let version = owners.version();
        Self {
            version,
            buckets,
            owners: Some(owners),
            leaving,
            holds,
            stale,
            abandoned: BTreeMap::new(),
            lists: None,
            served_at: None,
            lifetimes: None,
        }
    }

    /// Returns the path of `cluster-map.json` in `data`.
    #[must_use]
    pub fn path(data: &Path) -> PathBuf {
        data.join(FILE)
    }

    /// Reads `cluster-map.json` in `data`. Returns `None` if the directory was never used in a
    /// cluster.
    ///
    /// # Errors
    /// Returns [`FileError`] if the file exists but cannot be read or parsed.
    pub fn read(files: &impl Files, data: &Path) -> Result<Option<Self>, FileError> {
        read_json(files, &Self::path(data))
    }

    /// Writes `cluster-map.json` durably.
    ///
    /// # Errors
    /// Returns [`FileError`]; the old file then remains.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }
}

/// Returns the [`Lifetimes`] of the lists of pools that were served from `data`; `None` if they
/// were never recorded.
///
/// # Errors
/// Returns [`FileError`] if the file exists but cannot be read or parsed.
pub fn read_lifetimes(files: &impl Files, data: &Path) -> Result<Option<Lifetimes>, FileError> {
    read_json(files, &data.join(LIFETIMES))
}

/// Durably records the `lifetimes` of the lists of pools that were served from `data`.
///
/// # Errors
/// Returns [`FileError`]; the old file then remains.
pub fn write_lifetimes(
    files: &impl Files,
    data: &Path,
    lifetimes: Lifetimes,
) -> Result<(), FileError> {
    files.make_directory(data)?;
    write_json(files, data, LIFETIMES, &lifetimes)
}
