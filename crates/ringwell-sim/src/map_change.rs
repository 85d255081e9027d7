//! Changes of the map: the operator gives a new cluster file to the nodes, one after another.

use std::rc::Rc;

use ringwell_config::Durability;
use ringwell_core::PoolId;
use ringwell_directory::{BUCKETS, bucket};

use crate::event::Event;
use crate::fault::Kind;
use crate::pace::SECOND;
use crate::world::World;

impl World {
    /// Moves a pool to another shard with a new map. First the node that loses the pool restarts,
    /// then the node that gets it; with [`Kind::GainsFirst`], in the opposite order. Does nothing
    /// while a move of buckets is in progress, because the new map would not include that move.
    pub(crate) fn change_map(&mut self) {
        let shards = self.cluster.homes.len();
        if self.map_change.is_some() || shards < 2 {
            return;
        }
        let random = self.faults.stream(Kind::MapChange);
        let (which, to) = (random.next(), random.index(shards));
        let pause = random.below(2 * SECOND);
        let mut owners = self.owners_now();
        let which = usize::try_from(which % owners.len() as u64).unwrap_or(0);
        let Some((&pool, &from)) = owners.iter().nth(which) else { return };
        let to = u16::try_from(to).unwrap_or(0);
        let is_moving = Rc::strong_count(&self.commands) > 1;
        if from == to || is_moving || self.now() < self.shortened_until {
            return;
        }
        owners.insert(pool, to);
        let map = self.cluster.change(owners);
        let (loses, gets) = (self.cluster.home(from), self.cluster.home(to));
        self.tell(loses, &[], || format!("pool {pool} moves from shard {from} to shard {to}"));
        // With durability `memory`, no node holds the pools that a new map gives to it.
        let can_reverse = loses != gets
            && self.durability != Durability::Memory
            && self.nodes[gets].before_moves.is_none();
        let is_reversed = can_reverse && self.faults.strikes(Kind::GainsFirst);
        let (first, second) = if is_reversed { (gets, loses) } else { (loses, gets) };
        if is_reversed {
            let gained = bucket(PoolId(pool));
            let before = (0..BUCKETS).filter(|bucket| *bucket != gained).collect();
            self.nodes[gets].before_moves = Some(before);
        }
        self.nodes[first].map = map;
        self.stop(first, false);
        if first != second {
            self.map_change = Some(second);
            self.queue.add(self.now() + 1 + pause, Event::MapArrives(second));
        }
    }

    /// Restarts the second of the two nodes whose buckets the newest map changes.
    pub(crate) fn map_arrives(&mut self, node: usize) {
        self.map_change = None;
        self.nodes[node].map = self.cluster.newest();
        self.stop(node, false);
    }

    /// Whether a new map is being distributed to the nodes, or may not be distributed at present.
    pub(crate) fn is_in_between(&self) -> bool {
        self.map_change.is_some() || self.now() < self.shortened_until
    }

    /// Distributes the newest map to every node. A node with an older map would send rows to the
    /// wrong shard.
    pub(crate) fn roll_out(&mut self) {
        let newest = self.cluster.newest();
        for node in 0..self.nodes.len() {
            if self.nodes[node].map.version < newest.version {
                self.nodes[node].map = Rc::clone(&newest);
                self.stop(node, false);
            }
        }
    }
}
