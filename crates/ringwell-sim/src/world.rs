//! The world of one run: machines, their clocks and disks, the network, clients, and time.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use ringwell_core::Millis;
use ringwell_directory::{BucketHolds, Directory, Owners};
use ringwell_engine::{Clocks, Reading, SLEW_EVERY, observed, slewed};

use crate::bug::Bug;
use crate::change::{Changing, Want};
use crate::clients::Clients;
use crate::cluster::{Cluster, Map};
use crate::event::{Event, Queue, Task};
use crate::fault::Faults;
use crate::files::SimFiles;
use crate::give::Giving;
use crate::model::{Judged, Model, Violation};
use crate::random::{Random, mix};
use crate::run::{Options, Tale};
use crate::thread::{Handler, InFlight, Thread};

/// True time is counted from here, in microseconds.
pub(crate) const ORIGIN_US: u64 = 1_700_000_000_000_000;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;

/// A machine.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) files: SimFiles,
    /// The wall clock less true time.
    pub(crate) skew_us: i64,
    /// When the machine was booted, and whether its wall clock was wrong since: the last is now.
    pub(crate) boots: Vec<Boot>,
    /// Rises with each end of the process: what was meant for an earlier one is dropped.
    pub(crate) life: u32,
    pub(crate) running: Option<Running>,
    pub(crate) paused_until: u64,
    /// The cluster file that the next start reads.
    pub(crate) map: Rc<Map>,
    /// Does not start, and an operator has been told.
    pub(crate) is_refused: bool,
}

/// One boot of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    pub(crate) at: u64,
    pub(crate) was_wrong: bool,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) clocks: Clocks,
    /// Up to when shard time was moved towards the wall clock, in time since boot.
    pub(crate) slewed_at: Millis,
    pub(crate) owners: Owners,
    /// Buckets that came without the lockouts of the owner before.
    pub(crate) holds: BucketHolds,
    /// By which rows are looked up once all shards do.
    pub(crate) directory: Arc<Directory>,
    pub(crate) threads: BTreeMap<u16, Thread>,
    pub(crate) batches: BTreeMap<u64, InFlight>,
    pub(crate) handlers: BTreeMap<u64, Handler>,
    pub(crate) is_serving: bool,
    /// What changes now, and what is to change after it: one at a time.
    pub(crate) changing: Option<Changing>,
    pub(crate) changes: VecDeque<Want>,
    /// Buckets that are being given to another shard.
    pub(crate) giving: Option<Giving>,
    /// What was posted to other nodes and has no answer yet.
    pub(crate) posted: BTreeMap<u64, crate::post::Asker>,
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) nodes: Vec<Node>,
    pub(crate) cluster: Cluster,
    pub(crate) clients: Clients,
    pub(crate) faults: Faults,
    /// What goes wrong with calls of disks. The same draws as `faults`, of which no kind is used in
    /// both.
    pub(crate) call_faults: Arc<Mutex<Faults>>,
    pub(crate) model: Model,
    pub(crate) bug: Option<Bug>,
    pub(crate) chance: Random,
    /// Until when nothing gets from one node to another.
    pub(crate) cuts: BTreeMap<(usize, usize), u64>,
    pub(crate) next_id: u64,
    pub(crate) hash: u64,
    pub(crate) tale: Tale,
    pub(crate) map_change: Option<usize>,
    /// A list of pools is on its way to the nodes.
    pub(crate) is_listing: bool,
    pub(crate) pools_away: crate::manage::Away,
    /// Until when lockouts may run that are longer than their pool's lifetime.
    pub(crate) shortened_until: u64,
    /// How late the thread is that has its turn.
    pub(crate) lag: u64,
}

