//! Reads `cluster-map.json`, the file in which a node records the buckets that it serves.

use std::collections::BTreeMap;

use ringwell_core::PoolId;
use ringwell_directory::{Owners, bucket};

use crate::world::World;

impl World {
    /// Returns the bucket owners that a node reads at startup. These are the owners recorded on its
    /// disk, if they have the same version as its cluster file, or otherwise the owners in that
    /// file.
    pub(crate) fn owners_at_start(&self, node: usize) -> Owners {
        let served = self.nodes[node].files.served();
        let by_file = self.nodes[node].map.owners(self.cluster.homes.len());
        let of_file = served.as_ref().and_then(|served| served.owners.as_ref());
        let of_file = of_file.filter(|owners| owners.version() == by_file.version());
        of_file.unwrap_or(&by_file).clone()
    }

    /// Returns the owner of each pool, as the operator sees it. A shard is the owner if it is
    /// recorded as such on its own node's disk. If there is no such shard, the owner is the shard
    /// that the pool is moving to. If the pool is not moving either, the newest cluster file names
    /// its owner.
    pub(crate) fn owners_now(&self) -> BTreeMap<u64, u16> {
        let mut found = self.cluster.newest().owners.clone();
        let known = |node: usize| (self.owners_at_start(node), self.nodes[node].files.served());
        let nodes = (0..self.nodes.len()).map(|node| (node, known(node)));
        let nodes: Vec<_> = nodes.collect();
        for (pool, shard) in &mut found {
            let of = bucket(PoolId(*pool));
            for (_, (owners, served)) in &nodes {
                let leaving = served.iter().filter(|served| served.version == owners.version());
                let leaving = leaving.flat_map(|served| &served.leaving);
                if let Some(on_its_way) = { leaving }.find(|it| it.buckets.contains(&of)) {
                    *shard = on_its_way.to;
                }
            }
            // Restored data may be from before a move, so several nodes may have recorded that they
            // own the bucket.
            let own = nodes.iter().filter_map(|(node, (owners, _))| {
                owners.get(of).filter(|own| self.cluster.home(own.shard) == *node)
            });
            if let Some(own) = own.max_by_key(|own| own.moves) {
                *shard = own.shard;
            }
        }
        found
    }
}
