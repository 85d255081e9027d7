//! A shard's work apart from answering requests: recording the time, taking snapshots, and dropping
//! old history after copying the records that still matter. Batches are served between the pieces
//! of this work.
//!
//! This module determines the schedule and the size of each piece. The caller decides when a piece
//! runs and on which thread files are written. The callers are the server's tasks, the embedded
//! engine after a batch, and the simulator. Source: docs/spec/journal.md, "Snapshots" and
//! "Retention".

#[cfg(canary)]
mod late;
pub mod task;

use ringwell_core::Millis;
use ringwell_engine::{Clocks, Engine, SnapshotStep};
use ringwell_journal::{SnapshotHeader, SnapshotWriter};

use crate::canary::{Bug, planted};
use crate::store::{Draft, FileError, Part, Store};

/// The interval after which a quiet shard first records the time. The interval doubles after each
/// record.
const TICK: Millis = Millis(5_000);

/// If the wall clock changes by more than this, the change is recorded at once.
const WALL_SET: Millis = Millis(1_000);

/// The number of snapshot bytes that are buffered before they are written.
const SNAPSHOT_WRITE_BYTES: usize = 1 << 20;

/// The schedule, computed from the work done so far.
#[derive(Debug)]
pub struct Rounds {
    /// The number of journal bytes after which a snapshot is taken.
    snapshot_every: u64,
    /// The time after which a snapshot is taken, if anything was written.
    snapshot_span: Option<Millis>,
    /// The count of written bytes and the time at the start of the last snapshot.
    snapshot_bytes: u64,
    snapshot_at: Millis,
    /// The length that the journal must reach before history is dropped.
    kept_bytes: u64,
    /// The group of the last tick, and the time that the shard must be quiet before the next tick.
    tick_group: u64,
    tick_after: Millis,
}

impl Rounds {
    /// Creates a schedule that begins at `now`, as if a snapshot had just been taken.
    #[must_use]
    pub fn new(
        store: &impl Store,
        snapshot_every: u64,
        snapshot_span: Option<Millis>,
        now: Millis,
    ) -> Self {
        Self {
            snapshot_every,
            snapshot_span,
            snapshot_bytes: store.stats().written_bytes,
            snapshot_at: now,
            kept_bytes: 0,
            tick_group: 0,
            tick_after: TICK,
        }
    }

    /// Adds a tick (a record of the current time) to the journal if one is due. The recorded time
    /// matters only after the machine's next boot. Ticks become rarer and rarer, so that an idle
    /// server writes almost nothing. A tick also records that the wall clock was set, for look-ups
    /// after the next boot. Returns whether there is anything to store.
    pub fn tick(&mut self, engine: &mut Engine, now: Millis, clocks: Clocks) -> bool {
        let tip = engine.tip();
        if engine.is_pending() || engine.refusal().is_some() {
            return false;
        }
        if engine.newest_group() != self.tick_group {
            self.tick_after = TICK;
        }
        let was_set = tip
            .clocks
            .is_some_and(|noted| noted.wall_offset.abs_diff(clocks.wall_offset) > WALL_SET.0);
        if now.since(tip.last_at) < self.tick_after && !was_set {
            return false;
        }
        engine.tick(now);
        self.tick_group = engine.newest_group();
        self.tick_after = Millis(self.tick_after.0.saturating_mul(2));
        true
    }

    /// Whether a snapshot is due. This depends on the bytes written since the last snapshot and on
    /// the age of that snapshot. A snapshot is also due if history beyond its limit is kept only
    /// for the existing snapshots.
    #[must_use]
    pub fn wants_snapshot(&self, store: &impl Store, now: Millis) -> bool {
        let written = store.stats().written_bytes - self.snapshot_bytes;
        let is_old = self.snapshot_span.is_some_and(|span| now.since(self.snapshot_at) >= span);
        written >= self.snapshot_every || written > 0 && (is_old || store.waits_for_snapshot())
    }

    /// Records that a snapshot was taken. It began at `began`, when `written` bytes had been
    /// written.
    pub fn snapshot_taken(&mut self, written: u64, began: Millis) {
        (self.snapshot_bytes, self.snapshot_at) = (written, began);
    }

    /// Returns the oldest history, if it may be dropped now.
    #[must_use]
    pub fn expired(&self, store: &impl Store, now: Millis, clocks: Clocks) -> Option<Carry> {
        let stats = store.stats();
        let part = store.expired(now, clocks).filter(|_| stats.segment_bytes >= self.kept_bytes)?;
        Some(Carry { part, next_n: part.first_n, before: stats.written_bytes })
    }

    /// Called after the records that still matter have been copied from the part to be dropped, and
    /// stored. If these records make up most of the part, dropping more history frees no space
    /// until the journal has grown. In that case, returns the journal's length.
    pub fn carried(&mut self, store: &impl Store, carry: &Carry) -> Option<u64> {
        let stats = store.stats();
        let is_most = stats.written_bytes - carry.before > carry.part.bytes / 2;
        let bytes = stats.segment_bytes;
        is_most.then(|| {
            self.kept_bytes = bytes + bytes / 4;
            bytes
        })
    }
}

