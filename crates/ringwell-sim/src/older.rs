//! Values that describe data directories that lack some of their node's answered allocations.

use std::collections::BTreeSet;

use ringwell_directory::Owners;
use ringwell_driver::store::{Leaving, WrittenJournal};

use crate::disk::Name;

/// A copy of a node's data, and the conditions that must still hold when it is restored.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) node: usize,
    /// Whether the operator marks the data.
    pub(crate) is_marked: bool,
    pub(crate) files: Copy,
    /// The time at which it was made.
    pub(crate) at: u64,
    pub(crate) owners: Option<(Owners, Vec<Leaving>)>,
    pub(crate) map: u64,
    pub(crate) boots: usize,
}

/// The files of a disk at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) files: Vec<(Name, Vec<u8>)>,
    pub(crate) directories: BTreeSet<u16>,
    /// Whether the disk had lost or damaged something by then.
    pub(crate) was_to_blame: bool,
}

impl Copy {
    /// Keeps only the files of one shard.
    pub(crate) fn of_shard(mut self, shard: u16) -> Self {
        self.files.retain(|(name, _)| name.shard == shard);
        self
    }
}

/// A copy of the journal of one shard, and the conditions that must still hold when it is put back.
#[derive(Debug)]
pub(crate) struct CopiedJournal {
    pub(crate) node: usize,
    pub(crate) shard: u16,
    /// See [`Lost::written`].
    pub(crate) written: Option<WrittenJournal>,
    pub(crate) files: Copy,
    /// The time at which it was made.
    pub(crate) at: u64,
    pub(crate) owners: Option<(Owners, Vec<Leaving>)>,
    pub(crate) map: u64,
    /// The delay after which the original is brought back.
    pub(crate) back_us: Option<u64>,
}

/// The journal of one shard that a node has lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) node: usize,
    pub(crate) shard: u16,
    /// Its entry in `identity.json` at that time.
    pub(crate) written: Option<WrittenJournal>,
    pub(crate) files: Copy,
    /// The time at which it was lost.
    pub(crate) at: u64,
    /// The groups that the data already lacked.
    pub(crate) before: Option<Older>,
}

/// Data that lack some of the answered allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Older {
    /// Whether the operator has marked the data; otherwise only other nodes may detect it.
    pub(crate) is_marked: bool,
    /// The time from which on they lack everything.
    pub(crate) since_us: u64,
}

/// A shard whose data are older, and the nodes with a record of a longer journal.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) shard: u16,
    pub(crate) by: Vec<usize>,
}
