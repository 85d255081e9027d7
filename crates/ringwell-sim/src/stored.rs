//! One shard's groups in a simulated process, stored in files on the machine's disk or in memory.

use std::cell::RefCell;

use ringwell_core::Millis;
use ringwell_driver::store::{
    Appended, Either, FileError, Frames, Inline, InlineJournal, Journal, JournalReader, Memory,
    Part, SnapshotFile, Stats, Store,
};
use ringwell_journal::{Clocks, Group};

use crate::files::SimFiles;
use crate::machine::Sim;

/// A shard's store.
pub(crate) type Stored = Either<Filed, Memory>;

/// Stores groups in files. A frame is written first and flushed some time later, so that the
/// process may be killed in between.
#[derive(Debug)]
pub(crate) struct Filed {
    sim: Sim,
    journal: Journal<SimFiles>,
    frames: RefCell<Frames<SimFiles>>,
}

/// Converts the store that a shard was opened with to the store that the simulated process uses.
pub(crate) fn stored(sim: &Sim, store: Inline<SimFiles>) -> Stored {
    match store {
        Either::Left(files) => Either::Left(Filed::new(sim.clone(), files)),
        Either::Right(memory) => Either::Right(memory),
    }
}

/// Flushes the unflushed groups during an orderly shutdown, as the server does when it closes its
/// store.
pub(crate) fn close(store: &Stored) -> Result<(), FileError> {
    match store {
        Either::Left(files) => files.journal.flush(),
        Either::Right(_) => Ok(()),
    }
}

impl Filed {
    fn new(sim: Sim, files: InlineJournal<SimFiles>) -> Self {
        let (journal, frames) = files.into_parts();
        Self { sim, journal, frames: RefCell::new(frames) }
    }

    /// Prepares a spare segment if there is none. If this fails, a later call tries again.
    pub(crate) fn keep_spare(&self) {
        let _ = self.journal.spares().keep_one();
    }
}

impl Store for Filed {
    type Reader = JournalReader<SimFiles>;
    type Draft = SnapshotFile<SimFiles>;

    async fn append(&self, group: Group) -> Appended {
        let written = self.frames.borrow_mut().write(&group);
        match written {
            Ok(()) => {}
            Err(error) if error.is_full() => {
                return Appended::Full { group, error: error.to_string() };
            }
            Err(error) => return Appended::Failed(error.to_string()),
        }
        self.sim.disk().await;
        let flushed = self.frames.borrow_mut().flush();
        match flushed {
            Ok(()) => Appended::Stored { spare: group.body },
            Err(error) => Appended::Failed(error.to_string()),
        }
    }

    fn reader(&self) -> JournalReader<SimFiles> {
        self.journal.reader()
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        self.journal.expired(now, clocks)
    }

    fn waits_for_snapshot(&self) -> bool {
        self.journal.waits_for_snapshot()
    }

    async fn drop_part(&self, part: Part) -> Result<(), FileError> {
        let Some(dropped) = self.journal.drop_segment(part) else { return Ok(()) };
        let put_away = dropped.put_away();
        self.sim.disk().await;
        put_away
    }

    fn draft(&self, replay_from: u64) -> Result<SnapshotFile<SimFiles>, FileError> {
        self.journal.create_snapshot(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        self.journal.id()
    }

    fn stats(&self) -> Stats {
        self.journal.stats()
    }
}
