//! What a node has written down of what it serves, `cluster-map.json`: as
//! `ringwell-node/src/disk/map.rs`.

use std::collections::{BTreeMap, BTreeSet};

use ringwell_core::PoolId;
use ringwell_directory::{BUCKETS, BucketHolds, Owners, bucket};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, Name, Sort, Trouble};
use crate::store::{Io, rename};
use crate::world::World;

const MAP: Name = Name { shard: u16::MAX, sort: Sort::Map, number: 0 };

/// The buckets that a node serves, by which owners, and what it has given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Served {
    pub(crate) version: u64,
    pub(crate) buckets: BTreeSet<u16>,
    pub(crate) owners: Owners,
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) holds: BucketHolds,
}

/// Buckets that were given up, and that nobody has confirmed to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaving {
    pub(crate) to: u16,
    pub(crate) buckets: Vec<u16>,
    pub(crate) holds: Vec<(u64, u64)>,
}

impl Served {
    /// What a node with these shards serves by these owners, and which buckets it holds of those.
    pub(crate) fn new(
        owners: Owners,
        shards: &[u16],
        leaving: Vec<Leaving>,
        mut holds: BucketHolds,
    ) -> Self {
        let own = |bucket: &u16| owners.get(*bucket).is_some_and(|o| shards.contains(&o.shard));
        let buckets: BTreeSet<u16> = (0..BUCKETS).filter(own).collect();
        holds.retain(|of| {
            buckets.contains(&of) || leaving.iter().any(|it| it.buckets.contains(&of))
        });
        Self { version: owners.version(), buckets, owners, leaving, holds }
    }

    /// `None` if there is none.
    pub(crate) fn read(disk: &Disk) -> Option<Self> {
        let mut bytes = vec![0; usize::try_from(disk.len(MAP)).ok()?];
        disk.read(MAP, 0, &mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes it durably.
    pub(crate) fn keep(&self, io: &mut Io<'_>) -> Result<(), Trouble> {
        let draft = Name { shard: u16::MAX, sort: Sort::Unfinished, number: 0 };
        if io.disk.exists(draft) {
            io.disk.remove(io.faults, draft)?;
        }
        io.disk.create(io.faults, draft)?;
        let bytes = serde_json::to_vec(self).map_err(|_| Trouble::Io)?;
        io.disk.write(io.faults, draft, 0, &bytes)?;
        io.disk.flush(io.faults, draft)?;
        rename(io, draft, MAP)
    }
}

impl World {
    /// The owners by which a node starts: those of its disk if its cluster file has their version.
    pub(crate) fn owners_at_start(&self, node: usize) -> (Owners, Option<Served>) {
        let served = Served::read(&self.nodes[node].disk);
        let by_file = self.nodes[node].map.owners(self.cluster.homes.len());
        let of_file = served.as_ref().map(|served| &served.owners);
        let of_file = of_file.filter(|owners| owners.version() == by_file.version());
        (of_file.unwrap_or(&by_file).clone(), served)
    }

    /// What an operator finds who looks which shard owns each pool: on the disk of its owner, else
    /// where it is on its way to, else in the newest cluster file.
    pub(crate) fn owners_now(&self) -> BTreeMap<u64, u16> {
        let mut found = self.cluster.newest().owners.clone();
        let nodes = (0..self.nodes.len()).map(|node| (node, self.owners_at_start(node)));
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
            for (node, (owners, _)) in &nodes {
                let own = owners.get(of).filter(|own| self.cluster.home(own.shard) == *node);
                if let Some(own) = own {
                    *shard = own.shard;
                }
            }
        }
        found
    }
}
