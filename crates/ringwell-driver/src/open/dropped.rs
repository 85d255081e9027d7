//! Shards whose history is lost to the cluster. The cluster file no longer contains these shards,
//! or gives them to a node without their journals.
//!
//! Look-ups query the shards in the cluster file. If a shard in the file does not answer, a look-up
//! takes into account that this shard may have made any allocation. A shard that is not in the file
//! must be replaced by a record of what it may have done. Source: docs/spec/journal.md, "History".

use std::collections::BTreeSet;

use ringwell_directory::{BUCKETS, Owners};

use crate::canary::{Bug, planted};

/// Returns the buckets of the shards whose history can no longer be queried, or `None` if there are
/// no such shards. The buckets belonged to these shards when this data directory was last served.
/// `served` contains the owners at that time, and `shards` is the number of shards in the cluster
/// file. This node has the shards in `own`, and the journals of the shards in `on_disk`.
pub(super) fn buckets(
    served: &Owners,
    shards: u16,
    own: &[u16],
    on_disk: &[u16],
) -> Option<BTreeSet<u16>> {
    let is_lost = |shard: &u16| {
        let is_new = own.contains(shard) && !on_disk.contains(shard);
        *shard >= shards || is_new
    };
    let lost: BTreeSet<u16> = (0..served.shards()).filter(is_lost).collect();
    if lost.is_empty() || planted(Bug::DroppedForgotten) {
        return None;
    }
    let of_lost =
        |bucket: &u16| served.get(*bucket).is_some_and(|owner| lost.contains(&owner.shard));
    let buckets: BTreeSet<u16> = (0..BUCKETS).filter(of_lost).collect();
    tracing::warn!(
        shards = ?lost,
        buckets = buckets.len(),
        "the cluster file no longer contains these shards, or gives them to this node, which does \
         not have their journals. Their visitors are unknown. For times before now, look-ups \
         answer \"not kept\" for all numbers in these shards' buckets. They give the same answer \
         for every other number whose last known lockout had ended, because the number may have \
         been in a pool of these shards. If a node with these shards still runs, stop it at once"
    );
    Some(buckets)
}

#[cfg(test)]
mod tests {
    use ringwell_directory::Placement;

    use super::*;

    #[test]
    fn buckets_are_lost_with_the_shards_that_no_node_has_any_more() {
        let mut served = Owners::at_first(1, &Placement::even(4).unwrap());
        let of = |shards: std::ops::Range<u16>| -> BTreeSet<u16> {
            (shards.start * 256..shards.end * 256).collect()
        };
        assert_eq!(buckets(&served, 4, &[0, 1], &[0, 1]), None);
        assert_eq!(buckets(&served, 3, &[0, 1], &[0, 1]), Some(of(3..4)));
        assert_eq!(buckets(&served, 2, &[0, 1], &[0, 1]), Some(of(2..4)));
        // Another node's shards, without and with their journals.
        assert_eq!(buckets(&served, 4, &[0, 1, 2], &[0, 1]), Some(of(2..3)));
        assert_eq!(buckets(&served, 4, &[0, 1, 2], &[0, 1, 2]), None);
        // The buckets have moved away before, but numbers may have been in the shard's pools.
        (768..1_024).for_each(|bucket| served.give(bucket, 0));
        assert_eq!(buckets(&served, 3, &[0, 1], &[0, 1]), Some(BTreeSet::new()));
    }
}
