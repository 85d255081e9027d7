//! Buckets whose moves this node and other nodes have recorded differently.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ringwell_directory::Owner;

use super::Node;
use crate::canary::{Bug, planted};
use crate::locks::{read, write};

impl Node {
    /// Returns the buckets that this node may have served although they already belonged to another
    /// node. Once the owner of such a bucket holds the bucket's pools, the bucket is no longer
    /// returned.
    #[must_use]
    pub fn stale(&self) -> Vec<u16> {
        let stale = read(&self.stale);
        stale.iter().copied().collect()
    }

    /// Adds buckets to [`Self::stale`].
    pub fn add_stale(&self, buckets: &[u16]) {
        write(&self.stale).extend(buckets);
    }

    /// Removes buckets from [`Self::stale`].
    pub fn settle_stale(&self, held: &[u16]) {
        let mut stale = write(&self.stale);
        stale.retain(|bucket| !held.contains(bucket));
    }

    /// Returns the owners that took a bucket back, because this node had not accepted it.
    #[must_use]
    pub fn abandoned(&self) -> BTreeMap<u16, Owner> {
        read(&self.abandoned).clone()
    }

    /// Adds owners to [`Self::abandoned`].
    pub fn add_abandoned(&self, buckets: &[(u16, Owner)]) {
        let mut abandoned = write(&self.abandoned);
        abandoned.extend(buckets.iter().copied());
    }

    /// Whether other nodes have recorded that the bucket moved away and back, but this node has
    /// not. In that case, this node may still receive the bucket's state.
    #[must_use]
    pub fn is_returned(&self, bucket: u16) -> bool {
        read(&self.returned).contains(&bucket)
    }

    /// Marks buckets as returned; see [`Self::is_returned`].
    pub fn add_returned(&self, buckets: &[u16]) {
        write(&self.returned).extend(buckets);
    }

    /// Records the version of the map that another node uses. Returns whether this version is newer
    /// than all versions reported before.
    pub fn note_version(&self, version: u64) -> bool {
        self.newest_version.fetch_max(version, Ordering::Relaxed) < version
    }

    /// If another node uses a newer version of the map than this node, returns both versions.
    #[must_use]
    pub fn outdated(&self) -> Option<(u64, u64)> {
        let newest = self.newest_version.load(Ordering::Relaxed);
        let own = self.owners()?.version();
        (newest > own).then_some((own, newest))
    }

    /// Checks that no other node has reported a newer version of the map than `own`. Otherwise,
    /// this node must not take buckets, because they may belong to another node by now.
    ///
    /// # Errors
    /// The reason, as text for the operator.
    pub fn check_newest(&self, own: u64) -> Result<(), String> {
        let newest = self.newest_version.load(Ordering::Relaxed);
        if newest <= own || planted(Bug::NewerMapIgnored) {
            return Ok(());
        }
        Err(format!(
            "restart that node first: its cluster file has version {own}, but another node \
            uses version {newest}"
        ))
    }

    /// Adds buckets that belong to this node only according to other nodes. Returns whether any of
    /// them is new.
    pub fn add_claimed(&self, buckets: &[u16]) -> bool {
        let mut claimed = write(&self.claimed);
        let before = claimed.len();
        claimed.extend(buckets);
        claimed.len() > before
    }

    /// Undoes [`Self::add_claimed`], because this node has taken the buckets back.
    pub fn forget_claimed(&self, buckets: &[u16]) {
        let mut claimed = write(&self.claimed);
        claimed.retain(|bucket| !buckets.contains(bucket));
    }

    /// Whether [`Self::add_claimed`] has added the bucket.
    #[must_use]
    pub fn is_claimed(&self, bucket: u16) -> bool {
        read(&self.claimed).contains(&bucket)
    }
}
