//! Starts, stops and repairs nodes, as operators would.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::{Config, Durability};
use ringwell_core::Millis;
use ringwell_directory::{Directory, bucket};
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::node::{Node as Process, Phase};
use ringwell_driver::open::{self, Believed, Opened, Read, StartError};
use ringwell_driver::store::{FileError, KeptNotes, OpenError, Settings};
use ringwell_driver::{lifecycle, witness};
use ringwell_engine::Reading;
use ringwell_journal::RecoverError;

use crate::event::Event;
use crate::fault::Kind;
use crate::files::{DATA, SimFiles};
use crate::judge::{pool_holds, rule};
use crate::machine::Life;
use crate::message::Sent;
use crate::model::{Judged, Loss, Recovery, SKEW_MAX_MS, Violation};
use crate::older::{Known, Older};
use crate::pace::{MS, SECOND};
use crate::process::{Running, Start};
use crate::stored;
use crate::world::{Boot, Node as Machine, World};

/// The maximum number of answered rows that each shard remembers for repeated batches. No run has
/// that many rows.
const ANSWER_ROWS_MAX: usize = 100_000;

/// The maximum delay before pools that were missing at startup are added to a node.
const LATE_US: u64 = 2 * SECOND;

/// The length of a segment, and the length of the journal between two snapshots. Both are small, so
/// that a run has many segments and snapshots.
const SEGMENT_BYTES: u64 = 64 << 10;
const SNAPSHOT_EVERY_BYTES: u64 = 12 << 10;

/// The way a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    /// The process's machine loses power.
    Power,
    /// The process is killed because its disk has failed. The disk is then mounted again.
    Remount,
}

/// The reason why a node did not start.
enum Refused {
    /// A journal is damaged.
    Damaged(u32, RecoverError<FileError>),
    /// The files do not match this node, its pools or its map.
    Wrong(String),
    /// The disk failed, and may work at the next attempt.
    Disk,
}

impl From<FileError> for Refused {
    fn from(_: FileError) -> Self {
        Self::Disk
    }
}

impl From<OpenError> for Refused {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused { shard, source, .. } => Self::Damaged(shard, source),
            OpenError::File(_) => Self::Disk,
        }
    }
}

impl From<StartError> for Refused {
    fn from(error: StartError) -> Self {
        match error {
            StartError::File(_) => Self::Disk,
            StartError::Overflow(_) | StartError::OldMap(_) | StartError::OfCluster(_) => {
                Self::Wrong(error.to_string())
            }
        }
    }
}

impl World {
    /// Starts a node.
    pub(crate) fn start(&mut self, node: usize) -> Judged {
        if self.faults.strikes(Kind::RotAtEnd) {
            let shards = self.cluster.shards_of(node);
            let random = self.faults.stream(Kind::RotAtEnd);
            let shard = shards[random.index(shards.len())];
            let rotten = self.nodes[node].files.disk().rot_at_end(random, shard);
            self.tell(node, &[], || format!("a bit flips at the end of {rotten:?}"));
        }
        if self.faults.strikes(Kind::Shorten) {
            let shards = self.cluster.shards_of(node);
            let random = self.faults.stream(Kind::Shorten);
            let shard = shards[random.index(shards.len())];
            let cut = self.nodes[node].files.disk().shorten(random, shard);
            self.tell(node, &[], || format!("{cut:?} loses its tail"));
        }
        match self.open(node) {
            Ok(judged) => judged,
            Err(Refused::Disk) => {
                let life = self.nodes[node].life;
                self.queue.add(self.now() + 300 * MS, Event::Start(node, life));
                Ok(())
            }
            Err(Refused::Wrong(text)) => {
                Err(Violation { rule: "refused", text, number: 0, shard: u16::MAX })
            }
            Err(Refused::Damaged(shard, error)) => {
                let shard = u16::try_from(shard).unwrap_or(u16::MAX);
                self.tell(node, &[], || format!("shard {shard} does not start: {error}"));
                if !self.nodes[node].files.disk().may_refuse() {
                    let text =
                        format!("the start was refused, although the disk had no fault: {error}");
                    return Err(Violation { rule: "refused", text, number: 0, shard });
                }
                self.nodes[node].is_refused = true;
                let life = self.nodes[node].life;
                self.queue.add(self.now() + 2 * SECOND, Event::Repair(node, life));
                Ok(())
            }
        }
    }

