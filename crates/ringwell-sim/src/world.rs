//! The world of one run: the machines and their disks, the network, the clients, and time.
//!
//! It polls the tasks of processes one at a time. After a poll, the task's thread is busy for a
//! while, and other threads continue. A thread usually polls the first of its ready tasks, so that
//! no task starves. Sometimes it polls a random one, so that no code can rely on the order of
//! tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::PoolId;
use ringwell_directory::Owner;
use ringwell_driver::{Bug, Moment};

use crate::batches::Clients;
use crate::cluster::{Cluster, Map};
use crate::event::{Event, Queue};
use crate::fault::{Faults, Kind};
use crate::files::SimFiles;
use crate::links::Links;
use crate::machine::Shared;
use crate::message::Sent;
use crate::model::{Judged, Violation};
use crate::older::Older;
use crate::options::Options;
use crate::pace::{MS, Pace, SECOND};
use crate::process::{Running, Thread};
use crate::random::{Random, mix};
use crate::removed::Removed;

/// The maximum duration of a poll on a thread that is not slow.
const POLL_US: u64 = 20;

/// The maximum number of concurrent look-ups.
const LOOK_UPS: usize = 64;

/// A machine.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) files: SimFiles,
    /// The machine's boots. Each entry contains the time of a boot, and whether the wall clock was
    /// ever wrong before the next boot. The last entry is the current boot.
    pub(crate) boots: Vec<Boot>,
    /// Increases whenever the process ends, so that events for an earlier process are dropped.
    pub(crate) life: u32,
    pub(crate) running: Option<Running>,
    pub(crate) paused_until: u64,
    /// The map in the cluster file, which is read at the next start.
    pub(crate) map: Rc<Map>,
    /// Whether the node refused to start and waits for an operator.
    pub(crate) is_refused: bool,
    /// Set when the node's data may lack answers that the node has sent. Cleared when the node
    /// serves again.
    pub(crate) older: Option<Older>,
    /// The buckets that the node owned before. Set if the node's data is from before a move, or if
    /// a new map gives the node a bucket that another node still serves.
    pub(crate) before_moves: Option<BTreeSet<u16>>,
    /// The time at which the newest list of pools reaches the machine after a suspension.
    pub(crate) list_from: u64,
}

impl Node {
    /// Whether the node may own a bucket: `false` only if [`Self::before_moves`] lacks the bucket.
    pub(crate) fn is_own_bucket(&self, bucket: u16) -> bool {
        self.before_moves.as_ref().is_none_or(|own| own.contains(&bucket))
    }
}

/// One boot of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    pub(crate) at: u64,
    pub(crate) was_wrong: bool,
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) shared: Rc<Shared>,
    pub(crate) queue: Queue,
    pub(crate) nodes: Vec<Node>,
    pub(crate) cluster: Cluster,
    pub(crate) pace: Pace,
    pub(crate) clients: Clients,
    pub(crate) faults: Faults,
    pub(crate) bug: Option<Bug>,
    /// The durability of all nodes.
    pub(crate) durability: Durability,
    pub(crate) chance: Random,
    /// For each pair of nodes, the time until which no frame from the first node reaches the
    /// second.
    pub(crate) cuts: BTreeMap<(usize, usize), u64>,
    pub(crate) map_change: Option<usize>,
    /// Counts the moves in progress: each move that an operator has requested holds a reference to
    /// this until the request is answered.
    pub(crate) commands: Rc<()>,
    /// Whether a list of pools is on its way to the nodes.
    pub(crate) is_listing: bool,
    pub(crate) pools_removed: Removed,
    /// A pool that was not in the list when its node lost its disk. The pool's bucket moves before
    /// the pool is added to the list again.
    pub(crate) absent: Option<u64>,
    /// The latest time at which a lockout that is longer than its pool's lifetime may end.
    pub(crate) shortened_until: u64,
    /// The time until which pools may be held because of unknown lockouts, if lifetimes do not
    /// change.
    pub(crate) unknown_until: u64,
    /// The results of look-ups.
    pub(crate) looked: BTreeMap<usize, Result<ringwell_engine::Past, String>>,
    /// The calls that were made during the run.
    pub(crate) rung: Vec<crate::event::Rung>,
    pub(crate) attributed_calls: u64,
    /// The link requests that are in progress, or that got no fast answer.
    pub(crate) links: Links,
    /// The random stream that determines the task and the duration of each poll.
    turns: Random,
    pub(crate) polls: u64,
    /// Whether the promises no longer apply, because a node with data from before a move could not
    /// query all other nodes about its journals.
    pub(crate) is_beyond: bool,
}