impl World {
    pub(crate) fn new(options: &Options) -> Self {
        let mut random = Random::new(options.seed, 2);
        let cluster = Cluster::draw(&mut random);
        let map = cluster.newest();
        let only = options.only_faults.clone();
        let faults = Faults::draw(options.seed, &options.on, &options.off, only.clone());
        let call_faults = Faults::draw(options.seed, &options.on, &options.off, only);
        let call_faults = Arc::new(Mutex::new(call_faults));
        let salts = Arc::new(Mutex::new(Random::new(options.seed, 3)));
        let node = || Node {
            files: SimFiles::new(&call_faults, &salts),
            skew_us: 0,
            boots: vec![Boot { at: 0, was_wrong: false }],
            life: 0,
            running: None,
            paused_until: 0,
            map: Rc::clone(&map),
            is_refused: false,
        };
        let nodes = (0..cluster.nodes).map(|_| node()).collect();
        let model = Model::default();
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            nodes,
            clients: Clients::draw(options, &cluster),
            cluster,
            model,
            bug: options.bug,
            call_faults,
            chance: Random::new(options.seed, 4),
            cuts: BTreeMap::new(),
            next_id: 0,
            hash: options.seed,
            tale: Tale::new(options.is_told),
            map_change: None,
            is_listing: false,
            pools_away: crate::manage::Away::default(),
            shortened_until: 0,
            lag: 0,
            faults,
        };
        for node in 0..world.nodes.len() {
            world.queue.add(0, Event::Start(node, 0));
        }
        let run_us = world.clients.length_us;
        let calm_us = world.cluster.lifetime_max_ms() * MS + 15 * SECOND;
        world.queue.add(SECOND, Event::Second);
        world.queue.add(50 * MS, Event::Client);
        world.queue.add(run_us, Event::Calm);
        for round in 0..3 {
            world.queue.add(run_us + calm_us + round * SECOND, Event::Probe);
        }
        world
    }

    /// Runs to the end, or to the first promise that is broken.
    pub(crate) fn run(&mut self) -> Judged {
        let calm_us = self.cluster.lifetime_max_ms() * MS + 15 * SECOND;
        let end = self.clients.length_us + calm_us + 4 * SECOND;
        while let Some((at, number, event)) = self.queue.next() {
            if at > end {
                break;
            }
            self.now = at;
            self.hash = mix(self.hash ^ at ^ number.rotate_left(40));
            self.happen(event)?;
        }
        self.check_all_answered()?;
        self.check_probes()?;
        self.check_attributions()?;
        self.hash_state();
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Judged {
        match event {
            Event::Client => self.next_batch(),
            Event::Again(batch) => self.send_again(batch),
            Event::Second => self.befall(),
            Event::Start(node, life) if self.nodes[node].life == life => self.start(node)?,
            Event::Restart(node, life) if self.nodes[node].life == life => self.stop(node, false),
            Event::Repair(node, life) if self.nodes[node].life == life => self.repair(node),
            Event::Stepped(node, life, asker, done) if self.nodes[node].life == life => {
                self.stepped(node, asker, done)?;
            }
            Event::Posted(node, life, id, answer) if self.nodes[node].life == life => {
                self.posted(node, id, answer);
            }
            Event::GiveOn(node, life) if self.nodes[node].life == life => self.give_on(node),
            Event::Start(..)
            | Event::Restart(..)
            | Event::Repair(..)
            | Event::Stepped(..)
            | Event::Posted(..)
            | Event::GiveOn(..) => {}
            Event::Post { node, life, from, post } => self.post_arrives(node, life, from, post),
            Event::Manage => self.manage_on(),
            Event::MapArrives(node) => self.map_arrives(node),
            Event::RollOut => self.roll_out(),
            Event::ListArrives(node, life) => self.list_arrives(node, life),
            Event::Release { number, at_ms, shard } => self.release_by_client(number, at_ms, shard),
            Event::Thread { node, life, shard, due, task } => {
                self.on_thread(node, life, shard, due, task)?;
            }
            Event::Calm => self.calm(),
            Event::Probe => {
                self.model.must_serve = true;
                self.probe();
            }
        }
        self.clients_go_on();
        if let Some(violation) = self.model.link_fault.take() {
            return Err(violation);
        }
        self.bury();
        Ok(())
    }

    /// Ends processes whose disk has stopped in the middle of a call.
    fn bury(&mut self) {
        for node in 0..self.nodes.len() {
            if self.has_stopped(node) {
                let is_power = self.chance.chance(500_000);
                self.stop(node, is_power);
            }
        }
    }

    fn on_thread(&mut self, node: usize, life: u32, shard: u16, due: u64, task: Task) -> Judged {
        if self.nodes[node].life != life {
            self.unheard(&task);
            return Ok(());
        }
        let paused_until = self.nodes[node].paused_until;
        let Some(running) = &mut self.nodes[node].running else { return Ok(()) };
        let Some(thread) = running.threads.get_mut(&shard) else { return Ok(()) };
        // What the disk does is no work of this thread's, but it is this thread that is told.
        let free_at = thread.busy_until.max(paused_until);
        if free_at > self.now {
            self.queue.add(free_at, Event::Thread { node, life, shard, due, task });
            return Ok(());
        }
        if thread.slow_until > self.now {
            thread.busy_until = self.now + thread.slow_by;
        }
        let Some(mut thread) = running.threads.remove(&shard) else { return Ok(()) };
        self.lag = self.now - due;
        let judged = self.work(node, &mut thread, due, task);
        if let Some(running) = &mut self.nodes[node].running {
            running.threads.insert(shard, thread);
        }
        judged
    }

    /// Has something done on a shard's thread.
    pub(crate) fn later(&mut self, node: usize, shard: u16, delay_us: u64, task: Task) {
        let due = self.now + delay_us;
        let life = self.nodes[node].life;
        self.queue.add(due, Event::Thread { node, life, shard, due, task });
    }

    /// The wall clock of a machine.
    pub(crate) fn wall_us(&self, node: usize) -> u64 {
        (ORIGIN_US + self.now).saturating_add_signed(self.nodes[node].skew_us)
    }

    /// The time since a machine was booted.
    pub(crate) fn since_boot(&self, node: usize) -> Millis {
        let booted = self.nodes[node].boots.last().map_or(0, |boot| boot.at);
        Millis((self.now - booted) / 1000)
    }

    /// What a start reads of a machine's clocks.
    pub(crate) fn reading(&self, node: usize) -> Reading {
        let boot = self.nodes[node].boots.len() as u64;
        let wall = Millis(self.wall_us(node) / 1000);
        Reading { boot, since_boot: self.since_boot(node), wall }
    }

    /// Shard time on a machine.
    pub(crate) fn shard_time(&self, node: usize) -> Millis {
        match &self.nodes[node].running {
            Some(running) if self.bug != Some(Bug::WallClock) => {
                running.clocks.shard(self.since_boot(node))
            }
            _ => Millis(self.wall_us(node) / 1000),
        }
    }

    /// The clocks as they stand: as `Clock::clocks` in `ringwell-node/src/clock.rs`.
    pub(crate) fn clocks(&mut self, node: usize) -> Option<Clocks> {
        let Reading { since_boot, wall, .. } = self.reading(node);
        let running = self.nodes[node].running.as_mut()?;
        let seen = wall.0.cast_signed() - since_boot.0.cast_signed();
        running.clocks = observed(running.clocks, seen);
        if since_boot.since(running.slewed_at) >= SLEW_EVERY {
            running.clocks = slewed(running.clocks);
            running.slewed_at = since_boot;
        }
        Some(running.clocks)
    }

    /// Whether the wall clock of a machine was right from its boot on at this moment of true time,
    /// or has been corrected since, without another boot.
    pub(crate) fn is_dated(&self, node: usize, true_us: u64) -> bool {
        let boots = &self.nodes[node].boots;
        let after = boots.partition_point(|boot| boot.at <= true_us);
        let is_now = after == boots.len() && self.nodes[node].skew_us == 0;
        is_now || after.checked_sub(1).is_some_and(|index| !boots[index].was_wrong)
    }

    pub(crate) fn running(&mut self, node: usize) -> Option<&mut Running> {
        self.nodes[node].running.as_mut()
    }

    /// Whether the disk of a machine has stopped in the middle of a call: nothing happens after it.
    pub(crate) fn has_stopped(&self, node: usize) -> bool {
        self.nodes[node].files.disk().has_stopped
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a line to the tale, if one is told.
    pub(crate) fn tell(&mut self, node: usize, about: &[u64], text: impl FnOnce() -> String) {
        self.tale.add(self.now, node, about, text);
    }

    fn check_all_answered(&self) -> Judged {
        let waiting = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let batch = waiting.flat_map(|running| running.batches.keys()).next();
        batch.map_or(Ok(()), |batch| {
            let text = format!("batch {batch} was never answered");
            Err(Violation { rule: "no answer", text, number: 0, shard: 0 })
        })
    }

    fn hash_state(&mut self) {
        for running in self.nodes.iter().filter_map(|node| node.running.as_ref()) {
            for thread in running.threads.values() {
                for slot in thread.engine.shard().slots() {
                    let state = slot.number.to_code() ^ slot.locked_until.0.rotate_left(20);
                    self.hash = mix(self.hash ^ state ^ slot.position.0.rotate_left(40));
                }
            }
        }
    }
}
