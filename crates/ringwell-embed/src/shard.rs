//! The shard and its journal: stores the engine's sealed groups before it continues.
//!
//! Invariant: groups are stored in order. If the disk is full, a group waits, and nothing is handed
//! out until it is stored; after any other failure nothing is handed out until the data is opened
//! again.

use ringwell_core::Millis;
use ringwell_driver::store::{Inline, Store};
use ringwell_engine::{Clocks, Engine, Outcome, Refusal};
use ringwell_journal::{Durability, GROUP_FULL_BYTES, Group};
use ringwell_os::{Clock, OsFiles};

use crate::open::Alone;

/// The time for which a group waits before it is tried again on a full disk.
const RETRY: Millis = Millis(250);

/// With durability "memory", groups are sealed at this size.
const MEMORY_GROUP_BYTES: usize = 256 * 1024;

/// The journal reported another group than expected.
pub(crate) const NO_WRITES: &str = "the journal accepts no writes";

/// One shard, its journal and its clock.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) engine: Engine,
    pub(crate) store: Inline<OsFiles>,
    clock: Clock,
    durability: Durability,
    /// A group for which there was no room, and the time of its last attempt.
    unstored: Option<(Group, Millis)>,
    /// The last error, for status reports.
    pub(crate) trouble: Option<String>,
    /// Memory for the next group.
    spare: Vec<u8>,
}

impl Shard {
    pub(crate) fn new(alone: Alone, durability: Durability) -> Self {
        let Alone { engine, store, clock, doubts: _, boot: _ } = alone;
        let (unstored, trouble, spare) = (None, None, Vec::new());
        Self { engine, store, clock, durability, unstored, trouble, spare }
    }

    /// Shard time now.
    pub(crate) fn now(&mut self) -> Millis {
        self.engine.at(self.clock.now())
    }

    /// The current readings of the clocks.
    pub(crate) fn clocks(&self) -> Clocks {
        self.clock.clocks()
    }

    /// Whether there are files.
    pub(crate) fn has_files(&self) -> bool {
        self.durability != Durability::Memory
    }

    /// Stores the open group. In memory this waits until the group is large enough.
    ///
    /// # Errors
    /// The reason why the journal refuses; no answer that depends on the group may be sent.
    pub(crate) fn commit(&mut self) -> Result<(), Refusal> {
        if self.has_files() {
            return self.store_pending();
        }
        if self.engine.pending_bytes() >= MEMORY_GROUP_BYTES {
            self.store_pending()?;
            self.forget_oldest()?;
        }
        Ok(())
    }

    /// Stores the open group if a batch of this many bytes would fill it before its last row.
    pub(crate) fn make_room(&mut self, batch_bytes: usize) {
        let pending = self.engine.pending_bytes();
        if pending > 0 && pending + batch_bytes > GROUP_FULL_BYTES {
            // A request for a number in the meantime gets the reason for its refusal.
            let _ = self.store_pending();
        }
    }

    /// Retries storing a group that did not fit on the full disk, unless it was tried just before.
    pub(crate) fn retry(&mut self) {
        let now = self.now();
        if self.unstored.as_ref().is_some_and(|(_, tried)| now.since(*tried) >= RETRY) {
            // A request for a number in the meantime gets the reason for its refusal.
            let _ = self.store_pending();
        }
    }

    /// Stores the waiting groups and the open one, unconditionally.
    ///
    /// # Errors
    /// The same as for [`Self::commit`].
    pub(crate) fn store_pending(&mut self) -> Result<(), Refusal> {
        if self.engine.refusal() == Some(Refusal::JournalFailed) {
            return Err(Refusal::JournalFailed);
        }
        if let Some((group, _)) = self.unstored.take() {
            self.store(group)?;
            self.engine.refuse(None);
            self.trouble = None;
        }
        self.engine.set_clocks(self.clock.clocks());
        while let Some(group) = self.engine.seal(std::mem::take(&mut self.spare)) {
            self.store(group)?;
        }
        Ok(())
    }

    /// Nothing is handed out any more until the data is opened again.
    pub(crate) fn fail(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        self.engine.refuse(Some(Refusal::JournalFailed));
    }

    fn store(&mut self, group: Group) -> Result<(), Refusal> {
        let unstored = match self.store.store(group) {
            Ok(spare) => {
                self.spare = spare;
                return Ok(());
            }
            Err(unstored) => *unstored,
        };
        self.trouble = Some(unstored.error.to_string());
        let refusal = if unstored.error.is_full() {
            self.unstored = Some((unstored.group, self.now()));
            Refusal::JournalFull
        } else {
            Refusal::JournalFailed
        };
        self.engine.refuse(Some(refusal));
        Err(refusal)
    }

    /// The journal did not accept the rows' records: their numbers are free again, and the rows
    /// overflow.
    pub(crate) fn give_up(&mut self, now: Millis, refusal: Refusal, outcomes: &mut [Outcome]) {
        for outcome in outcomes {
            if let Outcome::Allocated { number } | Outcome::Kept { number } = *outcome {
                let at = self.now();
                self.engine.withdraw(at, number, now);
                *outcome = Outcome::Refused(refusal);
            }
        }
    }

    /// In memory: drops the oldest group beyond the limit, after copying the records that still
    /// matter.
    fn forget_oldest(&mut self) -> Result<(), Refusal> {
        let taken = self.store.memory().and_then(Store::take_oldest);
        let Some(oldest) = taken else { return Ok(()) };
        if !self.engine.needs_group(oldest.header.n) {
            return Ok(());
        }
        let carried = self.engine.counts().carried;
        self.carry(&oldest)?;
        // Records have roughly the same size.
        let carried = self.engine.counts().carried - carried;
        if carried > oldest.records().count() as u64 / 2 {
            self.store.memory().inspect(|memory| memory.keep_more(oldest.body.len() as u64));
        }
        Ok(())
    }

    /// Copies the records of a group that still matter to the journal's end. The copies are stored
    /// with the next records, because separate frames would take more room than they had before.
    pub(crate) fn carry(&mut self, group: &Group) -> Result<(), Refusal> {
        let mut records = group.records();
        loop {
            let now = self.now();
            match self.engine.carry(now, &mut records, group.header.clocks) {
                Ok(true) => return Ok(()),
                Ok(false) => self.store_pending()?,
                Err(error) => {
                    self.trouble = Some(error.to_string());
                    return Ok(());
                }
            }
        }
    }
}