fn draw_durability(faults: &mut Faults) -> Durability {
    if faults.note_if_on(Kind::Memory) {
        Durability::Memory
    } else if faults.note_if_on(Kind::Os) {
        Durability::Os
    } else {
        Durability::Disk
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for running in self.nodes.iter().filter_map(|node| node.running.as_ref()) {
            running.end();
        }
    }
}

impl World {
    pub(crate) fn new(options: &Options) -> Self {
        let mut random = Random::new(options.seed, 2);
        let only = options.only_faults.clone();
        let mut faults = Faults::draw(options.seed, &options.on, &options.off, only.clone());
        let pace = Pace::new(options.seed, options.has_hours);
        let are_large = faults.note_if_on(Kind::LargePools);
        let cluster = Cluster::draw(&mut random, pace.lifetimes_ms(), are_large);
        let map = cluster.newest();
        let durability = draw_durability(&mut faults);
        let call_faults = Faults::draw(options.seed, &options.on, &options.off, only);
        let shared =
            Rc::new(Shared::new(options.seed, cluster.nodes, call_faults, options.keeps_tale));
        let salts = std::sync::Arc::new(std::sync::Mutex::new(Random::new(options.seed, 3)));
        let node = || Node {
            files: SimFiles::new(&shared.call_faults, &salts),
            boots: vec![Boot { at: 0, was_wrong: false }],
            life: 0,
            running: None,
            paused_until: 0,
            map: Rc::clone(&map),
            is_refused: false,
            older: None,
            before_moves: None,
            list_from: 0,
        };
        let nodes: Vec<Node> = (0..cluster.nodes).map(|_| node()).collect();
        for node in &nodes {
            node.files.disk().is_os = durability == Durability::Os;
        }
        let mut world = Self {
            queue: Queue::default(),
            nodes,
            clients: Clients::draw(options, &cluster, &pace),
            cluster,
            pace,
            bug: options.bug,
            durability,
            shared,
            chance: Random::new(options.seed, 4),
            cuts: BTreeMap::new(),
            map_change: None,
            commands: Rc::new(()),
            is_listing: false,
            pools_removed: Removed::default(),
            absent: None,
            shortened_until: 0,
            unknown_until: 0,
            looked: BTreeMap::new(),
            rung: Vec::new(),
            attributed_calls: 0,
            links: Links::default(),
            turns: Random::new(options.seed, 8),
            polls: 0,
            is_beyond: false,
            faults,
        };
        for node in 0..world.nodes.len() {
            world.queue.add(0, Event::Start(node, 0));
        }
        let run_us = world.clients.length_us;
        let calm_us = world.calm_us();
        world.queue.add(SECOND, Event::Second);
        world.queue.add(50 * MS, Event::Client);
        world.queue.add(run_us, Event::Calm);
        for round in 0..3 {
            world.queue.add(run_us + calm_us + round * SECOND, Event::Probe);
        }
        world
    }

    /// Returns the true time since the run began, in microseconds.
    pub(crate) fn now(&self) -> u64 {
        self.shared.now.get()
    }

    /// Returns the time between the last fault and the first probe.
    fn calm_us(&self) -> u64 {
        self.pace.calm_us(self.cluster.lifetime_max_ms())
    }

    /// Simulates until the end of the run, or until a promise is broken.
    pub(crate) fn run(&mut self) -> Judged {
        let end = self.clients.length_us + self.calm_us() + 4 * SECOND;
        self.run_until(end, |world| world.is_beyond)?;
        if self.is_beyond {
            self.hash_state();
            return Ok(());
        }
        self.check_all_answered()?;
        self.check_probes()?;
        self.check_calls()?;
        self.check_attributions()?;
        self.hash_state();
        Ok(())
    }

    /// Processes events until the time `end`, or until `is_over` returns `true`.
    fn run_until(&mut self, end: u64, is_over: impl Fn(&Self) -> bool) -> Judged {
        while !is_over(self) {
            let event = self.queue.next_at();
            let turn = self.next_turn();
            let at = event.into_iter().chain(turn.map(|(at, ..)| at)).min();
            let Some(at) = at.filter(|at| *at <= end) else { return Ok(()) };
            self.shared.now.set(self.now().max(at));
            match turn {
                Some((due, node, shard)) if event.is_none_or(|event| due < event) => {
                    self.poll(node, shard);
                }
                _ => {
                    let Some((number, event)) = self.queue.next() else { return Ok(()) };
                    self.shared.mix(at ^ number.rotate_left(40));
                    self.happen(event)?;
                }
            }
            self.after()?;
        }
        Ok(())
    }

