//! What befalls machines, by the second, and what an operator does when it is over.

use ringwell_core::{Millis, PoolId};
use ringwell_directory::bucket;
use ringwell_engine::{Moment, Past};

use crate::bug::Bug;
use crate::event::Event;
use crate::fault::Kind;
use crate::files::lock;
use crate::model::{Grant, Judged, Violation, Wanted};
use crate::world::{MS, ORIGIN_US, SECOND, World};

/// Clocks step so far and are believed, or so far that they are not: nothing between.
const STEP_BELIEVED_US: (u64, u64) = (SECOND, 11 * 3600 * SECOND);
const STEP_DOUBTED_US: (u64, u64) = (26 * 3600 * SECOND, 20_000 * 3600 * SECOND);

/// Look-ups date an allocation to within this. Shard time rejoins the wall clock by half a millisecond a
/// second, and what another shard reported is dated by the clocks of this one: 30 ms in the longest run.
const DATED_WITHIN_US: u64 = 30 * MS;

impl World {
    /// A second has passed.
    pub(crate) fn befall(&mut self) {
        if self.faults.are_over {
            return;
        }
        self.queue.add(self.now + SECOND, Event::Second);
        for node in 0..self.nodes.len() {
            self.befall_machine(node);
            if self.nodes[node].running.is_some() {
                self.befall_process(node);
            }
        }
        self.befall_network();
        if self.faults.strikes(Kind::MapChange) {
            self.change_map();
        }
        if self.faults.strikes(Kind::Move) {
            self.move_buckets();
        }
        if self.faults.strikes(Kind::Manage) {
            self.manage();
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.is_none() {
                continue;
            }
            if self.faults.strikes(Kind::Power) {
                self.stop(node, true);
            } else if self.faults.strikes(Kind::Kill) {
                self.stop(node, false);
            }
        }
    }

    fn befall_machine(&mut self, node: usize) {
        // What was full may be empty again.
        let was_full = self.nodes[node].files.disk().is_full;
        if was_full {
            let is_full = self.faults.stream(Kind::Full).chance(500_000);
            self.nodes[node].files.disk().is_full = is_full;
        } else if self.faults.strikes(Kind::Full) {
            self.nodes[node].files.disk().is_full = true;
            self.tell(node, &[], || "the disk is full".to_owned());
        }
        if self.faults.strikes(Kind::Rot) {
            let rotten = self.nodes[node].files.disk().rot(self.faults.stream(Kind::Rot));
            self.tell(node, &[], || format!("a bit flips in {rotten:?}"));
        }
        if self.faults.strikes(Kind::ClockForward) {
            let random = self.faults.stream(Kind::ClockForward);
            let doubted = random.chance(400_000);
            let (low, high) = if doubted { STEP_DOUBTED_US } else { STEP_BELIEVED_US };
            let forward = random_between(random, low, high);
            self.step_clock(node, forward);
        } else if self.faults.strikes(Kind::ClockRight) {
            self.step_clock(node, 0);
        } else if self.faults.strikes(Kind::ClockBack) {
            let random = self.faults.stream(Kind::ClockBack);
            let back = random_between(random, SECOND, STEP_DOUBTED_US.1);
            self.step_clock(node, -back);
        }
    }

    fn step_clock(&mut self, node: usize, skew_us: i64) {
        self.nodes[node].skew_us = skew_us;
        if let Some(boot) = self.nodes[node].boots.last_mut() {
            boot.was_wrong |= skew_us != 0;
        }
        self.tell(node, &[], || format!("the wall clock is {} s off now", skew_us / 1_000_000));
    }

