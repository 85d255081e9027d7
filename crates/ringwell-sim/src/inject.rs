//! Injects faults every second, performs the operator's actions, and checks look-ups at the end.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use ringwell_config::Durability;
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::bucket;
use ringwell_driver::holder::holder;
use ringwell_driver::node::JournalState;
use ringwell_driver::store::{Gaps, Store};
use ringwell_driver::{lookup, moves};
use ringwell_engine::{Missing, Moment, Past, PastAllocation};

use crate::event::Event;
use crate::fault::Kind;
use crate::files::lock;
use crate::message::Sent;
use crate::model::{Grant, Judged, Violation, Wanted};
use crate::pace::{MS, ORIGIN_US, SECOND};
use crate::world::World;

/// The range of clock steps that are small enough to be trusted. Steps in the range
/// `STEP_DOUBTED_US` are so large that they are refused.
const STEP_BELIEVED_US: (u64, u64) = (SECOND, 11 * 3600 * SECOND);
/// Clock steps that end no lockout early, because lockouts are lengthened by more than the step.
const STEP_ALLOWED_US: (u64, u64) = (500 * MS, 1_900 * MS);
const STEP_DOUBTED_US: (u64, u64) = (26 * 3600 * SECOND, 20_000 * 3600 * SECOND);

impl World {
    /// Injects one second of faults.
    pub(crate) fn inject(&mut self) {
        if self.faults.are_over {
            return;
        }
        let next = self.pace.until_faults_us(self.now());
        self.queue.add(self.now() + next, Event::Second);
        for node in 0..self.nodes.len() {
            self.inject_into_machine(node);
            if self.nodes[node].running.is_some() {
                self.inject_into_process(node);
            }
        }
        self.inject_into_network();
        if self.faults.strikes(Kind::MapChange) {
            self.change_map();
        }
        if self.faults.strikes(Kind::Move) {
            self.move_buckets();
        }
        if self.faults.strikes(Kind::Manage) {
            self.manage();
        }
        if self.faults.strikes(Kind::Call) {
            self.ring();
        }
        if self.faults.strikes(Kind::Abandon) {
            self.abort_move();
        }
        if self.faults.strikes(Kind::LostDisk) {
            self.inject_disk_fault();
        }
        if self.faults.strikes(Kind::LostJournal) {
            self.lose_journal();
        }
        if self.faults.strikes(Kind::CopiedJournal) {
            self.copy_journal();
        }
        for node in 0..self.nodes.len() {
            for kind in [Kind::Restored, Kind::CopyBack] {
                if self.faults.strikes(kind) {
                    self.copy_data(node, kind);
                }
            }
            if self.nodes[node].running.is_none() {
                continue;
            }
            if self.faults.strikes(Kind::Stop) {
                self.drain(node);
            } else if self.faults.strikes(Kind::Power) {
                self.stop(node, true);
            } else if self.faults.strikes(Kind::Kill) {
                self.stop(node, false);
            }
        }
    }

