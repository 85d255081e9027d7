//! When a simulated shard does what the driver's maintenance is made of: the pauses between pieces.

use ringwell_core::Millis;
use ringwell_driver::maintenance::{Carry, Snapshot};
use ringwell_driver::store::{ReadError, Reader, SnapshotFile};
use ringwell_engine::SnapshotStep;

use crate::bug::Bug;
use crate::event::{Event, Task};
use crate::files::SimFiles;
use crate::thread::Thread;
use crate::world::{MS, SECOND, World};

/// A quiet shard writes down what time it is this often.
const TICK: Millis = Millis(5_000);
/// A snapshot is taken when the journal has grown by this: small, so that a run has many.
const SNAPSHOT_EVERY_BYTES: u64 = 12 << 10;
/// Groups that one step of giving up a segment looks at.
const CARRY_GROUPS: u64 = 8;

/// How much a journal must grow until the next snapshot.
pub(crate) fn snapshot_every(bug: Option<Bug>) -> u64 {
    // There is nearly always one then, and it waits after its first piece.
    if bug == Some(Bug::SnapshotMissesMoved) { 1 } else { SNAPSHOT_EVERY_BYTES }
}

/// A snapshot that is being taken.
#[derive(Debug)]
pub(crate) struct Snap {
    snapshot: Snapshot<SnapshotFile<SimFiles>>,
    /// The last group that it knows of, once it is whole.
    through: Option<u64>,
}

/// A segment that is being given up.
#[derive(Debug)]
pub(crate) struct Carrying {
    carry: Carry,
    /// What must be stored before it goes, once all is copied.
    waits_for: Option<u64>,
}

impl World {
    /// What a shard looks after every second.
    pub(crate) fn round(&mut self, node: usize, thread: &mut Thread) {
        self.later(node, thread.shard, SECOND, Task::Round);
        let now = thread.engine.at(self.shard_time(node));
        let Some(clocks) = self.clocks(node) else { return };
        let is_quiet = now.since(thread.engine.tip().last_at) >= TICK;
        if is_quiet && !thread.engine.is_pending() && thread.engine.refusal().is_none() {
            thread.engine.tick(now);
            self.commit_soon(node, thread);
        }
        let stored = thread.journal.stats().body_bytes;
        if stored - thread.snapshot_at >= snapshot_every(self.bug) && thread.snap.is_none() {
            thread.snapshot_at = stored;
            self.snapshot_begin(node, thread);
        }
        if thread.carry.is_none()
            && let Some(carry) = thread.rounds.expired(&thread.journal, now, clocks)
        {
            thread.carry = Some(Carrying { carry, waits_for: None });
            self.later(node, thread.shard, 100, Task::CarryStep);
        }
        // What goes wrong with a spare is tried again in the next round.
        let _ = thread.journal.spares().keep_one();
    }

    /// Begins a snapshot; the pieces follow between batches.
    pub(crate) fn snapshot_begin(&mut self, node: usize, thread: &mut Thread) {
        match Snapshot::begin(&thread.journal, &thread.engine, thread.shard) {
            Ok(snapshot) => {
                thread.snap = Some(Snap { snapshot, through: None });
                let pause = self.chance.between(20, 3 * MS);
                self.later(node, thread.shard, pause, Task::SnapshotPiece);
            }
            Err(_) if self.has_stopped(node) => {}
            Err(_) => self.snapshot_ended(node, thread, false),
        }
    }

    pub(crate) fn snapshot_piece(&mut self, node: usize, thread: &mut Thread) {
        let Some(Snap { snapshot, through }) = &mut thread.snap else { return };
        if !snapshot.piece(&mut thread.engine) {
            let is_late = self.bug == Some(Bug::SnapshotMissesMoved)
                && thread.is_ready
                && snapshot.step() == SnapshotStep::Retired(None);
            let pause_max = if is_late { 6 * SECOND } else { 3 * MS };
            let pause = self.chance.between(20, pause_max);
            self.later(node, thread.shard, pause, Task::SnapshotPiece);
            return;
        }
        *through = Some(snapshot.through(&thread.engine));
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
                thread.snap = None;
                self.snapshot_ended(node, thread, false);
            }
        }
        let carried = thread.carry.as_ref().and_then(|it| Some((it.carry, it.waits_for?)));
        if let Some((carry, group)) = carried {
            if thread.durable >= group {
                thread.carry = None;
                // A file that could not be put away is looked at again by the next start.
                let dropped = thread.journal.drop_segment(carry.part);
                let _ = dropped.map(|dropped| dropped.put_away());
            } else if thread.refusal.is_some() {
                thread.carry = None;
            }
        }
    }

    fn publish(&mut self, node: usize, thread: &mut Thread, through: u64) {
        let Some(Snap { snapshot, .. }) = thread.snap.take() else { return };
        #[cfg(not(canary))]
        let published = snapshot.publish(through);
        #[cfg(canary)]
        let published =
            snapshot.publish_late(&thread.journal, &thread.engine, thread.shard, through);
        if !self.has_stopped(node) {
            self.snapshot_ended(node, thread, published.is_ok());
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
        let Some(carrying) = &mut thread.carry else { return };
        if thread.engine.refusal().is_some() {
            thread.carry = None;
            return;
        }
        let mut groups = CARRY_GROUPS;
        while let Some(n) = carrying.carry.next(&thread.engine, &mut groups) {
            let group = match thread.journal.reader().read(n) {
                Ok(group) => group,
                // Damaged: the segment stays, and is tried again in the next round.
                Err(error) => {
                    let is_stored = !matches!(error, ReadError::NotYet(_));
                    debug_assert!(is_stored, "an old group is stored");
                    thread.carry = None;
                    return;
                }
            };
            let now = self.shard_time(node);
            let now = thread.engine.at(now);
            // Groups are far smaller here than what makes the one that gathers full.
            let mut records = group.records();
            let _ = thread.engine.carry(now, &mut records, group.header.clocks);
        }
        if carrying.carry.is_done() {
            carrying.waits_for = Some(thread.engine.newest_group());
            self.commit_soon(node, thread);
            return self.keeping_wakes(node, thread);
        }
        self.commit_soon(node, thread);
        self.later(node, thread.shard, 200, Task::CarryStep);
    }
}
