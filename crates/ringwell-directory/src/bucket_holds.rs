//! Buckets that a node received without the previous owner's lockouts.
//!
//! None of their pools may hand out a number until those lockouts end. This includes pools that
//! appear later, because the list of pools may reach the node long after the map. A time is
//! therefore stored for each bucket, and a pool's lifetime is added once the pool is known. Times
//! are shard times of the node. Source: docs/spec/cluster.md, "Which buckets are new".

use std::collections::BTreeMap;

use ringwell_core::{Millis, PoolId};
use serde::{Deserialize, Serialize};

use crate::placement::bucket;

/// The hold on a bucket's pools. For each pool, it ends at `until` or at `since` plus the pool's
/// lifetime, whichever is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct BucketHold {
    /// Each pool is held for its own lifetime, counted from this time; zero if there is no such
    /// hold.
    pub since: Millis,
    /// Every pool is held until this time, regardless of its lifetime.
    pub until: Millis,
}

impl From<(u64, u64)> for BucketHold {
    fn from((since, until): (u64, u64)) -> Self {
        Self { since: Millis(since), until: Millis(until) }
    }
}

impl From<BucketHold> for (u64, u64) {
    fn from(hold: BucketHold) -> Self {
        (hold.since.0, hold.until.0)
    }
}

/// The holds of a node's buckets, including expired ones: at most one per bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketHolds(BTreeMap<u16, BucketHold>);

impl BucketHolds {
    /// Whether there are no holds, not even expired ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hold of one bucket, which may have expired.
    #[must_use]
    pub fn get(&self, bucket: u16) -> Option<BucketHold> {
        self.0.get(&bucket).copied()
    }

    /// The end of the hold on a pool with this lifetime; `None` if its bucket was never held.
    #[must_use]
    pub fn until(&self, pool: PoolId, lifetime: Millis) -> Option<Millis> {
        let BucketHold { since, until } = self.get(bucket(pool))?;
        Some(if since > Millis::ZERO { until.max(since + lifetime) } else { until })
    }

    /// Returns the latest [`BucketHold::since`] of all buckets.
    #[must_use]
    pub fn last_since(&self) -> Millis {
        self.0.values().map(|hold| hold.since).max().unwrap_or_default()
    }

    /// Adds a hold. If the bucket already has a hold, the later `since` and the later `until`
    /// apply.
    pub fn add(&mut self, bucket: u16, hold: BucketHold) {
        let known = self.0.entry(bucket).or_default();
        known.since = known.since.max(hold.since);
        known.until = known.until.max(hold.until);
    }

    /// Lengthens all holds after the clock leaps ahead, because the leap may be an error of the
    /// clock.
    pub fn lengthen(&mut self, by: Millis) {
        for hold in self.0.values_mut() {
            let later = |at: Millis| if at > Millis::ZERO { at + by } else { at };
            *hold = BucketHold { since: later(hold.since), until: later(hold.until) };
        }
    }

    /// Removes the holds of buckets that no longer belong to this node.
    pub fn retain(&mut self, is_kept: impl Fn(u16) -> bool) {
        self.0.retain(|bucket, _| is_kept(*bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_held_for_its_own_lifetime_whenever_it_appears() {
        let (pool, of) = (PoolId(7), bucket(PoolId(7)));
        let mut holds = BucketHolds::default();
        assert_eq!(holds.until(pool, Millis(50)), None);
        holds.add(of, BucketHold { since: Millis(1000), until: Millis::ZERO });
        assert_eq!(holds.until(pool, Millis(50)), Some(Millis(1050)));
        assert_eq!(holds.last_since(), Millis(1000));
        holds.add(of, BucketHold { since: Millis::ZERO, until: Millis(1060) });
        assert_eq!(holds.until(pool, Millis(50)), Some(Millis(1060)));
        assert_eq!(holds.until(pool, Millis(90)), Some(Millis(1090)));
        holds.lengthen(Millis(5));
        assert_eq!(holds.until(pool, Millis(90)), Some(Millis(1095)));
        let text = serde_json::to_string(&holds).unwrap();
        assert_eq!(text, format!("{{\"{of}\":[1005,1065]}}"));
        assert_eq!(serde_json::from_str::<BucketHolds>(&text).unwrap(), holds);
        holds.retain(|bucket| bucket != of);
        assert!(holds.is_empty());
    }
}
