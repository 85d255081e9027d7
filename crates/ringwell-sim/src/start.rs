//! Starts of nodes, their ends, and what operators do about them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_driver::open::{self, Begun, Believed, Read, Start, StartError};
use ringwell_driver::store::{FileError, OpenError, Settings};
use ringwell_journal::{Durability, RecoverError};

use crate::change::Want;
use crate::cluster::rule;
use crate::event::Event;
use crate::fault::Kind;
use crate::files::{DATA, SimFiles};
use crate::model::{Judged, Recovery, SKEW_MAX_MS, Violation};
use crate::served::read_served;
use crate::step::pool_holds;
use crate::thread::Thread;
use crate::world::{Boot, MS, Running, SECOND, World};

/// Rows of batches that may be sent again, for each shard: more than a run has.
const ANSWER_ROWS_MAX: usize = 100_000;

/// Pools that a start did not know come to the node until then.
const LATE_US: u64 = 2 * SECOND;

/// Short, so that clocks are wrong by less and by more.
const SKEW_MAX: Millis = Millis(SKEW_MAX_MS);

/// Why a node does not start.
enum Refused {
    /// A journal is damaged.
    Damaged(u32, RecoverError<FileError>),
    /// The files are not those of this node, its pools and its map.
    Wrong(String),
    /// The disk does not do what it should; it may, next time.
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
            StartError::Overflow(_) | StartError::OldMap(_) => Self::Wrong(error.to_string()),
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
                self.queue.add(self.now + 300 * MS, Event::Start(node, life));
                Ok(())
            }
            Err(Refused::Wrong(text)) => {
                Err(Violation { rule: "refused", text, number: 0, shard: u16::MAX })
            }
            Err(Refused::Damaged(shard, error)) => {
                let shard = u16::try_from(shard).unwrap_or(u16::MAX);
                self.tell(node, &[], || format!("shard {shard} does not start: {error}"));
                if !self.nodes[node].files.disk().is_to_blame() {
                    let text = format!("refused on a disk that did nothing wrong: {error}");
                    return Err(Violation { rule: "refused", text, number: 0, shard });
                }
                self.nodes[node].is_refused = true;
                let life = self.nodes[node].life;
                self.queue.add(self.now + 2 * SECOND, Event::Repair(node, life));
                Ok(())
            }
        }
    }

    fn open(&mut self, node: usize) -> Result<Judged, Refused> {
        let owners = self.owners_at_start(node);
        let late = self.late_pools();
        let directory = Arc::new(self.cluster.directory(&owners, &late, self.bug));
        let (files, settings) = (self.nodes[node].files.clone(), settings());
        let on_disk = open::shards_on_disk(&files, &settings.data)?;
        let own = self.cluster.shards_of(node);
        let believed = Believed { answer_rows_max: ANSWER_ROWS_MAX, clock_skew_max: SKEW_MAX };
        let mut reads = Vec::new();
        for shard in &own {
            let specs = open::specs(directory.pools_of(*shard));
            reads.push(open::read(&files, &settings, *shard, &specs, believed)?);
        }
        let reading = self.reading(node);
        let mut recoveries: Vec<Recovery> =
            reads.iter().map(|read| self.recovery(node, read, &directory)).collect();
        let start = Start {
            files: &files,
            settings: &settings,
            directory: &directory,
            reading,
            on_disk: &on_disk,
            has_log: false,
            member: Some((&own, owners.version())),
        };
        let Begun { shards, clocks, holds, .. } = open::begin(reads, &start)?;
        let now = clocks.shard(reading.since_boot);
        let mut threads = BTreeMap::new();
        for (opened, recovery) in shards.into_iter().zip(&mut recoveries) {
            let slots = opened.engine.shard().slots().iter();
            let known = slots.map(|s| (s.number.to_code(), s.allocated_at.0, s.locked_until.0));
            recovery.numbers = known.collect();
            let mut thread = Thread::new(opened, Arc::clone(&directory), self.bug);
            let now = thread.engine.at(now);
            recovery.now_ms = now.0;
            recovery.holds = pool_holds(thread.engine.shard(), now);
            threads.insert(thread.shard, thread);
        }
        let running = Running {
            clocks,
            slewed_at: reading.since_boot,
            owners,
            holds,
            directory,
            threads,
            batches: BTreeMap::new(),
            handlers: BTreeMap::new(),
            is_serving: false,
            changing: None,
            changes: VecDeque::new(),
            giving: None,
            posted: BTreeMap::new(),
        };
        self.nodes[node].running = Some(running);
        self.nodes[node].files.disk().accept();
        self.tell(node, &[], || "starts".to_owned());
        Ok(self.begin(node, &recoveries))
    }

    /// What the model hears of a shard whose files have been read.
    fn recovery(&self, node: usize, read: &Read<SimFiles>, directory: &Directory) -> Recovery {
        let specs = open::specs(directory.pools_of(read.shard));
        Recovery {
            shard: read.shard,
            next_n: read.recovered.tip.next_n,
            is_rotten: read.recovered.is_in_doubt(),
            disk_lied: self.nodes[node].files.disk().lies > 0,
            now_us: self.now,
            now_ms: 0,
            boots: self.nodes[node].boots.len(),
            numbers: Vec::new(),
            holds: Vec::new(),
            pools: specs.iter().map(|spec| (spec.id.0, rule(spec, self.bug))).collect(),
        }
    }

    /// The model hears what there is; each shard takes its first snapshot.
    fn begin(&mut self, node: usize, recoveries: &[Recovery]) -> Judged {
        self.model.recovered_all(recoveries)?;
        for shard in self.cluster.shards_of(node) {
            let running = self.running(node);
            let Some(mut thread) = running.and_then(|r| r.threads.remove(&shard)) else { continue };
            self.snapshot_begin(node, &mut thread);
            if let Some(running) = self.running(node) {
                running.threads.insert(shard, thread);
            }
        }
        Ok(())
    }

    /// A shard serves. When all of a node do, it writes down by which map.
    pub(crate) fn shard_is_ready(&mut self, node: usize, last: &Thread) {
        let Some(running) = self.running(node) else { return };
        let others = running.threads.values().all(|thread| thread.is_ready);
        if !others || running.is_serving {
            return;
        }
        running.is_serving = true;
        let failed = running.threads.values().any(|thread| thread.refusal.is_some());
        let owners = running.owners.clone();
        if !failed && last.refusal.is_none() {
            let before = read_served(&self.nodes[node].files);
            let before = before.filter(|before| before.version == owners.version());
            let leaving = before.map(|before| before.leaving).unwrap_or_default();
            // What goes wrong costs the next start a hold.
            let _ = self.keep(node, owners.clone(), leaving);
        }
        if owners.moves() > 0 {
            self.tell_all(node);
            let life = self.nodes[node].life;
            self.queue.add(self.now + MS, Event::GiveOn(node, life));
        }
        let known = self.nodes[node].running.as_ref().map_or(0, |r| r.directory.pool_count());
        if known < self.cluster.pools.len() && self.faults.is_on(Kind::LateList) {
            let life = self.nodes[node].life;
            let late = self.faults.stream(Kind::LateList).below(LATE_US);
            self.queue.add(self.now + late, Event::ListArrives(node, life));
        } else if self.cluster.lists > 0 {
            // The list of pools may have changed since this start began.
            self.change(node, Want::Manage);
        }
    }

    /// Pools that are not in the list that a start reads.
    fn late_pools(&mut self) -> BTreeSet<u64> {
        if !self.faults.strikes(Kind::LateList) {
            return BTreeSet::new();
        }
        let random = self.faults.stream(Kind::LateList);
        self.cluster.pools.keys().copied().filter(|_| random.chance(500_000)).collect()
    }

    /// The list of pools is whole now.
    pub(crate) fn list_arrives(&mut self, node: usize, life: u32) {
        if self.nodes[node].life == life {
            self.tell(node, &[], || "gets the whole list of pools".to_owned());
            self.change(node, Want::Manage);
        }
    }

    /// Ends a process: killed, or its machine loses power. It starts again after a while.
    pub(crate) fn stop(&mut self, node: usize, is_power: bool) {
        let had = self.nodes[node].running.take();
        self.nodes[node].life += 1;
        for shard in self.cluster.shards_of(node) {
            self.model.stopped(shard);
        }
        self.nodes[node].paused_until = 0;
        let why = if is_power { "loses power" } else { "is killed" };
        self.tell(node, &[], || why.to_owned());
        if is_power {
            let boot = Boot { at: self.now, was_wrong: self.nodes[node].skew_us != 0 };
            self.nodes[node].boots.push(boot);
            self.nodes[node].files.disk().power_cut(&mut self.faults);
        } else {
            self.nodes[node].files.disk().kill(self.faults.stream(Kind::Kill));
        }
        self.nodes[node].files.next_life();
        if let Some(running) = had {
            running.batches.into_keys().for_each(|batch| self.clients.unsent(batch));
        }
        if !is_power {
            self.break_connections(node);
        }
        let life = self.nodes[node].life;
        let down = self.chance.between(20 * MS, 3 * SECOND);
        self.queue.add(self.now + down, Event::Start(node, life));
    }

    /// An operator puts back what has rotted, or gives up what the node had.
    pub(crate) fn repair(&mut self, node: usize) {
        if self.now < self.shortened_until && self.nodes[node].files.disk().lies > 0 {
            // What was locked for longer must have come free before a new map.
            let life = self.nodes[node].life;
            return self.queue.add(self.shortened_until, Event::Repair(node, life));
        }
        self.nodes[node].is_refused = false;
        let can_restore = self.chance.chance(500_000) || self.now < self.shortened_until;
        let is_whole = self.nodes[node].files.disk().mend();
        if can_restore && is_whole {
            self.tell(node, &[], || "gets its files back from a copy".to_owned());
        } else {
            self.tell(node, &[], || "begins again with an empty disk and a new map".to_owned());
            let owners = self.owners_now();
            self.nodes[node].files.disk().wipe();
            self.nodes[node].map = self.cluster.change(owners);
            for shard in self.cluster.shards_of(node) {
                self.model.wiped(shard);
            }
        }
        let life = self.nodes[node].life;
        self.queue.add(self.now + 100 * MS, Event::Start(node, life));
    }

    /// The node that loses a pool has ended: now the one that gets it starts again.
    pub(crate) fn map_arrives(&mut self, node: usize) {
        self.map_change = None;
        self.nodes[node].map = self.cluster.newest();
        self.stop(node, false);
    }
}

/// Length of a segment: small, so that a run uses many.
const SEGMENT_BYTES: u64 = 64 << 10;

fn settings() -> Settings {
    Settings {
        segment_bytes: SEGMENT_BYTES,
        history_bytes: 6 * SEGMENT_BYTES,
        ..Settings::new(PathBuf::from(DATA), Durability::Disk)
    }
}