    fn inject_into_machine(&mut self, node: usize) {
        // If the disk is full, space may become free.
        let was_full = self.nodes[node].files.disk().is_full;
        if was_full {
            let is_full = self.faults.stream(Kind::Full).chance(500_000);
            self.nodes[node].files.disk().is_full = is_full;
        } else if self.faults.strikes(Kind::Full) {
            self.nodes[node].files.disk().is_full = true;
            self.tell(node, &[], || "the disk is full".to_owned());
        }
        if self.faults.strikes(Kind::Remount) {
            self.fail_disk(node);
        }
        if self.faults.strikes(Kind::SlowSpell) {
            let length = self.faults.stream(Kind::SlowSpell).between(SECOND, 4 * SECOND);
            self.shared.clocks[node].slow_until.set(self.now() + length);
            self.tell(node, &[], || format!("the disk is slow for {} ms", length / MS));
        }
        if self.faults.strikes(Kind::Rot) {
            let rotten = self.nodes[node].files.disk().rot(self.faults.stream(Kind::Rot));
            self.tell(node, &[], || format!("a bit flips in {rotten:?}"));
        }
        if self.faults.strikes(Kind::ClockForward) {
            let random = self.faults.stream(Kind::ClockForward);
            let (low, high) = match random.below(10) {
                0..=3 => STEP_DOUBTED_US,
                4..=6 => STEP_ALLOWED_US,
                _ => STEP_BELIEVED_US,
            };
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

    /// Makes a disk fail or detaches it. An operator then ends the process and mounts the disk
    /// again.
    fn fail_disk(&mut self, node: usize) {
        let random = self.faults.stream(Kind::Remount);
        let (is_read_only, after) = (random.chance(500_000), random.below(2 * SECOND));
        self.nodes[node].files.disk().die(is_read_only);
        self.tell(node, &[], || "the disk fails".to_owned());
        self.queue.add(self.now() + after, Event::Remount(node));
    }

    /// May set the wall clock to a wrong time at boot, as an inaccurate hardware clock would.
    pub(crate) fn inject_boot_fault(&mut self, node: usize) {
        if self.faults.strikes(Kind::BootClock) {
            let (low, high) = STEP_ALLOWED_US;
            let random = self.faults.stream(Kind::BootClock);
            let off = random_between(random, low, high);
            let off = if random.below(2) == 0 { -off } else { off };
            self.step_clock(node, off);
        }
    }

    fn step_clock(&mut self, node: usize, skew_us: i64) {
        self.shared.clocks[node].skew_us.set(skew_us);
        if let Some(boot) = self.nodes[node].boots.last_mut() {
            boot.was_wrong |= skew_us != 0;
        }
        self.tell(node, &[], || format!("the wall clock is now off by {} s", skew_us / 1_000_000));
    }

    fn inject_into_process(&mut self, node: usize) {
        if self.faults.strikes(Kind::Pause) {
            let length = self.faults.stream(Kind::Pause).between(5 * MS, 3_000 * MS);
            self.pause_until(node, self.now() + length);
            self.tell(node, &[], || format!("stops for {} ms", length / MS));
        }
        if self.faults.strikes(Kind::StandsStill) {
            self.stand_still(node);
        }
        if self.faults.strikes(Kind::SlowShard) {
            let now = self.now();
            let random = self.faults.stream(Kind::SlowShard);
            let (length, by) = (random.between(SECOND, 5 * SECOND), random.between(MS, 40 * MS));
            let which = random.next();
            let Some(running) = self.nodes[node].running.as_mut() else { return };
            let count = running.threads.len() as u64;
            let which = usize::try_from(which % count.max(1)).unwrap_or(0);
            if let Some(thread) = running.threads.values_mut().nth(which) {
                thread.slow_until = now + length;
                thread.slow_by = by;
            }
        }
        self.restart_failing(node);
    }

    /// Restarts a node some time after one of its journals has failed, as an operator would.
    fn restart_failing(&mut self, node: usize) {
        let Some(running) = self.nodes[node].running.as_mut() else { return };
        let has_failed = running.node.journals().any(|(_, state)| state == JournalState::Failed);
        if has_failed && !running.is_failing {
            running.is_failing = true;
            let life = self.nodes[node].life;
            let patience = self.chance.between(500 * MS, 8_000 * MS);
            self.queue.add(self.now() + patience, Event::Restart(node, life));
        }
    }

    fn inject_into_network(&mut self) {
        for from in 0..self.nodes.len() {
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                if self.faults.strikes(Kind::Partition) {
                    let length = self.faults.stream(Kind::Partition).between(50 * MS, 5 * SECOND);
                    let length = self.pace.cut_us(length);
                    self.cuts.insert((from, to), self.now() + length);
                    self.tell(from, &[], || format!("cannot reach node {to} for {length} us"));
                }
            }
        }
    }

    /// Loses a node's disk, often just after one of the node's pools was removed from the list.
    fn inject_disk_fault(&mut self) {
        let random = self.faults.stream(Kind::LostDisk);
        let (which, drawn, is_absent) = (random.next(), random.next(), random.chance(700_000));
        let node = usize::try_from(which % self.nodes.len() as u64).unwrap_or(0);
        let is_memory = self.durability == Durability::Memory;
        if self.is_in_between() || self.is_listing || is_memory {
            return;
        }
        let owners = self.owners_now();
        let own = |(_, shard): &(&u64, &u16)| self.cluster.home(**shard) == node;
        let own: Vec<u64> = owners.iter().filter(own).map(|(pool, _)| *pool).collect();
        let own: Vec<u64> =
            { own.into_iter() }.filter(|p| self.cluster.pools.contains_key(p)).collect();
        let turn = usize::try_from(drawn % own.len().max(1) as u64).unwrap_or(0);
        let pool = own.get(turn).filter(|_| is_absent && self.cluster.pools.len() > 1);
        if let Some(&pool) = pool {
            self.absent = Some(pool);
            self.send_pool_away(pool);
            self.list_changes();
        }
        self.queue.add(self.now() + 50 * MS, Event::LostDisk(node));
    }

    /// Makes a change as soon as a node begins to serve, as an impatient operator would.
    pub(crate) fn act_after_start(&mut self, node: usize) {
        if self.faults.are_over || self.nodes[node].running.is_none() {
            return;
        }
        let serves = |node: &crate::world::Node| {
            node.running.as_ref().is_some_and(|running| running.is_serving)
        };
        let absent = if self.nodes.iter().all(serves) { self.absent.take() } else { None };
        if let Some(pool) = absent {
            let owner = self.owners_now().get(&pool).map(|shard| self.cluster.home(*shard));
            let node = owner.unwrap_or(node);
            let random = self.faults.stream(Kind::Hasty);
            let (drawn, back) = (random.next(), random.between(5 * MS, 400 * MS));
            let others = self.cluster.homes.len() as u64;
            let to = u16::try_from(drawn % others).unwrap_or(0);
            self.give_buckets(node, BTreeSet::from([bucket(PoolId(pool))]), to);
            self.queue.add(self.now() + back, Event::Manage);
            self.bring_pools_back();
            self.is_listing = true;
            return;
        }
        match self.faults.stream(Kind::Hasty).below(3) {
            0 => self.move_buckets(),
            1 => self.lend_at(node),
            _ => self.manage(),
        }
    }

    /// Moves the buckets of some pools to another shard, as an operator would. Does nothing while a
    /// new map or a new list of pools is being distributed. A new map may assign a bucket to one
    /// node while the move gives it to another.
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
        let own = |pool: &&u64| {
            let owner = self.owner(node, **pool);
            owner.is_some_and(|owner| owner.shard != to && self.cluster.home(owner.shard) == node)
        };
        let mut own: Vec<u64> = pools.iter().filter(own).copied().collect();
        let turn = usize::try_from(which >> 8).unwrap_or(0) % own.len().max(1);
        own.rotate_left(turn);
        own.truncate(usize::try_from(count).unwrap_or(1));
        let buckets: BTreeSet<u16> = own.iter().map(|pool| bucket(PoolId(*pool))).collect();
        if !buckets.is_empty() {
            self.give_buckets(node, buckets, to);
        }
    }

