//! The buckets of the cluster's map that this data directory has served: `cluster-map.json`.
//!
//! A bucket that arrives at a node by a new map was served by another one, whose lockouts are
//! unknown here. Its pools, including those added later, are held for a lifetime, unless the bucket
//! was moved here with its lockouts. The file records the time of its arrival.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringwell_directory::{BUCKETS, BucketHolds, Owner, Owners};
use serde::{Deserialize, Serialize};

use crate::lifetimes::Lifetimes;
use crate::lists::Lists;

use super::files::{FileError, Files, read_json, write_json};

const FILE: &str = "cluster-map.json";

/// The file with the [`Lifetimes`] of the lists that were served. Every node has one.
const LIFETIMES: &str = "lifetimes.json";

/// The buckets that a data directory has served, and by which map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedMap {
    /// The version of the map.
    pub version: u64,
    /// The buckets.
    pub buckets: BTreeSet<u16>,
    /// The owners of all buckets, with the moves since the map's version began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
    /// Released buckets that no node has accepted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
    /// Buckets that arrived without the lockouts of the previous owner.
    #[serde(default, skip_serializing_if = "BucketHolds::is_empty")]
    pub holds: BucketHolds,
    /// Buckets that were served after they had become another node's, if it does not hold them yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stale: BTreeSet<u16>,
    /// Owners that took buckets back, because this node had not accepted them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub abandoned: BTreeMap<u16, Owner>,
    /// Digests of the lists of pools that were served; `None` in files of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lists: Option<Lists>,
    /// Only in files of older releases, which had no file of [`Lifetimes`].
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
    /// Held pools, and the end of each hold.
    pub holds: Vec<(u64, u64)>,
    /// The shards that owned them, in the same order. Empty in files of older releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<u16>,
    /// The largest request that the next owner's node accepts; `None` if it has an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<usize>,
}

impl ServedMap {
    /// The state that a node serves under these owners, if `is_own` selects its shards. Keeps only
    /// the holds of its own buckets and of those that leave.
    pub fn of(
        owners: Owners,
        is_own: impl Fn(u16) -> bool,
        leaving: Vec<Leaving>,
        mut holds: BucketHolds,
        stale: BTreeSet<u16>,
        lists: Lists,
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
            lists: Some(lists),
            lifetimes: None,
        }
    }

    /// The state that `data` served last; `None` if it was never part of a cluster.
    ///
    /// # Errors
    /// [`FileError`] if there is a file that cannot be read or understood.
    pub fn read(files: &impl Files, data: &Path) -> Result<Option<Self>, FileError> {
        read_json(files, &data.join(FILE))
    }

    /// Writes the file durably.
    ///
    /// # Errors
    /// [`FileError`]; then the old file stays.
    pub fn write(&self, files: &impl Files, data: &Path) -> Result<(), FileError> {
        write_json(files, data, FILE, self)
    }
}

/// The lifetimes of the lists that `data` has served; `None` if no release has recorded them.
///
/// # Errors
/// [`FileError`] if there is a file that cannot be read or understood.
pub fn read_lifetimes(files: &impl Files, data: &Path) -> Result<Option<Lifetimes>, FileError> {
    read_json(files, &data.join(LIFETIMES))
}

/// Durably records the lifetimes of the lists that `data` has served.
///
/// # Errors
/// [`FileError`]; then the old file stays.
pub fn write_lifetimes(
    files: &impl Files,
    data: &Path,
    lifetimes: Lifetimes,
) -> Result<(), FileError> {
    files.make_directory(data)?;
    write_json(files, data, LIFETIMES, &lifetimes)
}