    /// Returns the earliest time at which a thread has work, and the thread's node and shard.
    fn next_turn(&self) -> Option<(u64, usize, u16)> {
        let now = self.now();
        let mut first: Option<(u64, usize, u16)> = None;
        for (place, node) in self.nodes.iter().enumerate() {
            let Some(running) = &node.running else { continue };
            for (shard, thread) in &running.threads {
                let executor = &thread.sim.executor;
                let due = if executor.ready() > 0 {
                    now
                } else {
                    match executor.next_timer() {
                        Some(Moment(at)) => {
                            u64::try_from(at.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
                        }
                        None => continue,
                    }
                };
                let due = due.max(thread.busy_until).max(node.paused_until).max(now);
                if first.is_none_or(|(before, ..)| due < before) {
                    first = Some((due, place, *shard));
                }
            }
        }
        first
    }

    /// Polls one of a thread's tasks.
    fn poll(&mut self, node: usize, shard: u16) {
        let now = self.now();
        let takes = self.turns.between(1, POLL_US);
        let is_in_order = self.turns.below(4) > 0;
        let drawn = self.turns.next();
        let running = self.nodes[node].running.as_mut();
        let Some(thread) = running.and_then(|running| running.threads.get_mut(&shard)) else {
            return;
        };
        let executor = thread.sim.executor.clone();
        let takes = if thread.slow_until > now { thread.slow_by } else { takes };
        thread.busy_until = now + takes;
        if takes > POLL_US {
            thread.stalled_until = now + takes;
        }
        thread.was_idle_at = thread.idle_at;
        executor.advance(Moment(Duration::from_micros(now)));
        let place = |count: usize| {
            let drawn = usize::try_from(drawn % count.max(1) as u64).unwrap_or(0);
            if is_in_order { 0 } else { drawn }
        };
        let _ = executor.poll_drawn(place);
        if executor.ready() == 0 {
            thread.idle_at = now;
        }
        self.polls += 1;
        self.shared.mix(now ^ u64::from(shard).rotate_left(20));
    }

    /// Handles the effects of a poll or of an event.
    fn after(&mut self) -> Judged {
        self.judge_changes()?;
        if let Some(violation) = self.shared.broken.borrow_mut().take() {
            return Err(violation);
        }
        loop {
            let sent = std::mem::take(&mut *self.shared.outbox.borrow_mut());
            if sent.is_empty() {
                break;
            }
            sent.into_iter().try_for_each(|sent| self.see_to(sent))?;
        }
        self.clients_go_on();
        self.bury_stopped();
        Ok(())
    }

    fn see_to(&mut self, sent: Sent) -> Judged {
        match sent {
            Sent::Call { call, from, thread, shard, path, body } => {
                self.judge_call(call, (from, thread, shard), path, &body)?;
                self.send_call(call, from, shard, path, &body);
            }
            Sent::Reply { call, from, replied } => self.send_reply(call, from, &replied),
            Sent::Answered(answered) => self.answer_leaves(answered)?,
            Sent::Aborted { node, batch } => self.aborted(node, batch),
            Sent::Ready { node, life } => self.is_ready(node, life),
            Sent::Saved { node, life, is_saved } => self.is_saved(node, life, is_saved),
            Sent::GivesUp { node, life } if self.nodes[node].life == life => {
                self.stop(node, false);
            }
            Sent::GivesUp { .. } => {}
            Sent::WantsList { node, life, request } => self.read_list_again(node, life, request),
            Sent::Looked { which, found } => drop(self.looked.insert(which, found)),
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Judged {
        match event {
            Event::Client => self.next_batch(),
            Event::Again(batch) => self.send_again(batch),
            Event::Batch { node, life, shard, batch } => {
                self.batch_arrives(node, life, shard, batch);
            }
            Event::Second => self.inject(),
            Event::Start(node, life) if self.nodes[node].life == life => self.start(node)?,
            Event::Restart(node, life) if self.nodes[node].life == life => self.stop(node, false),
            Event::Repair(node, life) if self.nodes[node].life == life => self.repair(node),
            Event::Request { call, node, life, shard, path, body } => {
                self.request_arrives((call, node, life), shard, path, body);
            }
            Event::Replied { call, replied } => self.reply_arrives(call, replied),
            Event::Unseen { node, life, batch } => self.judge_unseen(node, life, batch)?,
            Event::Manage => self.manage_on(),
            Event::LendOn(pool, lent, drawn) => self.lend_on(pool, &lent, drawn),
            Event::MapArrives(node) => self.map_arrives(node),
            Event::RollOut => self.roll_out(),
            Event::ListArrives(node, life) | Event::ListReaches(node, life) => {
                self.list_arrives(node, life);
            }
            Event::Release { number, at_ms } => self.release_by_client(number, at_ms),
            Event::Calm => self.calm(),
            Event::CrashAfter(node, life) if self.nodes[node].life == life => {
                let is_power = self.faults.stream(Kind::CrashAfter).chance(500_000);
                self.stop(node, is_power);
            }
            Event::Hasty(node, life) if self.nodes[node].life == life => self.act_after_start(node),
            Event::Start(..)
            | Event::Restart(..)
            | Event::Repair(..)
            | Event::CrashAfter(..)
            | Event::Hasty(..) => {}
            Event::Remount(node) => self.remount(node),
            Event::LostDisk(node) => self.lose_disk(node),
            Event::CopyBack(copied) => self.copy_back(&copied),
            Event::JournalCopyBack(copied) => self.put_journal_back(&copied),
            Event::BroughtBack(lost) => self.bring_back(&lost),
            Event::ListSpread => self.is_listing = false,
            Event::Probe => self.probe(),
        }
        Ok(())
    }

    /// Ends the processes whose disk stopped during a call to the file system.
    fn bury_stopped(&mut self) {
        for node in 0..self.nodes.len() {
            let (has_stopped, has_published) = {
                let mut disk = self.nodes[node].files.disk();
                (disk.has_stopped, std::mem::take(&mut disk.has_published))
            };
            if has_published && self.nodes[node].running.is_some() {
                self.crash_after(node);
            }
            if has_stopped {
                let is_power = self.chance.chance(500_000);
                self.stop(node, is_power);
            }
        }
    }

    /// Performs `count` look-ups, a few at a time.
    pub(crate) fn look_up(
        &mut self,
        count: usize,
        mut begin: impl FnMut(&mut Self, usize),
    ) -> Judged {
        for from in (0..count).step_by(LOOK_UPS) {
            let until = count.min(from + LOOK_UPS);
            for which in from..until {
                begin(self, which);
            }
            let end = self.now() + 60 * SECOND;
            self.run_until(end, |world| (from..until).all(|it| world.looked.contains_key(&it)))?;
        }
        Ok(())
    }

    /// Whether a machine's wall clock was right during the whole boot that includes `true_us`. Also
    /// `true` if the clock is correct at present and the machine has not rebooted since `true_us`.
    pub(crate) fn is_dated(&self, node: usize, true_us: u64) -> bool {
        let boots = &self.nodes[node].boots;
        let is_last = boots.last().is_none_or(|boot| boot.at <= true_us);
        let is_now = is_last && self.shared.clocks[node].skew_us.get() == 0;
        is_now || self.was_right(node, true_us)
    }

    /// Whether a machine's wall clock was right during the whole boot that includes `true_us`.
    pub(crate) fn was_right(&self, node: usize, true_us: u64) -> bool {
        let boots = &self.nodes[node].boots;
        let after = boots.partition_point(|boot| boot.at <= true_us);
        after.checked_sub(1).is_some_and(|index| !boots[index].was_wrong)
    }

    pub(crate) fn thread(&mut self, node: usize, shard: u16) -> Option<&mut Thread> {
        self.nodes[node].running.as_mut()?.threads.get_mut(&shard)
    }

    /// Returns the owner of a pool's bucket according to a running node.
    pub(crate) fn owner(&self, node: usize, pool: u64) -> Option<Owner> {
        let running = self.nodes[node].running.as_ref()?;
        running.node.owners()?.get(ringwell_directory::bucket(PoolId(pool)))
    }

    /// Adds a line to the story, if the story is recorded.
    pub(crate) fn tell(&mut self, node: usize, about: &[u64], text: impl FnOnce() -> String) {
        self.shared.tell(node, about, text);
    }

    fn check_all_answered(&self) -> Judged {
        let waiting = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let batch = waiting.flat_map(|running| &running.batches).next();
        batch.map_or(Ok(()), |batch| {
            let text = format!("batch {batch} was never answered");
            Err(Violation { rule: "no answer", text, number: 0, shard: 0 })
        })
    }

    fn hash_state(&mut self) {
        for running in self.nodes.iter().filter_map(|node| node.running.as_ref()) {
            for thread in running.threads.values() {
                for slot in thread.shard.engine.borrow().shard().slots() {
                    let state = slot.number.to_code() ^ slot.locked_until.0.rotate_left(20);
                    self.shared.mix(mix(state) ^ slot.position.0.rotate_left(40));
                }
            }
        }
    }
}
