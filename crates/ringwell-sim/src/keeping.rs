//! Ticks, snapshots, giving up old segments: as `ringwell-node/src/keeping.rs`.

use ringwell_core::Millis;
use ringwell_engine::{Engine, SnapshotStep};
use ringwell_journal::{Chunk, SnapshotHeader, SnapshotReader, SnapshotWriter};

use crate::bug::Bug;
use crate::disk::{Name, Trouble};
use crate::event::{Event, Task};
use crate::store::Unread;
use crate::thread::Thread;
use crate::world::{MS, SECOND, World};

/// A quiet shard writes down what time it is this often.
const TICK: Millis = Millis(5_000);
/// A snapshot is taken when the journal has grown by this: small, so that a run has many.
const SNAPSHOT_EVERY_BYTES: u64 = 12 << 10;
/// Groups that one step of giving up a segment looks at.
const CARRY_GROUPS: u64 = 8;

/// A snapshot that is being taken.
#[derive(Debug)]
pub(crate) struct Snap {
    draft: Name,
    replay_from: u64,
    writer: Option<SnapshotWriter>,
    step: SnapshotStep,
    /// The last group that it knows of, once it is whole.
    through: Option<u64>,
}

/// A segment that is being given up.
#[derive(Debug)]
pub(crate) struct Carry {
    next_n: u64,
    end: u64,
    /// What must be stored before it goes, once all is copied.
    waits_for: Option<u64>,
}

impl World {
    /// What a shard looks after every second.
    pub(crate) fn round(&mut self, node: usize, thread: &mut Thread) {
        self.later(node, thread.shard, SECOND, Task::Round);
        let now = thread.engine.at(self.shard_time(node));
        let is_quiet = now.since(thread.engine.tip().last_at) >= TICK;
        if is_quiet && !thread.engine.is_pending() && thread.engine.refusal().is_none() {
            thread.engine.tick(now);
            self.commit_soon(node, thread);
        }
        let grown = thread.store.body_bytes - thread.snapshot_at;
        let every = match self.bug {
            Some(Bug::SnapshotMissesMoved) => 1,
            _ => SNAPSHOT_EVERY_BYTES,
        };
        if grown >= every && thread.snap.is_none() {
            thread.snapshot_at = thread.store.body_bytes;
            self.snapshot_begin(node, thread);
        }
        if thread.carry.is_none()
            && let Some((next_n, end)) = thread.store.expired()
        {
            thread.carry = Some(Carry { next_n, end, waits_for: None });
            self.later(node, thread.shard, 100, Task::CarryStep);
        }
        // What goes wrong with a spare is tried again in the next round.
        let _ = thread.store.keep_spares(&mut self.io(node));
    }

    /// Begins a snapshot; the pieces follow between batches.
    pub(crate) fn snapshot_begin(&mut self, node: usize, thread: &mut Thread) {
        let header = header(thread);
        match thread.store.create_snapshot(&mut self.io(node), header.replay_from) {
            Ok(draft) => {
                thread.snap = Some(Snap {
                    draft,
                    replay_from: header.replay_from,
                    writer: Some(SnapshotWriter::new(&header)),
                    step: SnapshotStep::FIRST,
                    through: None,
                });
                let pause = self.chance.between(20, 3 * MS);
                self.later(node, thread.shard, pause, Task::SnapshotPiece);
            }
            Err(Trouble::Crashed) => {}
            Err(Trouble::Full | Trouble::Io) => self.snapshot_ended(node, thread, false),
        }
    }

    pub(crate) fn snapshot_piece(&mut self, node: usize, thread: &mut Thread) {
        let Some(snap) = &mut thread.snap else { return };
        if let Some(writer) = &mut snap.writer {
            snap.step = thread.engine.snapshot(snap.step, writer);
        }
        let misses_moved = self.bug == Some(Bug::SnapshotMissesMoved);
        if misses_moved && matches!(snap.step, SnapshotStep::Moved(_)) {
            snap.step = SnapshotStep::Holds;
        }
        if snap.step != SnapshotStep::Done {
            let is_late =
                misses_moved && thread.is_ready && snap.step == SnapshotStep::Retired(None);
            let pause_max = if is_late { 6 * SECOND } else { 3 * MS };
            let pause = self.chance.between(20, pause_max);
            self.later(node, thread.shard, pause, Task::SnapshotPiece);
            return;
        }
        snap.through = Some(match self.bug {
            Some(Bug::SnapshotTooEarly) => thread.durable,
            _ => thread.engine.newest_group(),
        });
        self.commit_soon(node, thread);
        self.keeping_wakes(node, thread);
    }

    /// The journal has got further, or refuses: those who waited for it go on.
    pub(crate) fn keeping_wakes(&mut self, node: usize, thread: &mut Thread) {
        let through = thread.snap.as_ref().and_then(|snap| snap.through);
        if let Some(through) = through {
            if thread.durable >= through {
                self.publish(node, thread, through);
            } else if thread.refusal.is_some() {
                self.drop_draft(node, thread);
                self.snapshot_ended(node, thread, false);
            }
        }
        let waits_for = thread.carry.as_ref().and_then(|carry| carry.waits_for);
        if let Some(group) = waits_for {
            if thread.durable >= group {
                thread.carry = None;
                // A file that could not be put away is looked at again by the next start.
                let _ = thread.store.drop_oldest(&mut self.io(node));
            } else if thread.refusal.is_some() {
                thread.carry = None;
            }
        }
    }