    fn give_buckets(&mut self, node: usize, buckets: BTreeSet<u16>, to: u16) {
        let running = self.nodes[node].running.as_ref().filter(|running| running.is_serving);
        let Some(thread) = running.and_then(|running| running.first()) else { return };
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        self.shared.tell(node, &[], || format!("gives buckets {buckets:?} to shard {to}"));
        let unanswered = Rc::clone(&self.commands);
        thread.sim.executor.spawn(async move {
            let (process, peers) = (Arc::clone(&shard.node), &shard.peers);
            let given = moves::give(&sim, &process, peers, buckets, to).await;
            drop(unanswered);
            sim.shared.tell(sim.life.node, &[], || match given {
                Ok(_) => "has given them".to_owned(),
                Err(error) => format!("the move failed: {error}"),
            });
        });
    }

    /// Takes back buckets in transit, as an operator would.
    fn abort_move(&mut self) {
        let node = self.chance.index(self.nodes.len());
        let running = self.nodes[node].running.as_ref().filter(|running| running.is_serving);
        let Some(thread) = running.and_then(|running| running.first()) else { return };
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        thread.sim.executor.spawn(async move {
            let (process, peers) = (Arc::clone(&shard.node), &shard.peers);
            let taken = moves::abort(&sim, &process, peers).await;
            sim.shared.tell(sim.life.node, &[], || match taken {
                Ok(_) => "has taken back the moving buckets".to_owned(),
                Err(error) => format!("takes nothing back: {error}"),
            });
        });
    }

