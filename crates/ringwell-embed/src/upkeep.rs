//! The journal's maintenance, a piece after each batch: snapshots, and dropping old segments.
//!
//! A server has tasks for this. Here a caller waits for each piece of the driver's maintenance. A
//! failure is recorded and retried later; nothing stops because of it.

use ringwell_core::Millis;
use ringwell_driver::maintenance::{Carry, ROUND, Rounds, Snapshot};
use ringwell_driver::store::{Inline, Reader, SnapshotFile};
use ringwell_os::OsFiles;

use crate::shard::{NO_WRITES, Shard};

/// The count of groups of an old segment in a piece: more than a batch writes, so that the end is
/// reached.
const GROUPS_A_PIECE: u64 = 4;

/// The number of the only shard.
const SHARD: u16 = 0;

/// A snapshot that is being taken.
type Draft = Snapshot<SnapshotFile<OsFiles>>;

/// The work in progress.
#[derive(Debug)]
pub(crate) struct Upkeep {
    rounds: Rounds,
    snapshot: Option<Draft>,
    old: Option<Carry>,
    looked_at: Millis,
}

impl Upkeep {
    pub(crate) fn new(snapshot_every: u64, shard: &Shard) -> Self {
        let now = shard.engine.now();
        let rounds = match &shard.store {
            Inline::Files(journal) => Rounds::new(journal, snapshot_every, None, now),
            Inline::Memory(memory) => Rounds::new(memory, snapshot_every, None, now),
        };
        Self { rounds, snapshot: None, old: None, looked_at: Millis::ZERO }
    }

    /// Does one piece of the pending work.
    ///
    /// # Errors
    /// The work that failed now.
    pub(crate) fn step(&mut self, shard: &mut Shard) -> Result<(), String> {
        if shard.engine.refusal().is_some() {
            return Ok(());
        }
        if let Some(snapshot) = self.snapshot.take() {
            self.snapshot = go_on(snapshot, shard)?;
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
        let Some(journal) = shard.store.files() else { return Ok(()) };
        let wants_snapshot = self.rounds.wants_snapshot(journal, now);
        // Both, because in a busy hour a snapshot is due each time.
        self.old = self.rounds.expired(journal, now, shard.clocks());
        if wants_snapshot { self.begin(shard) } else { Ok(()) }
    }

    /// Takes a complete snapshot now.
    ///
    /// # Errors
    /// The file that could not be written. Then the previous one stays.
    pub(crate) fn snapshot(&mut self, shard: &mut Shard) -> Result<(), String> {
        if !shard.has_files() {
            return Ok(());
        }
        self.snapshot = None;
        self.begin(shard)?;
        while let Some(snapshot) = self.snapshot.take() {
            self.snapshot = go_on(snapshot, shard)?;
        }
        Ok(())
    }

    /// In a forked child, because the open file belongs to the parent.
    pub(crate) fn abandon(self) {
        std::mem::forget(self.snapshot);
    }

    fn begin(&mut self, shard: &mut Shard) -> Result<(), String> {
        let Some(journal) = shard.store.files() else { return Ok(()) };
        let written = journal.stats().written_bytes;
        let begun = Snapshot::begin(journal, &shard.engine, SHARD);
        self.snapshot = Some(begun.map_err(|e| e.to_string())?);
        self.rounds.snapshot_taken(written, shard.engine.now());
        Ok(())
    }

    /// Copies the records that matter in the next groups of an old segment; drops it after its
    /// last.
    fn carry(&mut self, shard: &mut Shard, mut old: Carry) -> Result<(), String> {
        let mut groups = GROUPS_A_PIECE;
        while let Some(n) = old.next(&shard.engine, &mut groups) {
            let Some(journal) = shard.store.files() else { return Ok(()) };
            let group = journal.reader().read(n).map_err(|e| e.to_string())?;
            shard.carry(&group).map_err(|_| NO_WRITES)?;
        }
        if !old.is_done() {
            self.old = Some(old);
            return Ok(());
        }
        // The copies must be stored first.
        shard.store_pending().map_err(|_| NO_WRITES)?;
        let Some(journal) = shard.store.files() else { return Ok(()) };
        self.rounds.carried(journal, &old);
        // More may have expired, which the next batch checks.
        self.looked_at = Millis::ZERO;
        let dropped = journal.drop_segment(old.part);
        dropped.map_or(Ok(()), |dropped| dropped.put_away()).map_err(|e| e.to_string())
    }
}

/// Writes a piece; returns `None` once the snapshot is published.
fn go_on(mut snapshot: Draft, shard: &mut Shard) -> Result<Option<Draft>, String> {
    if !snapshot.piece(&mut shard.engine, ringwell_engine::PIECE_ENTRIES) {
        if snapshot.is_full() {
            snapshot = snapshot.write().map_err(|e| e.to_string())?;
        }
        return Ok(Some(snapshot));
    }
    // The snapshot's records must be in the journal before it counts.
    let through = snapshot.through(&shard.engine);
    shard.store_pending().map_err(|_| NO_WRITES)?;
    snapshot.publish(through).map_err(|e| e.to_string())?;
    Ok(None)
}
