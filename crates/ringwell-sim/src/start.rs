//! From a disk to engines that serve, and what operators do: as `ringwell-node/src/start.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ringwell_core::{Millis, PoolSpec};
use ringwell_directory::{BucketHold, BucketHolds, Directory, Owners};
use ringwell_engine::{Clocks, Reading, Recorded, Restore};
use ringwell_journal::{Chunk, RecoverError, Recovered, Snapshot, SnapshotReader};

use crate::bug::Bug;
use crate::change::Want;
use crate::cluster::{rule, spec};
use crate::disk::{Disk, Name, Sort, Trouble};
use crate::event::Event;
use crate::fault::Kind;
use crate::model::{Judged, Recovery, SKEW_MAX_MS, Violation};
use crate::served::Served;
use crate::step::pool_holds;
use crate::store::{Said, Store, recover_from, remove, segment, snapshot};
use crate::thread::Thread;
use crate::world::{Boot, MS, Running, SECOND, World};

/// Rows of batches that may be sent again, for each shard: more than a run has.
const ANSWER_ROWS_MAX: usize = 100_000;

/// Pools that a start did not know come to the node until then.
const LATE_US: u64 = 2 * SECOND;

/// Short, so that clocks are wrong by less and by more.
const SKEW_MAX: Millis = Millis(SKEW_MAX_MS);

/// A shard whose files have been read and not yet changed.
struct Read {
    shard: u16,
    restore: Restore,
    recovered: Recovered,
    is_in_doubt: bool,
}

/// Why a node does not start.
enum Refused {
    /// A journal is damaged.
    Damaged(u16, RecoverError<Said>),
    /// The disk does not do what it should; it may, next time.
    Disk,
}

impl From<Trouble> for Refused {
    fn from(_: Trouble) -> Self {
        Self::Disk
    }
}