    /// Begins the calm period after the last fault.
    pub(crate) fn calm(&mut self) {
        self.faults.are_over = true;
        lock(&self.shared.call_faults).are_over = true;
        self.cuts.clear();
        self.manage_ends();
        self.queue.add(self.now() + 4 * SECOND, Event::RollOut);
        for clock in &self.shared.clocks {
            clock.skew_us.set(0);
            clock.slow_until.set(0);
        }
        for node in 0..self.nodes.len() {
            self.restart_failing(node);
        }
        for node in &mut self.nodes {
            node.files.disk().is_full = false;
            for thread in node.running.iter_mut().flat_map(|r| r.threads.values_mut()) {
                thread.slow_until = 0;
            }
        }
        self.tell(0, &[], || "the last fault is over".to_owned());
    }

    /// Checks that look-ups find the holder of each number that a visitor has seen.
    pub(crate) fn check_attributions(&mut self) -> Judged {
        let look_ups = self.look_ups();
        let begin = |world: &mut Self, which: usize| {
            let (wanted, at) = &look_ups[which];
            world.begin_look_up(which, wanted, *at, world.cluster.home(wanted.shard));
        };
        self.look_up(look_ups.len(), begin)?;
        for (which, (wanted, at)) in look_ups.iter().enumerate() {
            if let Some(found) = self.looked.remove(&which) {
                self.check_attribution(wanted, *at, found)?;
            }
        }
        Ok(())
    }

    /// Returns two look-ups for each allocation: one for the time when it was made, and one for the
    /// last time when it was the number's newest allocation.
    fn look_ups(&self) -> Vec<(Wanted, Moment)> {
        let mut look_ups = Vec::new();
        let model = self.shared.model.borrow();
        for wanted in model.attributions() {
            let node = self.cluster.home(wanted.shard);
            let Some(running) = &self.nodes[node].running else { continue };
            let Some(thread) = running.threads.get(&wanted.shard) else { continue };
            let now_ms = thread.shard.clock_now().0;
            let late_ms = wanted.late_ms.unwrap_or(now_ms).max(wanted.at_ms);
            let moments = [wanted.at_ms, late_ms];
            look_ups.extend(moments.map(|at| (wanted.clone(), Moment::Shard(Millis(at)))));
        }
        let homes = &self.cluster;
        let counts = |grant: &Grant| self.is_dated(homes.home(grant.shard), grant.true_us);
        let gone = model.lost_attributions(counts).into_iter().filter(|it| self.is_known_lost(it));
        for wanted in model.dated_attributions(counts).into_iter().chain(gone) {
            let room_us = wanted.next_us.map_or(u64::MAX, |next| next - wanted.true_us);
            let within_us = self.dated_within_us();
            if room_us < 4 * within_us {
                continue;
            }
            // A visitor who has seen the number may call immediately, or just before it is handed
            // out again.
            let first = wanted.true_us + within_us;
            let last = wanted.next_us.map_or(self.now(), |next| next - within_us);
            for true_us in [first, last] {
                let wall = Millis((ORIGIN_US + true_us) / 1000);
                look_ups.push((wanted.clone(), Moment::Wall(wall)));
            }
        }
        look_ups
    }