    fn open(&mut self, node: usize) -> Result<Judged, Refused> {
        let late = self.late_pools();
        let membership = self.cluster.membership(&self.nodes[node].map, node);
        let (files, config) = (self.nodes[node].files.clone(), self.config());
        let directory = self.cluster.directory(&late);
        let settings = Settings::of(&config, &directory);
        let placed = lifecycle::place(&files, &settings.data, directory, Some(&membership))?;
        let (directory, owners) = placed;
        let on_disk = open::shards_on_disk(&files, &settings.data)?;
        let own = self.cluster.shards_of(node);
        let clock_skew_max = Millis(SKEW_MAX_MS);
        let boot = self.nodes[node].boots.len() as u64;
        let believed = Believed { answer_rows_max: ANSWER_ROWS_MAX, clock_skew_max, boot };
        let mut reads = Vec::new();
        for shard in &own {
            let specs = open::specs(directory.pools_of(*shard));
            reads.push(open::read(&files, &settings, *shard, &specs, believed)?);
        }
        let journals: Vec<(u16, u64)> =
            reads.iter().map(|read| (read.shard, read.recovered.tip.next_n)).collect();
        if self.nodes[node].files.disk().has_lost_groups {
            // A node detects a power cut without the help of other nodes.
            let since_us = self.nodes[node].older.map_or(u64::MAX, |older| older.since_us);
            self.nodes[node].older = Some(Older { is_marked: true, since_us });
        }
        let older = self.nodes[node].older.filter(|older| !older.is_marked);
        let known = older.iter().flat_map(|_| &journals);
        let known = known.map(|(shard, next_n)| self.known_by(node, *shard, *next_n)).collect();
        let reading = self.reading(node);
        let mut recoveries: Vec<Recovery> =
            reads.iter().map(|read| self.recovery(node, read, &directory)).collect();
        let start = open::Start {
            files: &files,
            settings: &settings,
            directory: &directory,
            reading,
            on_disk: &on_disk,
            has_log: false,
            noted: &KeptNotes::default(),
            last_owner: None,
            member: Some((&own, membership.cluster().version())),
            withholds: false,
            only: None,
        };
        let begun = open::begin(reads, &start)?;
        let opened = (owners, begun.facts);
        let (mut shards, clocks) = (begun.shards, begun.clocks);
        let now = clocks.shard(reading.since_boot);
        for (opened, recovery) in shards.iter_mut().zip(&mut recoveries) {
            let slots = opened.engine.shard().slots().iter();
            let known = slots.map(|s| (s.number.to_code(), s.allocated_at.0, s.locked_until.0));
            recovery.numbers = known.collect();
            let now = opened.engine.at(now);
            recovery.now_ms = now.0;
            recovery.holds = pool_holds(opened.engine.shard(), now);
        }
        let process = Process::new(config, directory, &own, Some(membership), opened);
        let clock = Clock::going_on(clocks, reading.since_boot);
        self.begin(node, process, shards, (clock, known));
        let judged = self.shared.model.borrow_mut().recovered_all(&recoveries);
        Ok(judged)
    }

    fn config(&self) -> Config {
        let mut config = Config::new(PathBuf::from(DATA), 1);
        config.durability = self.durability;
        config.journal.segment_bytes = SEGMENT_BYTES;
        config.journal.snapshot_every_bytes = SNAPSHOT_EVERY_BYTES;
        config.journal.history_bytes = 6 * SEGMENT_BYTES;
        if let Some(age_us) = self.pace.history_age_us() {
            config.journal.history_age = Millis(age_us / MS);
        }
        config.limits.idempotency_rows = ANSWER_ROWS_MAX;
        config.clock_skew_max = Duration::from_millis(SKEW_MAX_MS);
        config
    }

