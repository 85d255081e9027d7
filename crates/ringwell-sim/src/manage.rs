//! An operator changes the list of pools: lifetimes change, numbers come and go, and pools are
//! removed and added again.
//!
//! Numbers can move between the pools of all nodes once every node has served. The simulated
//! operator respects two rules. No new map gives a pool to another owner while a number may have a
//! lockout that is longer than its pool's lifetime. Such lockouts exist if the lifetime was
//! shortened, or if the number came from a pool with a longer lifetime. Conversely, no lifetime is
//! shortened, and no number moves to a pool with a shorter lifetime, while a pool may be held
//! because of unknown lockouts.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_driver::Platform;
use ringwell_driver::change::{self, ChangeError};

use crate::event::Event;
use crate::fault::Kind;
use crate::model::Violation;
use crate::pace::{MS, SECOND};
use crate::random::Random;
use crate::world::{Node, World};

/// The time within which a list reaches all nodes. Even if a node is also paused, it reads the list
/// within ten seconds, the permitted maximum.
const SPREAD_US: u64 = 6 * SECOND;

/// The pause before a list is read again, if a full disk prevented the change.
const LIST_AGAIN: Duration = Duration::from_secs(1);

impl World {
    /// Makes a change to the list of pools, as an operator would.
    pub(crate) fn manage(&mut self) {
        if self.is_listing {
            return;
        }
        let random = self.faults.stream(Kind::Manage);
        let (what, which, other, drawn) =
            (random.below(6), random.next(), random.next(), Random::new(random.next(), 7));
        let pools: Vec<u64> = self.cluster.pools.keys().copied().collect();
        let pool = pools[usize::try_from(which % pools.len() as u64).unwrap_or(0)];
        let other = pools[usize::try_from(other % pools.len() as u64).unwrap_or(0)];
        match what {
            0 => self.change_lifetime(pool, drawn),
            1 => self.shrink_pool(pool, drawn),
            2 => self.grow_pool(pool),
            3 => self.lend_numbers(pool, other, drawn),
            4 if pools.len() > 1 => self.send_pool_away(pool),
            _ => self.bring_pools_back(),
        }
        self.list_changes();
    }

    /// Moves numbers from one pool of this node to another, if the node has at least two pools.
    pub(crate) fn lend_at(&mut self, node: usize) {
        if self.is_listing {
            return;
        }
        let random = self.faults.stream(Kind::Manage);
        let (which, drawn) = (random.next(), Random::new(random.next(), 7));
        let owners = self.owners_now();
        let is_here =
            |pool: &&u64| owners.get(pool).is_some_and(|shard| self.cluster.home(*shard) == node);
        let mut own: Vec<u64> = self.cluster.pools.keys().filter(is_here).copied().collect();
        if own.len() > 1 {
            let turn = usize::try_from(which % own.len() as u64).unwrap_or(0);
            own.rotate_left(turn);
            self.lend_numbers(own[0], own[1], drawn);
            self.list_changes();
        }
    }

    pub(crate) fn list_changes(&mut self) {
        self.cluster.lists += 1;
        self.is_listing = true;
        self.queue.add(self.now() + MS, Event::Manage);
    }