    fn befall_process(&mut self, node: usize) {
        if self.faults.strikes(Kind::Pause) {
            let length = self.faults.stream(Kind::Pause).between(5 * MS, 3_000 * MS);
            let until = self.nodes[node].paused_until.max(self.now + length);
            self.nodes[node].paused_until = until;
            self.tell(node, &[], || format!("stands still for {} ms", length / MS));
        }
        if self.faults.strikes(Kind::SlowShard) {
            let now = self.now;
            let random = self.faults.stream(Kind::SlowShard);
            let (length, by) = (random.between(SECOND, 5 * SECOND), random.between(MS, 40 * MS));
            let which = random.next();
            let Some(running) = self.running(node) else { return };
            let count = running.threads.len() as u64;
            let which = usize::try_from(which % count.max(1)).unwrap_or(0);
            if let Some(thread) = running.threads.values_mut().nth(which) {
                thread.slow_until = now + length;
                thread.slow_by = by;
            }
        }
    }

    fn befall_network(&mut self) {
        for from in 0..self.nodes.len() {
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                if self.faults.strikes(Kind::Partition) {
                    let length = self.faults.stream(Kind::Partition).between(50 * MS, 5 * SECOND);
                    self.cuts.insert((from, to), self.now + length);
                    self.tell(from, &[], || format!("reaches node {to} no more for {length} us"));
                }
            }
        }
    }

    /// A pool moves to another shard: first the node that loses it starts again, then the other.
    fn change_map(&mut self) {
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
        if from == to || self.now < self.shortened_until {
            return;
        }
        owners.insert(pool, to);
        let map = self.cluster.change(owners);
        let (loses, gets) = (self.cluster.home(from), self.cluster.home(to));
        self.tell(loses, &[], || format!("pool {pool} goes from shard {from} to shard {to}"));
        if loses == gets || self.bug != Some(Bug::StaleMap) {
            self.nodes[loses].map = map;
        }
        self.stop(loses, false);
        if loses != gets {
            self.map_change = Some(gets);
            self.queue.add(self.now + 1 + pause, Event::MapArrives(gets));
        }
    }

    /// An operator moves the buckets of some pools to another shard. Not while a map is brought to
    /// the nodes: what moves by an old one may be given to somebody else by the new one.
    fn move_buckets(&mut self) {
        let shards = self.cluster.homes.len();
        let random = self.faults.stream(Kind::Move);
        let (which, to, count) = (random.next(), random.index(shards), random.between(1, 3));
        let to = u16::try_from(to).unwrap_or(0);
        if self.map_change.is_some() || self.is_listing {
            return;
        }
        let pools: Vec<u64> = self.cluster.maps[0].owners.keys().copied().collect();
        let from = which.checked_rem(self.nodes.len() as u64).unwrap_or(0);
        let node = usize::try_from(from).unwrap_or(0);
        let Some(running) = self.nodes[node].running.as_ref() else { return };
        let own = |pool: &&u64| {
            let owner = running.owners.get(bucket(PoolId(**pool)));
            owner.is_some_and(|owner| owner.shard != to && self.cluster.home(owner.shard) == node)
        };
        let mut own: Vec<u64> = pools.iter().filter(own).copied().collect();
        let turn = usize::try_from(which >> 8).unwrap_or(0) % own.len().max(1);
        own.rotate_left(turn);
        own.truncate(usize::try_from(count).unwrap_or(1));
        let buckets: Vec<u16> = own.iter().map(|pool| bucket(PoolId(*pool))).collect();
        if !buckets.is_empty() {
            self.give(node, buckets, to);
        }
    }

    /// The last fault has been.
    pub(crate) fn calm(&mut self) {
        self.faults.are_over = true;
        lock(&self.call_faults).are_over = true;
        self.cuts.clear();
        self.manage_ends();
        self.queue.add(self.now + 4 * SECOND, Event::RollOut);
        for node in &mut self.nodes {
            node.skew_us = 0;
            node.files.disk().is_full = false;
            for thread in node.running.iter_mut().flat_map(|r| r.threads.values_mut()) {
                thread.slow_until = 0;
            }
        }
        self.tell(0, &[], || "the last fault has been".to_owned());
    }

    /// The newest map comes to every node: with an older one a node asks the wrong shard.
    pub(crate) fn roll_out(&mut self) {
        let newest = self.cluster.newest();
        for node in 0..self.nodes.len() {
            if self.nodes[node].map.version < newest.version {
                self.nodes[node].map = std::rc::Rc::clone(&newest);
                self.stop(node, false);
            }
        }
    }

    /// Who held each number that somebody has seen.
    pub(crate) fn check_attributions(&mut self) -> Judged {
        // The wall clocks were corrected when the faults were over, and a group or look-up sees it.
        for node in 0..self.nodes.len() {
            let clocks = self.clocks(node);
            let threads = self.nodes[node].running.iter_mut().flat_map(|r| r.threads.values_mut());
            for (thread, clocks) in threads.zip(clocks.iter().cycle()) {
                thread.engine.set_clocks(*clocks);
            }
        }
        for wanted in self.model.attributions() {
            // At the moment of the allocation, and as late as it was the newest.
            let node = self.cluster.home(wanted.shard);
            let late_ms = wanted.late_ms.unwrap_or(self.shard_time(node).0).max(wanted.at_ms);
            // With the bucket of a pool that had the number before, a node tells what it knew then.
            let late_ms = Some(late_ms).filter(|_| !self.pools_away.was_lent(wanted.number));
            for at_ms in [Some(wanted.at_ms), late_ms].into_iter().flatten() {
                self.check_attribution(&wanted, Moment::Shard(Millis(at_ms)))?;
            }
        }
        let homes = &self.cluster;
        let counts = |grant: &Grant| self.is_dated(homes.home(grant.shard), grant.true_us);
        for (wanted, next_us) in self.model.dated_attributions(counts) {
            let room_us = next_us.map_or(u64::MAX, |next| next - wanted.true_us);
            if room_us < 4 * DATED_WITHIN_US || self.pools_away.was_lent(wanted.number) {
                continue;
            }
            // At once, and as late as somebody may call who has seen the number.
            let first = wanted.true_us + DATED_WITHIN_US;
            let last = next_us.map_or(self.now, |next| next - DATED_WITHIN_US);
            for true_us in [first, last] {
                let wall = Millis((ORIGIN_US + true_us) / 1000);
                self.check_attribution(&wanted, Moment::Wall(wall))?;
            }
        }
        Ok(())
    }

    fn check_attribution(&self, wanted: &Wanted<'_>, at: Moment) -> Judged {
        let node = self.cluster.home(wanted.shard);
        let Some(running) = &self.nodes[node].running else { return Ok(()) };
        let Some(thread) = running.threads.get(&wanted.shard) else { return Ok(()) };
        let at = match at {
            Moment::Wall(at) if self.bug == Some(Bug::ShardTimeInLookups) => Moment::Shard(at),
            at => at,
        };
        let found = crate::lookup::attribution(thread, wanted.number, at, running.clocks);
        let fault = match found {
            Ok(Past { held: Some(held), .. }) if held.allocated_at.0 == wanted.at_ms => {
                let is_right = held.params == wanted.params.as_bytes();
                // The record itself may be too old to be kept, unless it is the newest.
                let is_gone = held.pool.is_none() && !wanted.is_newest;
                if is_right || is_gone {
                    return Ok(());
                }
                format!("{:?} was said, {} was given", held, wanted.params)
            }
            Ok(Past { held: None, .. }) if !wanted.is_newest => return Ok(()),
            Ok(other) => format!("{other:?} was said, {} was given", wanted.params),
            Err(_) if self.nodes[node].files.disk().is_to_blame() => return Ok(()),
            Err(why) => why.to_owned(),
        };
        let text = format!("allocated at {}, asked for {at:?}: {fault}", wanted.at_ms);
        let (number, shard) = (wanted.number, wanted.shard);
        Err(Violation { rule: "attribution", text, number, shard })
    }
}

fn random_between(random: &mut crate::random::Random, low: u64, high: u64) -> i64 {
    i64::try_from(random.between(low, high)).unwrap_or(i64::MAX)
}