    /// Starts a process with the shards that were opened.
    fn begin(
        &mut self,
        node: usize,
        process: Process,
        shards: Vec<Opened<SimFiles>>,
        (clock, known): (Clock, Vec<Known>),
    ) {
        let life = Rc::new(Life {
            node,
            number: self.nodes[node].life,
            is_dead: Cell::new(false),
            is_listing: Cell::new(false),
            newest_list: Cell::default(),
            away: RefCell::default(),
        });
        let start = Start {
            shared: &self.shared,
            files: &self.nodes[node].files,
            cluster: &self.cluster,
            node: Arc::new(process),
            life: Rc::clone(&life),
            clock,
        };
        let threads = start.threads(shards);
        let running = Running {
            node: start.node,
            life,
            starting: threads.len(),
            threads,
            batches: BTreeSet::new(),
            is_serving: false,
            stopping: None,
            is_unsaved: false,
            is_failing: false,
            began_us: self.now(),
            known,
        };
        self.nodes[node].running = Some(running);
        self.nodes[node].files.disk().accept();
        self.tell(node, &[], || "starts".to_owned());
    }

    /// Returns the reading of a machine's clocks at startup.
    fn reading(&self, node: usize) -> Reading {
        let boot = self.nodes[node].boots.len() as u64;
        let since_boot = Duration::from_micros(self.shared.since_boot_us(node));
        reading(boot, since_boot, Duration::from_micros(self.shared.wall_us(node)))
    }

    /// Builds the report that the model receives about a shard whose files were read.
    fn recovery(&self, node: usize, read: &Read<SimFiles>, directory: &Directory) -> Recovery {
        let specs = open::specs(directory.pools_of(read.shard));
        Recovery {
            shard: read.shard,
            next_n: read.recovered.tip.next_n,
            loss: self.loss(node, read),
            lost_since_us: self.nodes[node].older.map_or(u64::MAX, |older| older.since_us),
            now_us: self.now(),
            now_ms: 0,
            boots: self.nodes[node].boots.len(),
            numbers: Vec::new(),
            holds: Vec::new(),
            pools: specs
                .iter()
                .filter(|spec| self.nodes[node].is_own_bucket(bucket(spec.id)))
                .map(|spec| (spec.id.0, rule(spec, self.bug)))
                .collect(),
        }
    }

    /// Returns the reason why a shard may have lost groups whose answers were sent.
    fn loss(&self, node: usize, read: &Read<SimFiles>) -> Loss {
        if self.durability == Durability::Memory {
            return Loss::All;
        }
        let older = self.nodes[node].older;
        if read.recovered.is_in_doubt() || older.is_some_and(|older| older.is_marked) {
            return Loss::Doubted;
        }
        if self.nodes[node].files.disk().lies > 0 {
            return Loss::Lied;
        }
        if older.is_some() { Loss::Older } else { Loss::Nothing }
    }

    /// Handles a shard that is ready to serve. When all shards of a node are ready, the node begins
    /// to serve.
    pub(crate) fn is_ready(&mut self, node: usize, life: u32) {
        let files = self.nodes[node].files.clone();
        let is_now = self.nodes[node].life == life;
        let Some(running) = self.nodes[node].running.as_mut().filter(|_| is_now) else { return };
        running.starting = running.starting.saturating_sub(1);
        if running.starting > 0 || running.stopping.is_some() {
            return;
        }
        lifecycle::unmark(&files, &running.node);
        running.node.enter(Phase::Serving);
        running.is_serving = true;
        files.disk().has_served = true;
        let known = running.directory().pool_count();
        self.tell(node, &[], || "serves".to_owned());
        let is_asked =
            self.nodes[node].running.as_ref().is_some_and(|it| it.life.away.borrow().is_empty());
        if self.nodes[node].before_moves.take().is_some() {
            self.is_beyond |= !is_asked;
            let judged = if is_asked { self.judge_all_pools(node) } else { Ok(()) };
            self.shared.judge(judged);
        }
        self.excuse_older(node);
        let judged = self.judge_serving(node);
        self.shared.judge(judged);
        self.crash_after(node);
        let serves = |node: &Machine| node.running.as_ref().is_some_and(|it| it.is_serving);
        let all_serve = self.nodes.iter().all(serves);
        if self.faults.strikes(Kind::Hasty) || (self.absent.is_some() && all_serve) {
            let soon = self.faults.stream(Kind::Hasty).below(300 * MS);
            self.queue.add(self.now() + soon, Event::Hasty(node, life));
        }
        if known < self.cluster.pools.len() && self.faults.is_on(Kind::LateList) {
            let life = self.nodes[node].life;
            let late = self.faults.stream(Kind::LateList).below(LATE_US);
            self.queue.add(self.now() + late, Event::ListArrives(node, life));
        } else if self.cluster.lists > 0 {
            // The list of pools may have changed since startup began.
            self.bring_list(node);
        }
    }

