//! The data that all nodes of a run share: the pools, the shards, and the versions of the map.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use ringwell_config::{Cluster as ClusterFile, ClusterMap, ClusterNode, Listen, Secret};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{BUCKETS, Directory, Owners, PoolFields, RingPool, RingPoolKey, bucket};
use ringwell_driver::membership::Membership;

use crate::model::PoolRule;
use crate::random::Random;

/// The key of all ring pools.
pub(crate) const KEY: &str = "the-key-of-all-pools";

/// A map, which assigns an owner to each pool. In the simulator, no two pools share a bucket.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) version: u64,
    pub(crate) owners: BTreeMap<u64, u16>,
}

impl Map {
    /// Returns the owners of all buckets, before any bucket has moved.
    pub(crate) fn owners(&self, shards: usize) -> Owners {
        let mut buckets = vec![(0_u64, 0_u16); usize::from(BUCKETS)];
        let mut used = BTreeSet::new();
        for (pool, owner) in &self.owners {
            let bucket = bucket(PoolId(*pool));
            assert!(used.insert(bucket), "two pools share bucket {bucket}");
            buckets[usize::from(bucket)].1 = *owner;
        }
        let plain = serde_json::json!({
            "version": self.version, "shards": shards, "buckets": buckets,
        });
        serde_json::from_value(plain)
            .unwrap_or_else(|error| unreachable!("owners made here: {error}"))
    }
}

/// The machines, their shards, and the pools.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The node of each shard.
    pub(crate) homes: Vec<usize>,
    pub(crate) nodes: usize,
    /// The newest list of pools.
    pub(crate) pools: BTreeMap<u64, PoolRule>,
    /// The number of times that the list was changed.
    pub(crate) lists: u64,
    /// All maps of the run, in ascending order of their versions.
    pub(crate) maps: Vec<Rc<Map>>,
}

impl Cluster {
    /// Draws a cluster. Each of its pools has one of the `lifetimes`, which are in milliseconds.
    pub(crate) fn draw(random: &mut Random, lifetimes: [u64; 5], are_large: bool) -> Self {
        let nodes = [1, 2, 2, 3][random.index(4)];
        let mut homes = Vec::new();
        for node in 0..nodes {
            homes.extend((0..random.between(1, 3)).map(|_| node));
        }
        let mut pools = BTreeMap::new();
        let mut owners = BTreeMap::new();
        for index in 0..random.between(2, 8) {
            let id = 100 + index * 7;
            let lifetime_ms = lifetimes[random.index(5)];
            // The prefix of the pool's numbers. In every third pool, the numbers have a country
            // code other than 1.
            let plan = if index % 3 == 2 { 1_000_493_012_000_000 } else { 2_005_550_000 };
            let first = plan + index * 1000;
            let count = [2, 5, 10, 20, 40, 80][random.index(6)];
            // With so many numbers, a snapshot consists of many pieces.
            let count = if are_large { 700 + count } else { count };
            let numbers = (first..first + count).collect();
            pools.insert(id, PoolRule { lifetime_ms, numbers });
            owners.insert(id, u16::try_from(random.index(homes.len())).unwrap_or(0));
        }
        let maps = vec![Rc::new(Map { version: 1, owners })];
        Self { homes, nodes, pools, lists: 0, maps }
    }

    pub(crate) fn newest(&self) -> Rc<Map> {
        Rc::clone(&self.maps[self.maps.len() - 1])
    }

    pub(crate) fn shards_of(&self, node: usize) -> Vec<u16> {
        let of = (0..).zip(&self.homes).filter(|(_, home)| **home == node);
        of.map(|(shard, _)| shard).collect()
    }

    pub(crate) fn home(&self, shard: u16) -> usize {
        self.homes[usize::from(shard)]
    }

    /// Adds a map with these owners, and returns it.
    pub(crate) fn change(&mut self, owners: BTreeMap<u64, u16>) -> Rc<Map> {
        self.maps.push(Rc::new(Map { version: self.newest().version + 1, owners }));
        self.newest()
    }

    /// Returns the newest list of pools as the directory represents it, without the pools in
    /// `late`.
    pub(crate) fn ring_pools(&self, late: &BTreeSet<u64>) -> Vec<Arc<RingPool>> {
        let pool = |(id, rule): (&u64, &PoolRule)| {
            Arc::new(ring_pool(*id, rule.lifetime_ms, ranges(&rule.numbers)))
        };
        self.pools.iter().filter(|(id, _)| !late.contains(id)).map(pool).collect()
    }

    /// Returns the directory of a starting node, without the pools in `late`, which are added
    /// later.
    pub(crate) fn directory(&self, late: &BTreeSet<u64>) -> Directory {
        let shards = u16::try_from(self.homes.len()).unwrap_or(u16::MAX);
        let placement = self.newest().owners(self.homes.len()).placement();
        debug_assert_eq!(placement.shards(), shards, "the placement covers all shards");
        let made = Directory::with_placement(1, self.ring_pools(late), placement);
        made.unwrap_or_else(|faults| unreachable!("clashing pools: {faults:?}"))
    }

    /// Returns a node's membership in this map's cluster.
    pub(crate) fn membership(&self, map: &Map, node: usize) -> Membership {
        let listen = |port: usize| Listen::Tcp {
            host: "127.0.0.1".to_owned(),
            port: u16::try_from(port).unwrap_or(u16::MAX),
        };
        let of = |node: usize| ClusterNode {
            name: name(node),
            shards: self.shards_of(node),
            link: listen(9_000 + node),
            listen: vec![listen(8_000 + node)],
        };
        let nodes = (0..self.nodes).map(of).collect();
        let placement = map.owners(self.homes.len()).placement();
        let map = ClusterMap::new(map.version, nodes, placement);
        let map = map.unwrap_or_else(|| unreachable!("each shard belongs to one node"));
        let secret = Secret::parse("a-secret-of-this-run");
        let secret = secret.unwrap_or_else(|error| unreachable!("a secret made here: {error}"));
        let member = Membership::new(ClusterFile::of_map(map, secret), &name(node));
        member.unwrap_or_else(|| unreachable!("the node is in its cluster"))
    }

    pub(crate) fn lifetime_max_ms(&self) -> u64 {
        self.pools.values().map(|pool| pool.lifetime_ms).max().unwrap_or(0)
    }
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

fn ring_pool(id: u64, lifetime_ms: u64, numbers: Vec<NumberRange>) -> RingPool {
    let key = RingPoolKey::parse(KEY)
        .unwrap_or_else(|error| unreachable!("a key of ASCII letters: {error}"));
    let fields = PoolFields {
        id: PoolId(id),
        name: None,
        key,
        next_key: None,
        lifetime: Millis(lifetime_ms),
        numbers,
        overflow: None,
        tracking: None,
    };
    RingPool::new(fields).unwrap_or_else(|faults| unreachable!("pools made here: {faults:?}"))
}

/// Combines numbers, which must be in ascending order, into ranges.
pub(crate) fn ranges(numbers: &[u64]) -> Vec<NumberRange> {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let range = |run: &[u64]| {
        NumberRange::new(PromoNumber::from_code(run[0])?, u32::try_from(run.len()).ok()?)
    };
    runs.filter_map(range).collect()
}