    /// Returns the precision, in microseconds, of look-ups by wall-clock time.
    pub(crate) fn dated_within_us(&self) -> u64 {
        self.pace.dated_within_us(self.clients.length_us)
    }

    /// Looks up a number, usually at node `asked`.
    pub(crate) fn begin_look_up(
        &mut self,
        which: usize,
        wanted: &Wanted,
        at: Moment,
        asked: usize,
    ) {
        let home = self.cluster.home(wanted.shard);
        let begun = PromoNumber::from_code(wanted.number).and_then(|number| match at {
            // Until a new map has reached all nodes, a node with an older map may send the look-up
            // to the previous owner.
            Moment::Wall(at) if self.faults.are_over => self.ask_all(which, which, number, at),
            Moment::Wall(at) => self.ask_all(asked, which, number, at),
            Moment::Shard(_) => self.ask_shard((home, wanted.shard), which, number, at),
        });
        if begun.is_none() {
            drop(self.looked.insert(which, Err("the node is down".to_owned())));
        }
    }

    /// Looks up a number as the server does for a call: the node queries all shards.
    fn ask_all(&self, asked: usize, which: usize, number: PromoNumber, at: Millis) -> Option<()> {
        let running = self.nodes[asked % self.nodes.len()].running.as_ref();
        let thread = running.filter(|running| running.is_serving)?.first()?;
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        thread.sim.executor.spawn(async move {
            let found = holder(&shard.node, &shard.peers, number, at).await;
            let found = found.map_err(|error| error.to_string());
            let found = found.and_then(|it| match it.lacks() {
                Some(shard) => Err(format!("shard {shard} cannot be reached")),
                None => Ok(it.past),
            });
            sim.send(Sent::Looked { which, found });
        });
        Some(())
    }

    fn ask_shard(
        &mut self,
        (node, shard): (usize, u16),
        which: usize,
        number: PromoNumber,
        at: Moment,
    ) -> Option<()> {
        let thread = self.thread(node, shard)?;
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        let found = lookup::attribution(shard, thread.journal.reader(), number, at);
        thread.sim.executor.spawn(async move {
            let found = found.await;
            sim.send(Sent::Looked { which, found });
        });
        Some(())
    }

