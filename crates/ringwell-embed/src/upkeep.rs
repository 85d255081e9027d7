//! What a journal needs beside answering, a piece after each batch: snapshots, and giving up old
//! segments.
//!
//! A server has tasks for this. Here a caller waits for each piece: 1,024 numbers of a snapshot, or
//! a few groups of an old segment. A failure is noted and tried again later; nothing stops for it.

use ringwell_core::Millis;
use ringwell_engine::SnapshotStep;
use ringwell_journal::{SnapshotHeader, SnapshotWriter};
use ringwell_node::disk::{SegmentRef, SnapshotFile};

use crate::shard::{NO_WRITES, Shard};

/// How often old segments are looked for.
const ROUND: Millis = Millis(1_000);

/// Bytes of a snapshot that gather before they are written.
const SNAPSHOT_WRITE_BYTES: usize = 1 << 20;

/// Groups of an old segment in a piece: more than a batch writes, so that the end is reached.
const GROUPS_A_PIECE: u64 = 4;

/// The number of the only shard.
const SHARD: u32 = 0;

/// What is under way.
#[derive(Debug)]
pub(crate) struct Upkeep {
    snapshot_every: u64,
    /// Bytes that had been stored when the last snapshot began.
    snapshot_at: u64,
    snapshot: Option<Taking>,
    old: Option<Old>,
    /// Nothing is given up before the journal is as long as this.
    kept_bytes: u64,
    looked_at: Millis,
}

/// A snapshot that is being taken.
#[derive(Debug)]
struct Taking {
    file: SnapshotFile,
    writer: SnapshotWriter,
    step: SnapshotStep,
}

/// A segment that is being given up.
#[derive(Debug)]
struct Old {
    segment: SegmentRef,
    next_n: u64,
    /// Bytes that had been stored before.
    before: u64,
}

impl Upkeep {
    pub(crate) fn new(snapshot_every: u64) -> Self {
        let (snapshot, old, looked_at) = (None, None, Millis::ZERO);
        Self { snapshot_every, snapshot_at: 0, snapshot, old, kept_bytes: 0, looked_at }
    }

    /// Does one piece of what there is to be done.
    ///
    /// # Errors
    /// What could not be done now.
    pub(crate) fn step(&mut self, shard: &mut Shard) -> Result<(), String> {
        if !shard.has_files() || shard.engine.refusal().is_some() {
            return Ok(());
        }
        if let Some(taking) = self.snapshot.take() {
            self.snapshot = taking.go_on(shard)?;
            return Ok(());
        }
        if let Some(old) = self.old.take() {
            return self.carry(shard, old);
        }
        let now = shard.now();
        if now.since(self.looked_at) < ROUND {
            return Ok(());
        }
        self.looked_at = now;
        let stats = shard.journal.stats();
        let written = stats.written_bytes - self.snapshot_at;
        let is_due = written > 0 && shard.journal.waits_for_snapshot();
        if written >= self.snapshot_every || is_due {
            self.begin(shard)?;
        }
        // Both: in a busy hour there is a snapshot to be taken each time.
        if stats.segment_bytes >= self.kept_bytes
            && let Some(segment) = shard.journal.expired(now, shard.clocks())
        {
            let (next_n, before) = (segment.first_n, stats.written_bytes);
            self.old = Some(Old { segment, next_n, before });
        }
        Ok(())
    }

    /// Takes a whole snapshot now.
    ///
    /// # Errors
    /// What could not be written. The one before stays.
    pub(crate) fn snapshot(&mut self, shard: &mut Shard) -> Result<(), String> {
        if !shard.has_files() {
            return Ok(());
        }
        self.snapshot = None;
        self.begin(shard)?;
        while let Some(taking) = self.snapshot.take() {
            self.snapshot = taking.go_on(shard)?;
        }
        Ok(())
    }

    /// In a forked child: the file that is being written is the parent's.
    pub(crate) fn abandon(self) {
        std::mem::forget(self.snapshot);
    }

    fn begin(&mut self, shard: &mut Shard) -> Result<(), String> {
        let tip = shard.engine.tip();
        let header = SnapshotHeader {
            shard: SHARD,
            journal: shard.journal.id(),
            replay_from: tip.next_n,
            prev_hash: tip.prev_hash,
            epoch: tip.epoch,
            created_at: shard.engine.now(),
            last_at: tip.last_at,
            numbers: shard.engine.shard().number_count() as u64,
            clocks: shard.engine.clocks(),
        };
        let file = shard.journal.create_snapshot(header.replay_from).map_err(|e| e.to_string())?;
        let writer = SnapshotWriter::new(&header);
        self.snapshot_at = shard.journal.stats().written_bytes;
        self.snapshot = Some(Taking { file, writer, step: SnapshotStep::FIRST });
        Ok(())
    }

    /// Copies what matters in the next groups of an old segment; drops it after its last.
    fn carry(&mut self, shard: &mut Shard, mut old: Old) -> Result<(), String> {
        let end = old.segment.next_n.min(old.next_n + GROUPS_A_PIECE);
        for n in old.next_n..end {
            if shard.engine.needs_group(n) {
                let group = shard.journal.reader().read_group(n).map_err(|e| e.to_string())?;
                shard.carry(&group).map_err(|_| NO_WRITES)?;
            }
        }
        if end < old.segment.next_n {
            old.next_n = end;
            self.old = Some(old);
            return Ok(());
        }
        // The copies first.
        shard.store_pending().map_err(|_| NO_WRITES)?;
        let stats = shard.journal.stats();
        if stats.written_bytes - old.before > old.segment.bytes / 2 {
            // Most of it is still current: nothing is gained before the journal has grown.
            self.kept_bytes = stats.segment_bytes + stats.segment_bytes / 4;
        }
        // More may have expired: look again with the next batch.
        self.looked_at = Millis::ZERO;
        let dropped = shard.journal.drop_segment(old.segment);
        dropped.map_or(Ok(()), |dropped| dropped.put_away()).map_err(|e| e.to_string())
    }
}

impl Taking {
    /// Writes a piece; `None` once the snapshot is published.
    fn go_on(mut self, shard: &mut Shard) -> Result<Option<Self>, String> {
        if self.step != SnapshotStep::Done {
            self.step = shard.engine.snapshot(self.step, &mut self.writer);
            if self.writer.ready_bytes() >= SNAPSHOT_WRITE_BYTES {
                let bytes = self.writer.take(Vec::new());
                self.file.write(&bytes).map_err(|e| e.to_string())?;
            }
            return Ok(Some(self));
        }
        let Self { mut file, writer, step: _ } = self;
        // What the snapshot knows must be in the journal before it counts.
        shard.store_pending().map_err(|_| NO_WRITES)?;
        let through = shard.engine.newest_group();
        file.write(&writer.finish(through)).map_err(|e| e.to_string())?;
        file.publish(through).map_err(|e| e.to_string())?;
        Ok(None)
    }
}
