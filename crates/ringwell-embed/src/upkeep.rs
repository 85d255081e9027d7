//! What a journal needs beside answering, a piece after each batch: snapshots, and giving up old
//! segments.
//!
//! A server has tasks for this. Here a caller waits for each piece of the driver's maintenance. A
//! failure is noted and tried again later; nothing stops for it.

use ringwell_core::Millis;
use ringwell_driver::maintenance::{Carry, ROUND, Rounds, Snapshot};
use ringwell_node::disk::OsFiles;

use crate::shard::{NO_WRITES, Shard};

/// Groups of an old segment in a piece: more than a batch writes, so that the end is reached.
const GROUPS_A_PIECE: u64 = 4;

/// The number of the only shard.
const SHARD: u16 = 0;

/// What is under way.
#[derive(Debug)]
pub(crate) struct Upkeep {
    rounds: Rounds,
    snapshot: Option<Snapshot<OsFiles>>,
    old: Option<Carry>,
    looked_at: Millis,
}

impl Upkeep {
    pub(crate) fn new(snapshot_every: u64, shard: &Shard) -> Self {
        let rounds = Rounds::new(&shard.journal, snapshot_every, None, shard.engine.now());
        Self { rounds, snapshot: None, old: None, looked_at: Millis::ZERO }
    }

    /// Does one piece of what there is to be done.
    ///
    /// # Errors
    /// What could not be done now.
    pub(crate) fn step(&mut self, shard: &mut Shard) -> Result<(), String> {
        if !shard.has_files() || shard.engine.refusal().is_some() {
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
        if self.rounds.wants_snapshot(&shard.journal, now) {
            self.begin(shard)?;
        }
        // Both: in a busy hour there is a snapshot to be taken each time.
        self.old = self.rounds.expired(&shard.journal, now, shard.clocks());
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
        while let Some(snapshot) = self.snapshot.take() {
            self.snapshot = go_on(snapshot, shard)?;
        }
        Ok(())
    }

    /// In a forked child: the file that is being written is the parent's.
    pub(crate) fn abandon(self) {
        std::mem::forget(self.snapshot);
    }

    fn begin(&mut self, shard: &mut Shard) -> Result<(), String> {
        let written = shard.journal.stats().written_bytes;
        let begun = Snapshot::begin(&shard.journal, &shard.engine, SHARD);
        self.snapshot = Some(begun.map_err(|e| e.to_string())?);
        self.rounds.snapshot_taken(written, shard.engine.now());
        Ok(())
    }

    /// Copies what matters in the next groups of an old segment; drops it after its last.
    fn carry(&mut self, shard: &mut Shard, mut old: Carry) -> Result<(), String> {
        let mut groups = GROUPS_A_PIECE;
        while let Some(n) = old.next(&shard.engine, &mut groups) {
            let group = shard.journal.reader().read_group(n).map_err(|e| e.to_string())?;
            shard.carry(&group).map_err(|_| NO_WRITES)?;
        }
        if !old.is_done() {
            self.old = Some(old);
            return Ok(());
        }
        // The copies first.
        shard.store_pending().map_err(|_| NO_WRITES)?;
        self.rounds.carried(&shard.journal, &old);
        // More may have expired: look again with the next batch.
        self.looked_at = Millis::ZERO;
        let dropped = shard.journal.drop_segment(old.segment);
        dropped.map_or(Ok(()), |dropped| dropped.put_away()).map_err(|e| e.to_string())
    }
}

/// Takes a piece; `None` once the snapshot is published.
fn go_on(
    mut snapshot: Snapshot<OsFiles>,
    shard: &mut Shard,
) -> Result<Option<Snapshot<OsFiles>>, String> {
    if !snapshot.piece(&mut shard.engine) {
        if snapshot.is_full() {
            snapshot = snapshot.write().map_err(|e| e.to_string())?;
        }
        return Ok(Some(snapshot));
    }
    // What the snapshot knows must be in the journal before it counts.
    let through = snapshot.through(&shard.engine);
    shard.store_pending().map_err(|_| NO_WRITES)?;
    snapshot.publish(through).map_err(|e| e.to_string())?;
    Ok(None)
}
