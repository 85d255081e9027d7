//! One shard's groups in a simulated process: in files on its machine's disk, or in memory.

use std::cell::RefCell;
use std::ops::Range;

use ringwell_core::Millis;
use ringwell_driver::store::{
    Appended, Damage, FileError, Frames, InlineJournal, Journal, JournalReader, Memory,
    MemoryReader, Part, ReadError, Reader, SnapshotFile, Stats, Store,
};
use ringwell_journal::{Clocks, Group, Noted};

use crate::files::SimFiles;
use crate::machine::Sim;

/// The store of a shard.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per shard")]
pub(crate) enum Stored {
    /// A frame is written, and flushed a while later, so that a kill may happen in between.
    Files { sim: Sim, journal: Journal<SimFiles>, frames: RefCell<Frames<SimFiles>> },
    /// Durability `memory`.
    Memory(Memory),
}

/// Reads the groups of a [`Stored`].
#[derive(Clone, Debug)]
pub(crate) enum StoredReader {
    Files(JournalReader<SimFiles>),
    Memory(MemoryReader),
}

impl Stored {
    pub(crate) fn in_files(sim: Sim, journal: InlineJournal<SimFiles>) -> Self {
        let (journal, frames) = journal.into_parts();
        Self::Files { sim, journal, frames: RefCell::new(frames) }
    }

    /// Prepares a spare segment, if one is missing. A failed one is tried again.
    pub(crate) fn keep_spare(&self) {
        if let Self::Files { journal, .. } = self {
            let _ = journal.spares().keep_one();
        }
    }
}

impl Store for Stored {
    type Reader = StoredReader;
    type Draft = SnapshotFile<SimFiles>;

    async fn append(&self, group: Group) -> Appended {
        let (sim, frames) = match self {
            Self::Files { sim, frames, .. } => (sim, frames),
            Self::Memory(memory) => return memory.append(group).await,
        };
        let written = frames.borrow_mut().write(&group);
        match written {
            Ok(()) => {}
            Err(error) if error.is_full() => {
                return Appended::Full { group, error: error.to_string() };
            }
            Err(error) => return Appended::Failed(error.to_string()),
        }
        sim.disk().await;
        let flushed = frames.borrow_mut().flush();
        match flushed {
            Ok(()) => Appended::Stored { spare: group.body },
            Err(error) => Appended::Failed(error.to_string()),
        }
    }

    fn reader(&self) -> StoredReader {
        match self {
            Self::Files { journal, .. } => StoredReader::Files(journal.reader()),
            Self::Memory(memory) => StoredReader::Memory(memory.reader()),
        }
    }

    fn expired(&self, now: Millis, clocks: Clocks) -> Option<Part> {
        match self {
            Self::Files { journal, .. } => journal.expired(now, clocks),
            Self::Memory(memory) => memory.expired(now, clocks),
        }
    }

    fn waits_for_snapshot(&self) -> bool {
        match self {
            Self::Files { journal, .. } => journal.waits_for_snapshot(),
            Self::Memory(memory) => memory.waits_for_snapshot(),
        }
    }

    async fn drop_part(&self, part: Part) -> Result<(), FileError> {
        let (sim, journal) = match self {
            Self::Files { sim, journal, .. } => (sim, journal),
            Self::Memory(memory) => return memory.drop_part(part).await,
        };
        let Some(dropped) = journal.drop_segment(part) else { return Ok(()) };
        let put_away = dropped.put_away();
        sim.disk().await;
        put_away
    }

    fn take_oldest(&self) -> Option<Group> {
        match self {
            Self::Files { .. } => None,
            Self::Memory(memory) => memory.take_oldest(),
        }
    }

    fn keep_more(&self, bytes: u64) {
        if let Self::Memory(memory) = self {
            memory.keep_more(bytes);
        }
    }

    fn draft(&self, replay_from: u64) -> Result<SnapshotFile<SimFiles>, FileError> {
        match self {
            Self::Files { journal, .. } => journal.create_snapshot(replay_from),
            Self::Memory(memory) => memory.draft(replay_from).map(|never| match never {}),
        }
    }

    fn identity(&self) -> [u8; 16] {
        match self {
            Self::Files { journal, .. } => journal.id(),
            Self::Memory(memory) => memory.identity(),
        }
    }

    fn stats(&self) -> Stats {
        match self {
            Self::Files { journal, .. } => journal.stats(),
            Self::Memory(memory) => memory.stats(),
        }
    }
}

impl Reader for StoredReader {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        match self {
            Self::Files(reader) => reader.read(n),
            Self::Memory(reader) => reader.read(n),
        }
    }

    fn noted(&self) -> Vec<Noted> {
        match self {
            Self::Files(reader) => reader.noted(),
            Self::Memory(reader) => reader.noted(),
        }
    }

    fn unread(&self) -> Range<u64> {
        match self {
            Self::Files(reader) => reader.unread(),
            Self::Memory(reader) => reader.unread(),
        }
    }

    fn check(&self, groups: Range<u64>) -> Result<(), Damage> {
        match self {
            Self::Files(reader) => reader.check(groups),
            Self::Memory(reader) => reader.check(groups),
        }
    }
}
