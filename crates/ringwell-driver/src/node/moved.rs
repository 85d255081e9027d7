//! Buckets whose moves other nodes know differently.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use ringwell_directory::Owner;

use super::Node;

impl Node {
    /// Buckets that this node may have served after they had become another node's, and that the
    /// other node does not hold yet.
    #[must_use]
    pub fn stale(&self) -> Vec<u16> {
        let stale = self.stale.read().unwrap_or_else(PoisonError::into_inner);
        stale.iter().copied().collect()
    }

    /// Adds to [`Self::stale`].
    pub fn add_stale(&self, buckets: &[u16]) {
        self.stale.write().unwrap_or_else(PoisonError::into_inner).extend(buckets);
    }

    /// Removes from [`Self::stale`].
    pub fn settle_stale(&self, held: &[u16]) {
        let mut stale = self.stale.write().unwrap_or_else(PoisonError::into_inner);
        stale.retain(|bucket| !held.contains(bucket));
    }

    /// Owners that took buckets back, because this node had not accepted them.
    #[must_use]
    pub fn abandoned(&self) -> BTreeMap<u16, Owner> {
        self.abandoned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to [`Self::abandoned`].
    pub fn add_abandoned(&self, buckets: &[(u16, Owner)]) {
        let mut abandoned = self.abandoned.write().unwrap_or_else(PoisonError::into_inner);
        abandoned.extend(buckets.iter().copied());
    }

    /// Whether this node knows only from others that the bucket has moved away and back: the move
    /// may still bring the bucket's state.
    #[must_use]
    pub fn is_returned(&self, bucket: u16) -> bool {
        self.returned.read().unwrap_or_else(PoisonError::into_inner).contains(&bucket)
    }

    /// Adds to [`Self::is_returned`].
    pub fn add_returned(&self, buckets: &[u16]) {
        self.returned.write().unwrap_or_else(PoisonError::into_inner).extend(buckets);
    }

    /// Adds buckets that this node owns only according to others. Returns whether any is new.
    pub fn add_claimed(&self, buckets: &[u16]) -> bool {
        let mut claimed = self.claimed.write().unwrap_or_else(PoisonError::into_inner);
        let before = claimed.len();
        claimed.extend(buckets);
        claimed.len() > before
    }

    /// Undoes [`Self::add_claimed`]: this node has taken the buckets back.
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