    /// Draws the pools to omit from the list that a node reads at startup.
    fn late_pools(&mut self) -> BTreeSet<u64> {
        if !self.faults.strikes(Kind::LateList) {
            return BTreeSet::new();
        }
        let random = self.faults.stream(Kind::LateList);
        self.cluster.pools.keys().copied().filter(|_| random.chance(500_000)).collect()
    }

    /// Sends the complete list of pools to a node.
    pub(crate) fn list_arrives(&mut self, node: usize, life: u32) {
        if self.nodes[node].life == life {
            self.tell(node, &[], || "receives the complete list of pools".to_owned());
            self.bring_list(node);
        }
    }

    /// Shuts a process down properly, as an operator would: requests in progress are answered, and
    /// then all state is saved.
    pub(crate) fn drain(&mut self, node: usize) {
        let Some(running) = self.nodes[node].running.as_mut() else { return };
        if !running.is_serving || running.stopping.is_some() {
            return;
        }
        running.node.enter(Phase::Draining);
        running.is_serving = false;
        running.stopping = Some(running.threads.len());
        for thread in running.threads.values() {
            let (sim, shard, journal) =
                (thread.sim.clone(), Rc::clone(&thread.shard), Rc::clone(&thread.journal));
            let (life, is_open) = (running.life.number, Rc::clone(&thread.is_open));
            thread.sim.executor.spawn(async move {
                // Every batch is answered within this time.
                sim.executor.sleep_until(sim.executor.now() + Duration::from_millis(200)).await;
                is_open.set(false);
                sim.executor.sleep_until(sim.executor.now() + Duration::from_millis(200)).await;
                if shard.node.shards().next() == Some(shard.id) {
                    witness::end(&sim, &shard.node, &shard.peers).await;
                }
                let is_saved = lifecycle::save(&shard, &*journal).await;
                sim.send(Sent::Saved { node, life, is_saved });
            });
        }
        self.tell(node, &[], || "drains".to_owned());
    }

    /// Handles the result of a shard's attempt to save its state while its node shuts down.
    pub(crate) fn is_saved(&mut self, node: usize, life: u32, is_saved: bool) {
        let is_now = self.nodes[node].life == life;
        let files = self.nodes[node].files.clone();
        let Some(running) = self.nodes[node].running.as_mut().filter(|_| is_now) else { return };
        let left = running.stopping.map_or(0, |left| left.saturating_sub(1));
        running.stopping = Some(left);
        running.is_unsaved |= !is_saved;
        if left > 0 {
            return;
        }
        let mut stores = running.threads.values().map(|thread| stored::close(&thread.journal));
        let is_orderly = !running.is_unsaved && stores.all(|closed| closed.is_ok());
        if is_orderly {
            lifecycle::end(&files, &running.node);
        }
        // If a machine is switched off after an orderly shutdown, nothing is lost.
        let is_os = self.durability == Durability::Os;
        let is_off = is_os && self.faults.stream(Kind::Stop).chance(500_000);
        self.stop(node, is_off);
        if is_orderly {
            let mut disk = self.nodes[node].files.disk();
            (disk.has_served, disk.has_lost_groups) = (false, false);
        }
    }

    /// Ends a process by killing it or by cutting its machine's power. The process starts again
    /// after a while.
    pub(crate) fn stop(&mut self, node: usize, is_power: bool) {
        self.end_process(node, if is_power { End::Power } else { End::Kill });
    }

    /// Mounts a failed disk again, unless the disk was replaced in the meantime. Unflushed data is
    /// lost as after a power cut, but the machine is not rebooted.
    pub(crate) fn remount(&mut self, node: usize) {
        if self.nodes[node].files.disk().is_dead {
            self.end_process(node, End::Remount);
        }
    }

