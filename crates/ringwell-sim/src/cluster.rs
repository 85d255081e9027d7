//! What all nodes of a run agree on: pools, shards, and the versions of the map.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, PromoNumber};

use crate::bug::Bug;
use crate::model::PoolRule;
use crate::random::Random;

/// Which shard owns each pool. A pool is a bucket of its own here.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) version: u64,
    pub(crate) owners: BTreeMap<u64, u16>,
}

impl Map {
    /// The pools of a shard, in the order of their indices within it.
    pub(crate) fn pools_of(&self, shard: u16) -> Vec<u64> {
        let of = self.owners.iter().filter(|(_, owner)| **owner == shard);
        of.map(|(pool, _)| *pool).collect()
    }

    /// Shard and index within it.
    pub(crate) fn place(&self, pool: u64) -> Option<(u16, u32)> {
        let shard = *self.owners.get(&pool)?;
        let index = self.pools_of(shard).iter().position(|other| *other == pool)?;
        Some((shard, u32::try_from(index).ok()?))
    }
}

/// The machines, their shards, and the pools.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The node of each shard.
    pub(crate) homes: Vec<usize>,
    pub(crate) nodes: usize,
    pub(crate) pools: BTreeMap<u64, PoolRule>,
    /// All maps so far, the newest last.
    pub(crate) maps: Vec<Rc<Map>>,
}

impl Cluster {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let nodes = [1, 2, 2, 3][random.index(4)];
        let mut homes = Vec::new();
        for node in 0..nodes {
            homes.extend((0..random.between(1, 3)).map(|_| node));
        }
        let mut pools = BTreeMap::new();
        let mut owners = BTreeMap::new();
        for index in 0..random.between(2, 8) {
            let id = 100 + index * 7;
            let lifetime_ms = [300, 500, 1_000, 2_000, 5_000][random.index(5)];
            let first = 2_005_550_000 + index * 1000;
            let count = [2, 5, 10, 20, 40, 80][random.index(6)];
            pools.insert(id, PoolRule { lifetime_ms, first, count, overflow: first + 999 });
            owners.insert(id, u16::try_from(random.index(homes.len())).unwrap_or(0));
        }
        let maps = vec![Rc::new(Map { version: 1, owners })];
        Self { homes, nodes, pools, maps }
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

    /// Adds a map that differs from the newest by one owner, or by nothing but its version.
    pub(crate) fn change(&mut self, moved: Option<(u64, u16)>) -> Rc<Map> {
        let newest = self.newest();
        let mut owners = newest.owners.clone();
        owners.extend(moved);
        self.maps.push(Rc::new(Map { version: newest.version + 1, owners }));
        self.newest()
    }

    /// What an engine is made of. Lifetimes are rounded up, as shard time is rounded down.
    pub(crate) fn specs(&self, map: &Map, shard: u16, bug: Option<Bug>) -> Vec<PoolSpec> {
        let rounding = u64::from(bug != Some(Bug::NoRounding));
        let spec = |id: u64| {
            let pool = self.pools.get(&id)?;
            let mut numbers = vec![range(pool.first, pool.count)?];
            if bug == Some(Bug::OverflowInRotation) {
                numbers.extend(range(pool.overflow, 1));
            }
            let lifetime = Millis(pool.lifetime_ms + rounding);
            Some(PoolSpec { id: PoolId(id), lifetime, numbers })
        };
        map.pools_of(shard).into_iter().filter_map(spec).collect()
    }

    pub(crate) fn lifetime_max_ms(&self) -> u64 {
        self.pools.values().map(|pool| pool.lifetime_ms).max().unwrap_or(0)
    }
}

fn range(first: u64, count: u64) -> Option<NumberRange> {
    NumberRange::new(PromoNumber::from_u64(first)?, u32::try_from(count).ok()?)
}
