//! Shards whose history is lost to the cluster, because the cluster file no longer contains them or
//! gives them to a node without their journals.
//!
//! Look-ups query the shards in the cluster file. A shard that is in the file but does not answer
//! prevents wrong answers, because it may have made any allocation. A shard that is not in the file
//! must be replaced by a record of what it may have done. Source: docs/spec/journal.md, "History".

use std::collections::BTreeSet;

use ringwell_directory::{BUCKETS, Owners};

use crate::canary::{Bug, planted};

/// Returns the buckets that, when this data directory was last served, belonged to shards whose
/// history can no longer be queried. `served` contains the owners at that time, `shards` is the
/// number of shards in the cluster file, and this node has the shards `own` and the journals of the
/// shards `on_disk`.
pub(super) fn buckets(served: &Owners, shards: u16, own: &[u16], on_disk: &[u16]) -> BTreeSet<u16> {
    let is_lost = |shard: u16| {
        let is_new = own.contains(&shard) && !on_disk.contains(&shard);
        shard >= shards || is_new
    };
    let of_lost = |bucket: &u16| served.get(*bucket).is_some_and(|owner| is_lost(owner.shard));
    let buckets: BTreeSet<u16> = (0..BUCKETS).filter(of_lost).collect();
    if buckets.is_empty() || planted(Bug::DroppedForgotten) {
        return BTreeSet::new();
    }
    let shards: BTreeSet<u16> =
        buckets.iter().filter_map(|bucket| Some(served.get(*bucket)?.shard)).collect();
    tracing::warn!(
        ?shards,
        buckets = buckets.len(),
        "these shards owned buckets, but the cluster file no longer contains them, or gives them \
         to this node, which does not have their journals. Their visitors are unknown: look-ups of \
         numbers in these buckets answer \"not kept\" for all times before now. If a node with \
         these shards still runs, stop it at once"
    );
    buckets
}

#[cfg(test)]
mod tests {
    use ringwell_directory::Placement;

    use super::*;

    #[test]
    fn buckets_are_lost_with_the_shards_that_no_node_has_any_more() {
        let mut served = Owners::at_first(1, &Placement::even(4).unwrap());
        let of = |shards: std::ops::Range<u16>| (shards.start * 256..shards.end * 256).collect();
        let none: BTreeSet<u16> = BTreeSet::new();
        assert_eq!(buckets(&served, 4, &[0, 1], &[0, 1]), none);
        assert_eq!(buckets(&served, 3, &[0, 1], &[0, 1]), of(3..4));
        assert_eq!(buckets(&served, 2, &[0, 1], &[0, 1]), of(2..4));
        // Another node's shards, without and with their journals.
        assert_eq!(buckets(&served, 4, &[0, 1, 2], &[0, 1]), of(2..3));
        assert_eq!(buckets(&served, 4, &[0, 1, 2], &[0, 1, 2]), none);
        // The buckets have moved away before.
        (768..1_024).for_each(|bucket| served.give(bucket, 0));
        assert_eq!(buckets(&served, 3, &[0, 1], &[0, 1]), none);
    }
}