    fn end_process(&mut self, node: usize, end: End) {
        let had = self.nodes[node].running.take();
        self.nodes[node].life += 1;
        for shard in self.cluster.shards_of(node) {
            self.shared.model.borrow_mut().stopped(shard);
        }
        self.nodes[node].paused_until = 0;
        let why = match end {
            End::Kill => "is killed",
            End::Power => "loses power",
            End::Remount => "is killed, and its disk is mounted again",
        };
        self.tell(node, &[], || why.to_owned());
        if let Some(running) = had {
            running.batches.iter().for_each(|batch| self.clients.unsent(*batch));
            bury(running);
        }
        if end == End::Power {
            self.inject_boot_fault(node);
            let was_wrong = self.shared.clocks[node].skew_us.get() != 0;
            let boot = Boot { at: self.now(), was_wrong };
            self.nodes[node].boots.push(boot);
            self.shared.clocks[node].booted_at.set(self.now());
        }
        match end {
            End::Kill => self.nodes[node].files.disk().kill(self.faults.stream(Kind::Kill)),
            End::Power | End::Remount => {
                self.nodes[node].files.disk().power_cut(&mut self.faults);
            }
        }
        self.nodes[node].files.next_life();
        self.break_calls(node, end == End::Power);
        let life = self.nodes[node].life;
        let down = self.chance.between(20 * MS, 3 * SECOND);
        let down = self.pace.down_us(self.now(), down, self.clients.length_us);
        self.queue.add(self.now() + down, Event::Start(node, life));
    }

    /// Restores damaged data or discards the node's data, as an operator would.
    pub(crate) fn repair(&mut self, node: usize) {
        let can_mend = self.nodes[node].files.disk().can_mend() && self.nodes[node].older.is_none();
        if self.now() < self.shortened_until && !can_mend {
            // The repair may discard the node's data, and the node then gets a new map. The repair
            // must therefore wait until no lockout lasts longer than its pool's lifetime.
            let life = self.nodes[node].life;
            return self.queue.add(self.shortened_until, Event::Repair(node, life));
        }
        self.nodes[node].is_refused = false;
        let can_restore = self.chance.chance(500_000) || self.now() < self.shortened_until;
        // If the data lacks answers that were sent, the operator would have to mark a restored
        // copy. Instead, the node starts with an empty disk.
        let is_whole = self.nodes[node].files.disk().mend() && self.nodes[node].older.is_none();
        if can_restore && is_whole {
            self.tell(node, &[], || "gets its files back from a copy".to_owned());
        } else {
            self.begin_anew(node);
            if self.faults.are_over {
                self.roll_out();
            }
        }
        let life = self.nodes[node].life;
        self.queue.add(self.now() + 100 * MS, Event::Start(node, life));
    }

    fn begin_anew(&mut self, node: usize) {
        self.tell(node, &[], || "begins again with an empty disk and a new map".to_owned());
        let owners = self.owners_now();
        self.nodes[node].files.disk().wipe();
        self.nodes[node].older = None;
        self.nodes[node].before_moves = None;
        self.nodes[node].map = self.cluster.change(owners);
        self.holds_unknown();
        for shard in self.cluster.shards_of(node) {
            self.shared.model.borrow_mut().wiped(shard);
        }
    }

    /// Replaces a node's disk with an empty one, and restarts the node.
    pub(crate) fn lose_disk(&mut self, node: usize) {
        if self.faults.are_over || self.is_in_between() || self.nodes[node].is_refused {
            self.absent = None;
            return;
        }
        self.stop(node, false);
        self.begin_anew(node);
        // Moves require that all nodes have the same map.
        self.roll_out();
    }

    /// Handles a step that a process has just completed. May schedule a crash of the process or its
    /// machine shortly afterwards.
    pub(crate) fn crash_after(&mut self, node: usize) {
        if self.faults.strikes(Kind::CrashAfter) {
            let random = self.faults.stream(Kind::CrashAfter);
            let soon = if random.chance(700_000) { 20 * MS } else { 1_500 * MS };
            let soon = random.below(soon);
            let life = self.nodes[node].life;
            self.queue.add(self.now() + soon, Event::CrashAfter(node, life));
        }
    }
}

/// Drops all tasks of a process that has ended. After that, nothing may refer to its shards.
fn bury(running: Running) {
    running.end();
    for (id, thread) in running.threads {
        let others = Rc::strong_count(&thread.shard) - 1;
        assert_eq!(others, 0, "shard {id} is still referenced after the end of its process");
    }
}