    /// Sends the newest list to every node that serves. The other nodes read the list when they
    /// start.
    pub(crate) fn manage_on(&mut self) {
        if !self.is_listing {
            return;
        }
        if self.faults.are_over {
            self.bring_pools_back();
        }
        let mut last_us = 0;
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.as_ref().is_none_or(|running| !running.is_serving) {
                continue;
            }
            let waits = self.nodes[node].list_from.checked_sub(self.now());
            if waits.is_some() || self.faults.strikes(Kind::ListSpread) {
                let late_us = self.faults.stream(Kind::ListSpread).between(MS, SPREAD_US);
                let late_us = waits.unwrap_or(late_us);
                let life = self.nodes[node].life;
                self.queue.add(self.now() + late_us, Event::ListReaches(node, life));
                last_us = last_us.max(late_us);
            } else {
                self.bring_list(node);
            }
        }
        if last_us > 0 {
            self.queue.add(self.now() + last_us, Event::ListSpread);
        } else {
            self.is_listing = false;
        }
    }

    /// Sends the newest list of pools to a node.
    pub(crate) fn bring_list(&mut self, node: usize) {
        self.bring_list_for(node, 0);
    }

    /// Sends the newest list of pools to a node that was suspended, if the list has reached its
    /// machine.
    pub(crate) fn read_list_again(&mut self, node: usize, life: u32, request: u64) {
        if self.nodes[node].life != life {
            return;
        }
        if self.nodes[node].list_from <= self.now() {
            return self.bring_list_for(node, request);
        }
        if let Some(running) = &self.nodes[node].running {
            running.node.reload_requests.finish(request);
        }
    }

    fn bring_list_for(&mut self, node: usize, request: u64) {
        let (now, goes_on_at) = (self.now(), self.nodes[node].paused_until);
        if goes_on_at > now {
            // When the node continues, it reads the newest list.
            let life = self.nodes[node].life;
            return self.queue.add(goes_on_at, Event::ListReaches(node, life));
        }
        let pools = self.cluster.ring_pools(&BTreeSet::new());
        let running = self.nodes[node].running.as_ref();
        let Some(thread) = running.and_then(|running| running.first()) else { return };
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        let (list, asked) = sim.life.newest_list.get();
        let newest = (list + 1, request.max(asked));
        sim.life.newest_list.set(newest);
        thread.sim.executor.spawn(async move {
            let one = shard.node.changes.lock().await;
            // A server never applies an older list after a newer one.
            if sim.life.newest_list.get() != newest {
                return;
            }
            sim.life.is_listing.set(true);
            let (process, peers) = (&shard.node, &shard.peers);
            let made = change::apply(&sim, process, peers, move |before| before.replace(&pools));
            let made = made.await;
            sim.life.is_listing.set(false);
            process.reload_requests.finish(newest.1);
            let fault = match made {
                Ok(_) | Err(ChangeError::Shard(_) | ChangeError::Stopping) => return,
                // The disk was full, so the operator repeats the change until the disk has space.
                Err(ChangeError::Lifetimes(_)) => {
                    drop(one);
                    sim.sleep_until(sim.moment() + LIST_AGAIN).await;
                    let _ = process.reload_requests.ask();
                    return;
                }
                Err(error) => error.to_string(),
            };
            let is_over = sim.watch().is_none();
            let broken = Violation { rule: "clash", text: fault, number: 0, shard: 0 };
            sim.shared.judge(if is_over { Ok(()) } else { Err(broken) });
        });
    }

    fn change_lifetime(&mut self, pool: u64, mut drawn: Random) {
        let lifetime_ms = self.pace.lifetimes_ms()[drawn.index(5)];
        let (may_be_shorter, now) = (self.may_be_shorter(), self.now());
        let Some(rule) = self.cluster.pools.get_mut(&pool) else { return };
        let is_shorter = lifetime_ms < rule.lifetime_ms;
        if is_shorter {
            if !may_be_shorter {
                return;
            }
            let before_us = self.pace.shortened_us(rule.lifetime_ms);
            self.shortened_until = self.shortened_until.max(now + before_us);
        }
        rule.lifetime_ms = lifetime_ms;
        self.tell(0, &[], || format!("the lifetime of pool {pool} changes"));
    }

    /// Whether lifetimes may be shortened. They must not be shortened while a pool may be held
    /// because of unknown lockouts. Such a hold lasts only for the pool's current lifetime.
    fn may_be_shorter(&self) -> bool {
        let are_newest = self.nodes.iter().all(|node| node.older.is_none());
        are_newest && !self.is_map_new() && self.now() >= self.unknown_until
    }

    /// Records that a node may hold its pools because of unknown lockouts. This includes pools that
    /// the node receives later.
    pub(crate) fn holds_unknown(&mut self) {
        let longest_ms = self.pace.lifetimes_ms()[4];
        self.unknown_until = self.now() + self.pace.shortened_us(longest_ms);
    }

    /// Whether any node has not yet served with its current map, or has an empty disk. Until such a
    /// node serves, it does not hold the buckets that arrive.
    fn is_map_new(&self) -> bool {
        let is_memory = self.durability == Durability::Memory;
        let is_served = |node: &Node| {
            if is_memory {
                return !node.is_refused;
            }
            let served = node.files.served();
            served.is_some_and(|served| served.version == node.map.version) && !node.is_refused
        };
        self.map_change.is_some() || !self.nodes.iter().all(is_served)
    }

    fn shrink_pool(&mut self, pool: u64, mut drawn: Random) {
        let Some(rule) = self.cluster.pools.get_mut(&pool) else { return };
        let rule_ms = rule.lifetime_ms;
        let count = drawn.index(rule.numbers.len());
        let at = drawn.index(rule.numbers.len() - count + 1);
        let gone: Vec<u64> = rule.numbers.drain(at..at + count).collect();
        self.tell(0, &gone, || format!("numbers leave pool {pool}"));
        self.pools_removed.numbers.extend(gone.into_iter().map(|number| (number, rule_ms)));
    }

    /// Whether each node has served before. At its first start, a node has no earlier list, and
    /// cannot wait for nodes that may not exist yet.
    fn have_all_served(&self) -> bool {
        let is_memory = self.durability == Durability::Memory;
        is_memory || self.nodes.iter().all(|node| node.files.served().is_some())
    }

    /// Whether numbers may move to `pool` from a pool with the lifetime `before_ms`. If that
    /// lifetime is longer than the lifetime of `pool`, the numbers may have longer lockouts than
    /// the numbers that are already in `pool`.
    fn may_come(&mut self, pool: u64, before_ms: u64) -> bool {
        let lifetime_ms = self.cluster.pools.get(&pool).map_or(0, |rule| rule.lifetime_ms);
        if before_ms > lifetime_ms {
            if !self.may_be_shorter() {
                return false;
            }
            let until = self.now() + self.pace.shortened_us(before_ms);
            self.shortened_until = self.shortened_until.max(until);
        }
        true
    }

    /// Moves the numbers `lent`, which have just moved to `from`, to yet another pool of the same
    /// node. The pool that these numbers leave may be held because of them.
    pub(crate) fn lend_on(&mut self, from: u64, lent: &[u64], mut drawn: Random) {
        if self.is_listing || self.faults.are_over {
            return;
        }
        let owners = self.owners_now();
        let home = |pool: u64| owners.get(&pool).map(|shard| self.cluster.home(*shard));
        let is_beside = |to: &u64| *to != from && home(*to) == home(from);
        let beside: Vec<u64> = self.cluster.pools.keys().copied().filter(is_beside).collect();
        if let Some(to) = beside.get(drawn.index(beside.len())) {
            self.move_numbers(from, *to, |number| lent.contains(&number));
            self.list_changes();
        }
    }

    /// Adds to `pool` all numbers that are currently in no pool.
    fn grow_pool(&mut self, pool: u64) {
        if !self.have_all_served() {
            return;
        }
        let before = self.pools_removed.numbers.values().copied().max();
        if !self.may_come(pool, before.unwrap_or(0)) {
            return;
        }
        let Some(rule) = self.cluster.pools.get_mut(&pool) else { return };
        let come: Vec<u64> = std::mem::take(&mut self.pools_removed.numbers).into_keys().collect();
        rule.numbers.extend(&come);
        rule.numbers.sort_unstable();
        self.tell(0, &come, || format!("numbers are added to pool {pool}"));
    }

    /// Moves numbers from one pool to another. Sometimes the numbers soon move on.
    pub(crate) fn lend_numbers(&mut self, from: u64, to: u64, mut drawn: Random) {
        let count = self.cluster.pools.get(&from).map_or(0, |rule| rule.numbers.len());
        let mut count = drawn.index(count);
        let lent = self.move_numbers(from, to, |_| {
            let is_lent = count > 0;
            count = count.saturating_sub(1);
            is_lent
        });
        if !lent.is_empty() && drawn.chance(500_000) {
            let soon = drawn.between(MS, SPREAD_US);
            self.queue.add(self.now() + soon, Event::LendOn(to, lent, drawn));
        }
    }

    /// Moves the numbers that `is_lent` chooses, and returns them.
    fn move_numbers(
        &mut self,
        from: u64,
        to: u64,
        mut is_lent: impl FnMut(u64) -> bool,
    ) -> Vec<u64> {
        let before_ms = self.cluster.pools.get(&from).map_or(0, |rule| rule.lifetime_ms);
        if from == to || !self.have_all_served() || !self.may_come(to, before_ms) {
            return Vec::new();
        }
        let Some(rule) = self.cluster.pools.get_mut(&from) else { return Vec::new() };
        // At least one number stays in the pool, so that no pool becomes empty.
        let mut remaining = rule.numbers.len();
        let lent: Vec<u64> = rule
            .numbers
            .extract_if(.., |number| {
                let goes = remaining > 1 && is_lent(*number);
                remaining -= usize::from(goes);
                goes
            })
            .collect();
        self.tell(0, &lent, || format!("numbers move from pool {from} to pool {to}"));
        if let Some(rule) = self.cluster.pools.get_mut(&to) {
            rule.numbers.extend(&lent);
            rule.numbers.sort_unstable();
        }
        lent
    }

    pub(crate) fn send_pool_away(&mut self, pool: u64) {
        if let Some(rule) = self.cluster.pools.remove(&pool) {
            self.pools_removed.pools.insert(pool, rule);
        }
        self.tell(0, &[], || format!("pool {pool} goes"));
    }

    pub(crate) fn bring_pools_back(&mut self) {
        for (pool, rule) in std::mem::take(&mut self.pools_removed.pools) {
            self.tell(0, &[], || format!("pool {pool} comes back"));
            self.cluster.pools.insert(pool, rule);
        }
    }

    /// Adds all pools to the list again at the end of the run.
    pub(crate) fn manage_ends(&mut self) {
        if self.cluster.lists > 0 {
            self.is_listing = true;
            self.queue.add(self.now() + MS, Event::Manage);
        }
    }
}
