//! Buckets about whose moves this node and other nodes disagree.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ringwell_directory::Owner;

use super::Node;
use crate::canary::{Bug, planted};

impl Node {
    /// Returns the buckets that this node may have served although they already belonged to another
    /// node. Once the owner of such a bucket holds the bucket's pools, the bucket is no longer
    /// returned.
    #[must_use]
    pub fn stale(&self) -> Vec<u16> {
        let stale = self.stale.read().unwrap_or_else(PoisonError::into_inner);
        stale.iter().copied().collect()
    }

    /// Adds buckets to [`Self::stale`].
    pub fn add_stale(&self, buckets: &[u16]) {
        self.stale.write().unwrap_or_else(PoisonError::into_inner).extend(buckets);
    }

    /// Removes buckets from [`Self::stale`].
    pub fn settle_stale(&self, held: &[u16]) {
        let mut stale = self.stale.write().unwrap_or_else(PoisonError::into_inner);
        stale.retain(|bucket| !held.contains(bucket));
    }

    /// Returns the owners that took a bucket back, because this node had not accepted it.
    #[must_use]
    pub fn abandoned(&self) -> BTreeMap<u16, Owner> {
        self.abandoned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds owners to [`Self::abandoned`].
    pub fn add_abandoned(&self, buckets: &[(u16, Owner)]) {
        let mut abandoned = self.abandoned.write().unwrap_or_else(PoisonError::into_inner);
        abandoned.extend(buckets.iter().copied());
    }

    /// Whether other nodes have recorded that the bucket moved away and back, but this node has
    /// not. In that case, this node may still receive the bucket's state.
    #[must_use]
    pub fn is_returned(&self, bucket: u16) -> bool {
        self.returned.read().unwrap_or_else(PoisonError::into_inner).contains(&bucket)
    }

    /// Marks buckets as returned; see [`Self::is_returned`].
    pub fn add_returned(&self, buckets: &[u16]) {
        self.returned.write().unwrap_or_else(PoisonError::into_inner).extend(buckets);
    }

    /// Records the version of the map that another node uses.
    pub fn note_version(&self, version: u64) {
        self.newest_version.fetch_max(version, Ordering::Relaxed);
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
    /// them was not known before.
    pub fn add_claimed(&self, buckets: &[u16]) -> bool {
        let mut claimed = self.claimed.write().unwrap_or_else(PoisonError::into_inner);
        let before = claimed.len();
        claimed.extend(buckets);
        claimed.len() > before
    }

    /// Undoes [`Self::add_claimed`], because this node has taken the buckets back.
    pub fn forget_claimed(&self, buckets: &[u16]) {
        let mut claimed = self.claimed.write().unwrap_or_else(PoisonError::into_inner);
        claimed.retain(|bucket| !buckets.contains(bucket));
    }

    /// Whether [`Self::add_claimed`] has added the bucket.
    #[must_use]
    pub fn is_claimed(&self, bucket: u16) -> bool {
        self.claimed.read().unwrap_or_else(PoisonError::into_inner).contains(&bucket)
    }
}