    pub(crate) fn check_attribution(
        &self,
        wanted: &Wanted,
        at: Moment,
        found: Result<Past, String>,
    ) -> Judged {
        let node = self.cluster.home(wanted.shard);
        // Even if the visitor's node is down, a look-up must not report that there was no visitor.
        let is_unknown = found.as_ref().is_ok_and(|it| it.held.is_none() && it.missing.is_some());
        if self.nodes[node].running.is_none() && (is_unknown || found.is_err()) {
            return Ok(());
        }
        let has_gaps = self.has_gaps();
        // With the durability `memory`, records are lost when their process ends, but other nodes
        // may still have records of the allocations.
        let is_memory = self.durability == Durability::Memory;
        let is_to_blame = {
            let disk = self.nodes[node].files.disk();
            disk.is_to_blame() || disk.former_was_to_blame || is_memory
        };
        let is_unread = matches!(&found, Ok(past) if past.missing == Some(Missing::TooLong));
        let fault = match found {
            Ok(Past { held: Some(held), .. }) if held.allocated_at.0 == wanted.at_ms => {
                let is_right = held.params == wanted.params.as_bytes();
                // The record itself may be too old to be kept, unless it belongs to the newest
                // allocation. A shard may report an allocation without its record, but the look-up
                // for a call must find the visitor.
                let is_named = is_unread || matches!(at, Moment::Shard(_));
                let is_gone = held.pool.is_none() && is_named && (!wanted.is_newest || is_to_blame);
                if !is_right && !is_gone {
                    format!(
                        "the look-up found {held:?}, but the number was handed out with the \
                        parameters {}",
                        wanted.params
                    )
                } else if let Some(end_us) = self.missed_end(wanted, &held)
                    && !is_to_blame
                {
                    format!(
                        "the look-up found {held:?}, which does not show that the number was \
                        handed out again at {end_us} us"
                    )
                } else {
                    return Ok(());
                }
            }
            Ok(Past { held: None, missing: None, .. })
                if matches!(at, Moment::Wall(_)) && !is_to_blame =>
            {
                format!(
                    "the look-up found no visitor, but the number was handed out with the parameters {}",
                    wanted.params
                )
            }
            Ok(Past { held: None, .. }) if !wanted.is_newest || has_gaps || is_to_blame => {
                return Ok(());
            }
            // The owner's record of the number may be outdated: another owner may have allocated
            // the number during a hold.
            Ok(Past { held: None, .. }) if self.is_doubted(wanted) => return Ok(()),
            Ok(found) if wanted.is_lost && (is_to_blame || is_locked(&found, at)) => return Ok(()),
            Ok(other) => {
                format!(
                    "the look-up found {other:?}, but the number was handed out with the \
                    parameters {}",
                    wanted.params
                )
            }
            Err(_) if is_to_blame => return Ok(()),
            Err(why) => why,
        };
        let text = format!("allocated at {}, looked up at {at:?}: {fault}", wanted.at_ms);
        let (number, shard) = (wanted.number, wanted.shard);
        Err(Violation { rule: "attribution", text, number, shard })
    }

    /// Whether the node that lost the allocation has recorded the period in which it lost
    /// allocations.
    fn is_known_lost(&self, wanted: &Wanted) -> bool {
        let running = self.nodes[self.cluster.home(wanted.shard)].running.as_ref();
        let wall = Millis((ORIGIN_US + wanted.true_us) / 1000);
        running.is_some_and(|running| {
            let clocks = running.threads.values().next().map(|thread| thread.shard.clocks());
            clocks.is_some_and(|now| running.node.gaps().contain(wall, running.node.dating(now)))
        })
    }

    /// Whether any node has recorded a period in which answered allocations may be missing.
    pub(crate) fn has_gaps(&self) -> bool {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        { running }.any(|it| it.node.gaps() != Gaps::default())
    }

    /// Whether another shard may have a newer allocation of the number than the shard whose
    /// rotation contains the number.
    fn is_doubted(&self, wanted: &Wanted) -> bool {
        let Some(number) = PromoNumber::from_code(wanted.number) else { return false };
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        running.flat_map(|it| it.threads.values()).any(|thread| {
            let engine = thread.shard.engine.borrow();
            engine.shard().find(number).is_some() && engine.is_doubted(number)
        })
    }

    /// Returns the time at which the number was handed out again, if the look-up's result `held`
    /// does not show this.
    fn missed_end(&self, wanted: &Wanted, held: &PastAllocation) -> Option<u64> {
        let by = |end_us: u64| Millis((ORIGIN_US + end_us + self.dated_within_us()) / 1000);
        let is_missed = |end_us: &u64| held.next_allocated_at.is_none_or(|it| it > by(*end_us));
        wanted.end_us.filter(is_missed)
    }
}

/// Whether the look-up found a visitor whose lockout had not ended at the time `at`. An operator
/// may have ended the lockout earlier, and the record of this may be lost.
fn is_locked(found: &Past, at: Moment) -> bool {
    let held = found.held.as_ref();
    matches!(at, Moment::Wall(at) if held.is_some_and(|held| at < held.locked_until))
}

fn random_between(random: &mut crate::random::Random, low: u64, high: u64) -> i64 {
    i64::try_from(random.between(low, high)).unwrap_or(i64::MAX)
}