    fn publish(&mut self, node: usize, thread: &mut Thread, through: u64) {
        let Some(snap) = thread.snap.as_mut() else { return };
        let (draft, replay_from) = (snap.draft, snap.replay_from);
        let Some(writer) = snap.writer.take() else { return };
        let mut bytes = writer.finish(through);
        let mut replay_from = replay_from;
        if self.bug == Some(Bug::SnapshotMissesGroup) {
            replay_from = thread.engine.tip().next_n;
            bytes = headed(&bytes, &header(thread), through);
        }
        let mut io = self.io(node);
        let written = io.disk.write(io.faults, draft, 0, &bytes);
        let published = written.and_then(|()| thread.store.publish(&mut io, draft, replay_from));
        match published {
            Ok(()) => {
                thread.snap = None;
                self.snapshot_ended(node, thread, true);
            }
            Err(Trouble::Crashed) => {}
            Err(Trouble::Full | Trouble::Io) => {
                self.drop_draft(node, thread);
                self.snapshot_ended(node, thread, false);
            }
        }
    }

    fn drop_draft(&mut self, node: usize, thread: &mut Thread) {
        let Some(snap) = thread.snap.take() else { return };
        let io = self.io(node);
        if io.disk.exists(snap.draft) {
            let _ = io.disk.remove(io.faults, snap.draft);
        }
    }

    /// The first snapshot after a start opens the shard, whether it could be taken or not, unless
    /// it is needed.
    fn snapshot_ended(&mut self, node: usize, thread: &mut Thread, is_taken: bool) {
        if thread.is_ready {
            return;
        }
        if thread.lengthened.is_some() && !is_taken {
            let life = self.nodes[node].life;
            self.queue.add(self.now, Event::Restart(node, life));
            return;
        }
        thread.is_ready = true;
        self.later(node, thread.shard, 10 * MS, Task::Round);
        self.shard_is_ready(node, thread);
    }

    /// Copies what still matters out of the oldest segment, some groups at a time.
    pub(crate) fn carry_step(&mut self, node: usize, thread: &mut Thread) {
        let Some(carry) = &mut thread.carry else { return };
        if thread.engine.refusal().is_some() {
            thread.carry = None;
            return;
        }
        let end = carry.end.min(carry.next_n + CARRY_GROUPS);
        let range = carry.next_n..end;
        carry.next_n = end;
        let is_last = end == carry.end;
        for n in range {
            if !thread.engine.needs_group(n) || self.bug == Some(Bug::NoCarry) {
                continue;
            }
            let group = thread.store.read_group(&self.nodes[node].disk, n);
            let Ok(group) = group else {
                // Damaged: the segment stays, and is tried again in the next round.
                debug_assert_ne!(group.err(), Some(Unread::NotYet), "an old group is stored");
                thread.carry = None;
                return;
            };
            let now = thread.engine.at(self.shard_time(node));
            // Groups are far smaller here than what makes the one that gathers full.
            let mut records = group.records();
            let _ = thread.engine.carry(now, &mut records, group.header.clocks);
        }
        self.commit_soon(node, thread);
        if !is_last {
            self.later(node, thread.shard, 200, Task::CarryStep);
            return;
        }
        let waits_for = Some(thread.engine.newest_group());
        if let Some(carry) = &mut thread.carry {
            carry.waits_for = waits_for;
        }
        self.keeping_wakes(node, thread);
    }
}

fn header(thread: &Thread) -> SnapshotHeader {
    let engine: &Engine = &thread.engine;
    let tip = engine.tip();
    SnapshotHeader {
        shard: u32::from(thread.shard),
        journal: thread.store.id,
        replay_from: tip.next_n,
        prev_hash: tip.prev_hash,
        epoch: tip.epoch,
        created_at: engine.now(),
        last_at: tip.last_at,
        numbers: engine.shard().slots().len() as u64,
        clocks: engine.clocks(),
    }
}

/// The entries of a snapshot under another header: a planted bug.
fn headed(bytes: &[u8], header: &SnapshotHeader, through: u64) -> Vec<u8> {
    let mut rest = bytes;
    let source = |out: &mut [u8]| {
        let count = rest.len().min(out.len());
        let (head, tail) = rest.split_at(count);
        out[..count].copy_from_slice(head);
        rest = tail;
        Ok::<_, std::convert::Infallible>(count)
    };
    let mut writer = SnapshotWriter::new(header);
    let Ok(mut reader) = SnapshotReader::new(source) else { return Vec::new() };
    while let Ok(Some(chunk)) = reader.next_chunk() {
        match chunk {
            Chunk::Numbers(entries) => entries.for_each(|entry| writer.number(&entry)),
            Chunk::Answers(entries) => entries.for_each(|entry| writer.answer(&entry)),
            Chunk::Holds(entries) => entries.for_each(|entry| writer.hold(&entry)),
            Chunk::Told(entries) => entries.for_each(|entry| writer.told(&entry)),
        }
    }
    writer.finish(through)
}