/// History that is being dropped. Its groups are examined in order.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    /// The selected part.
    pub part: Part,
    next_n: u64,
    /// The number of bytes that had been written before the copying began.
    before: u64,
}

impl Carry {
    /// Examines at most `groups` groups, up to the first one that must be read and copied. Returns
    /// that group, or `None` if there is none.
    pub fn next(&mut self, engine: &Engine, groups: &mut u64) -> Option<u64> {
        while *groups > 0 && !self.is_done() {
            let n = self.next_n;
            self.next_n += 1;
            *groups -= 1;
            if engine.needs_group(n) && !planted(Bug::NoCarry) {
                return Some(n);
            }
        }
        None
    }

    /// Whether all groups have been examined. If so, the part may be dropped once the newest group
    /// is stored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next_n >= self.part.next_n
    }
}

/// A snapshot that is being taken. If it is dropped before it is published, nothing remains of it.
#[derive(Debug)]
pub struct Snapshot<D> {
    draft: D,
    writer: SnapshotWriter,
    step: SnapshotStep,
}

impl<D: Draft> Snapshot<D> {
    /// Begins a snapshot. Recovery will load the snapshot and then replay the groups, starting with
    /// the one that is open when the snapshot begins.
    ///
    /// # Errors
    /// Returns [`FileError`] if the snapshot cannot be begun, which is always the case for a store
    /// whose data does not outlive the process.
    pub fn begin<S: Store<Draft = D>>(
        store: &S,
        engine: &Engine,
        shard: u16,
    ) -> Result<Self, FileError> {
        let header = header(store, engine, shard);
        let draft = store.draft(header.replay_from)?;
        Ok(Self { draft, writer: SnapshotWriter::new(&header), step: SnapshotStep::FIRST })
    }

    /// Adds the next piece, which has at most `entries` entries, and returns whether it was the
    /// last one. Call [`Self::write`] afterwards.
    pub fn piece(&mut self, engine: &mut Engine, entries: u32) -> bool {
        if self.step != SnapshotStep::Done {
            self.step = engine.snapshot(self.step, entries, &mut self.writer);
        }
        if planted(Bug::SnapshotMissesMoved) && matches!(self.step, SnapshotStep::Moved(_)) {
            self.step = SnapshotStep::Holds;
        }
        self.step == SnapshotStep::Done
    }

    /// The next step.
    #[must_use]
    pub fn step(&self) -> SnapshotStep {
        self.step
    }

    /// Whether the buffer contains enough bytes to be written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.writer.ready_bytes() >= SNAPSHOT_WRITE_BYTES
    }

    /// Writes the buffered bytes. Waits for the disk.
    ///
    /// # Errors
    /// Returns [`FileError`]; the snapshot is then abandoned.
    pub fn write(mut self) -> Result<Self, FileError> {
        let bytes = self.writer.take(Vec::new());
        self.draft.write(&bytes)?;
        Ok(self)
    }

    /// Returns the last group that the snapshot may cover. This group must be stored before the
    /// snapshot is published.
    #[must_use]
    pub fn through(&self, engine: &Engine) -> u64 {
        let newest = engine.newest_group();
        if planted(Bug::SnapshotTooEarly) { self.draft.stored() } else { newest }
    }

    /// Durably makes this the newest snapshot. Waits for the disk.
    ///
    /// # Errors
    /// Returns [`FileError`]; the previous snapshots then remain.
    pub fn publish(mut self, through: u64) -> Result<(), FileError> {
        self.draft.write(&self.writer.finish(through))?;
        self.draft.publish(through)
    }

    /// A planted bug: like [`Self::publish`], but the snapshot also claims to cover the groups
    /// added until now.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::publish`].
    #[cfg(canary)]
    pub fn publish_late<S: Store<Draft = D>>(
        self,
        store: &S,
        engine: &Engine,
        shard: u16,
        through: u64,
    ) -> Result<(), FileError> {
        let header = header(store, engine, shard);
        let bytes = late::headed(&self.writer.finish(through), &header, through);
        drop(self.draft);
        let mut draft = store.draft(header.replay_from)?;
        draft.write(&bytes)?;
        draft.publish(through)
    }
}

fn header(store: &impl Store, engine: &Engine, shard: u16) -> SnapshotHeader {
    let tip = engine.tip();
    SnapshotHeader {
        shard: u32::from(shard),
        journal: store.identity(),
        replay_from: tip.next_n,
        prev_hash: tip.prev_hash,
        epoch: tip.epoch,
        created_at: engine.now(),
        last_at: tip.last_at,
        numbers: engine.shard().number_count() as u64,
        clocks: engine.clocks(),
    }
}

#[cfg(test)]
mod tests;