impl World {
    /// Starts a node.
    pub(crate) fn start(&mut self, node: usize) -> Judged {
        if self.faults.strikes(Kind::RotAtEnd) {
            let shards = self.cluster.shards_of(node);
            let random = self.faults.stream(Kind::RotAtEnd);
            let shard = shards[random.index(shards.len())];
            let rotten = self.nodes[node].disk.rot_at_end(random, shard);
            self.tell(node, &[], || format!("a bit flips at the end of {rotten:?}"));
        }
        if self.faults.strikes(Kind::Shorten) {
            let shards = self.cluster.shards_of(node);
            let random = self.faults.stream(Kind::Shorten);
            let shard = shards[random.index(shards.len())];
            let cut = self.nodes[node].disk.shorten(random, shard);
            self.tell(node, &[], || format!("{cut:?} loses its tail"));
        }
        self.nodes[node].disk.forget_cache();
        match self.open(node) {
            Ok(judged) => judged,
            Err(Refused::Disk) => {
                let life = self.nodes[node].life;
                self.queue.add(self.now + 300 * MS, Event::Start(node, life));
                Ok(())
            }
            Err(Refused::Damaged(shard, error)) => {
                self.tell(node, &[], || format!("shard {shard} does not start: {error}"));
                let disk = &self.nodes[node].disk;
                if disk.lies == 0 && !disk.was_damaged {
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
        let (owners, served) = self.owners_at_start(node);
        let late = self.late_pools();
        let directory = Arc::new(self.cluster.directory(&owners, &late, self.bug));
        let mut reads = Vec::new();
        for shard in self.cluster.shards_of(node) {
            reads.push(self.read(node, shard, &directory)?);
        }
        adopt(&mut reads);
        let recorded = |read: &Read| read.restore.recorded(&read.recovered.tip);
        let recorded: Vec<Recorded> = reads.iter().map(recorded).collect();
        let reading = self.reading(node);
        let clocks = match self.bug {
            // The wall clock says how long the process was away, though the machine was not booted.
            Some(Bug::WallAtStart) => Reading { boot: u64::MAX, ..reading }.resume(&recorded),
            _ => reading.resume(&recorded),
        };
        let clocks = Clocks { boot: reading.boot, ..clocks };
        let now = clocks.shard(reading.since_boot);
        for read in &mut reads {
            read.restore.clock_elsewhere(now);
            read.restore.resume(clocks);
        }
        let is_new = |read: &&Read| read.recovered.tip.last_at == Millis::ZERO;
        let new_shards: Vec<u16> = reads.iter().filter(is_new).map(|read| read.shard).collect();
        let new = new_buckets(&self.cluster.shards_of(node), &owners, served.as_ref(), &new_shards);
        let mut threads = BTreeMap::new();
        let (mut recoveries, mut ahead) = (Vec::new(), None);
        for read in reads {
            let (mut thread, mut recovery) = self.open_shard(node, read, now, &directory)?;
            ahead = ahead.max(thread.lengthened);
            recovery.now_ms = thread.engine.at(now).0;
            recoveries.push(recovery);
            threads.insert(thread.shard, thread);
        }
        let since = BucketHold { since: now, until: Millis::ZERO };
        let mut holds = self.known_holds(node, served, ahead)?;
        if self.bug != Some(Bug::NoHoldAfterMove) {
            for bucket in new {
                holds.add(bucket, since);
            }
        }
        for (thread, recovery) in threads.values_mut().zip(&mut recoveries) {
            for pool in directory.pools_of(thread.shard) {
                if let Some(until) = holds.until(pool.id(), spec(pool, self.bug).lifetime) {
                    thread.engine.hold_unrecorded(pool.id(), until);
                }
            }
            recovery.holds = pool_holds(thread.engine.shard(), Millis(recovery.now_ms));
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
        self.nodes[node].disk.accept();
        self.tell(node, &[], || "starts".to_owned());
        Ok(self.begin(node, &recoveries))
    }

    /// Buckets that were held when this disk was served last, longer by what the clock has leapt.
    fn known_holds(
        &mut self,
        node: usize,
        served: Option<Served>,
        ahead: Option<Millis>,
    ) -> Result<BucketHolds, Refused> {
        let Some(mut served) = served else { return Ok(BucketHolds::default()) };
        if let Some(ahead) = ahead.filter(|_| !served.holds.is_empty()) {
            served.holds.prolong(ahead);
            served.keep(&mut self.io(node))?;
        }
        Ok(served.holds)
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

    fn read(&mut self, node: usize, shard: u16, directory: &Directory) -> Result<Read, Refused> {
        let specs = self.specs(directory, shard);
        let fresh = || {
            let mut restore = Restore::new(specs.clone(), ANSWER_ROWS_MAX);
            restore.believe(SKEW_MAX);
            restore
        };
        let mut restore = fresh();
        let mut loaded = None;
        let mut snapshots = self.nodes[node].disk.list(shard, Sort::Snapshot);
        snapshots.reverse();
        for number in snapshots {
            loaded = load(&self.nodes[node].disk, snapshot(shard, number), &mut restore);
            if loaded.is_some() {
                break;
            }
            restore = fresh();
        }
        let disk = &self.nodes[node].disk;
        let visit = |header: &_, body: &[u8]| restore.group(header, body);
        let recovered = recover_from(disk, shard, loaded.as_ref(), visit);
        if let (Err(error), Some(Bug::CutAtBadFrame)) = (&recovered, self.bug)
            && let RecoverError::Damaged { segno, offset, .. } = *error
        {
            let later = self.nodes[node].disk.list(shard, Sort::Segment);
            let mut io = self.io(node);
            io.disk.cut(io.faults, segment(shard, segno), offset)?;
            for after in later.into_iter().filter(|other| *other > segno) {
                remove(&mut io, segment(shard, after))?;
            }
            return self.read(node, shard, directory);
        }
        let recovered = recovered.map_err(|error| Refused::Damaged(shard, error))?;
        let is_in_doubt = recovered.is_in_doubt() && self.bug != Some(Bug::NoHoldAfterRot);
        Ok(Read { shard, restore, recovered, is_in_doubt })
    }

    fn open_shard(
        &mut self,
        node: usize,
        read: Read,
        now: Millis,
        directory: &Arc<Directory>,
    ) -> Result<(Thread, Recovery), Refused> {
        let Read { shard, restore, recovered, is_in_doubt } = read;
        let disk = &self.nodes[node].disk;
        let mut recovery = Recovery {
            shard,
            next_n: recovered.tip.next_n,
            is_rotten: recovered.is_in_doubt(),
            disk_lied: disk.lies > 0,
            now_us: self.now,
            now_ms: 0,
            boots: self.nodes[node].boots.len(),
            numbers: Vec::new(),
            holds: Vec::new(),
            pools: self
                .specs(directory, shard)
                .iter()
                .map(|spec| (spec.id.0, rule(spec, self.bug)))
                .collect(),
        };
        let (store, tip) = Store::start(&mut self.io(node), shard, recovered)?;
        let (engine, doubts) = restore.finish(tip, now, is_in_doubt);
        let slots = engine.shard().slots().iter();
        let known = slots.map(|s| (s.number.to_code(), s.allocated_at.0, s.locked_until.0));
        recovery.numbers = known.collect();
        let lengthened = doubts.lengthened;
        Ok((Thread::new(shard, Arc::clone(directory), engine, store, lengthened), recovery))
    }

    fn specs(&self, directory: &Directory, shard: u16) -> Vec<PoolSpec> {
        directory.pools_of(shard).map(|pool| spec(pool, self.bug)).collect()
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
        let (owners, holds) = (running.owners.clone(), running.holds.clone());
        if !failed && last.refusal.is_none() {
            let before = Served::read(&self.nodes[node].disk);
            let before = before.filter(|before| before.version == owners.version());
            let leaving = before.map(|before| before.leaving).unwrap_or_default();
            let shards = self.cluster.shards_of(node);
            // What goes wrong costs the next start a hold.
            let _ = Served::new(owners.clone(), &shards, leaving, holds).keep(&mut self.io(node));
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
            self.nodes[node].disk.power_cut(&mut self.faults);
        } else {
            let threads = had.iter().flat_map(|running| running.threads.values());
            let writing: Vec<_> = threads.filter_map(Thread::frame_on_its_way).collect();
            let random = self.faults.stream(Kind::Kill);
            let disk = &mut self.nodes[node].disk;
            disk.kill(random, None);
            for frame in writing {
                disk.kill(random, Some(frame));
            }
        }
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
        if self.now < self.shortened_until && self.nodes[node].disk.lies > 0 {
            // What was locked for longer must have come free before a new map.
            let life = self.nodes[node].life;
            return self.queue.add(self.shortened_until, Event::Repair(node, life));
        }
        self.nodes[node].is_refused = false;
        let can_restore = self.chance.chance(500_000) || self.now < self.shortened_until;
        let is_whole = self.nodes[node].disk.mend();
        if can_restore && is_whole {
            self.tell(node, &[], || "gets its files back from a copy".to_owned());
        } else {
            self.tell(node, &[], || "begins again with an empty disk and a new map".to_owned());
            let owners = self.owners_now();
            self.nodes[node].disk = Disk::default();
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

/// Reads a snapshot to its end; `None` if it cannot be used.
fn load(disk: &Disk, name: Name, restore: &mut Restore) -> Option<Snapshot> {
    let mut offset = 0;
    let source = |out: &mut [u8]| {
        let got = disk.read(name, offset, out).map_err(Said)?;
        offset += got as u64;
        Ok::<_, Said>(got)
    };
    let mut reader = SnapshotReader::new(source).ok()?;
    restore.clock(reader.header().created_at, reader.header().clocks);
    while let Some(chunk) = reader.next_chunk().ok()? {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|entry| restore.number(&entry)),
            Chunk::Answers(entries) => entries.for_each(|entry| restore.answer(&entry)),
            Chunk::Holds(entries) => entries.for_each(|entry| restore.hold(&entry)),
            Chunk::Told(entries) => entries.for_each(|entry| restore.told(&entry)),
        }
    }
    reader.end().copied()
}

/// Gives every lockout to the shard that owns its number now.
fn adopt(reads: &mut [Read]) {
    let retired: Vec<_> = reads.iter().flat_map(|read| read.restore.retired()).copied().collect();
    let has_new = reads.iter().any(|read| read.recovered.tip.last_at == Millis::ZERO);
    adopt_doubts(reads, has_new || !retired.is_empty());
    if retired.is_empty() {
        return;
    }
    for number in &retired {
        for read in reads.iter_mut() {
            read.restore.adopt(number);
        }
    }
    let mut answers: Vec<_> = reads.iter().flat_map(|read| read.restore.answers()).collect();
    answers.sort_by_key(|answer| (answer.at, answer.row));
    for read in reads {
        read.restore.know_answers(&answers);
    }
}

/// Tells every shard of pools that are held, and of damage that may concern any.
fn adopt_doubts(reads: &mut [Read], have_moved: bool) {
    let holds: Vec<_> = reads.iter().flat_map(|read| read.restore.holds()).collect();
    let longest = reads.iter().map(|read| read.restore.lockout_max()).max().unwrap_or_default();
    let is_in_doubt = reads.iter().any(|read| read.is_in_doubt);
    for read in reads {
        for (pool, until) in &holds {
            if pool.is_some() || have_moved {
                read.restore.adopt_hold(*pool, *until);
            }
        }
        read.restore.know_lockout(longest);
        read.is_in_doubt |= is_in_doubt && have_moved;
    }
}

/// The buckets that another node may have served last.
fn new_buckets(
    shards: &[u16],
    owners: &Owners,
    served: Option<&Served>,
    new_shards: &[u16],
) -> BTreeSet<u16> {
    let none = BucketHolds::default;
    let of = |shards: &[u16]| Served::new(owners.clone(), shards, Vec::new(), none()).buckets;
    let version = owners.version();
    match served {
        Some(served) if served.version + 1 < version => of(shards),
        Some(served) => of(shards).difference(&served.buckets).copied().collect(),
        None if version > 1 => of(new_shards),
        None => BTreeSet::new(),
    }
}
