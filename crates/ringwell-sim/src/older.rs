//! Old data: a data directory without some of the allocations that its node has sent to clients.

use std::collections::BTreeSet;

use ringwell_directory::Owners;
use ringwell_driver::store::{Leaving, WrittenJournal};

use crate::name::Name;

/// A copy of a node's data, and the values that decide whether the copy can still be restored.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) node: usize,
    /// Whether the operator marks the data as restored.
    pub(crate) is_marked: bool,
    pub(crate) files: Copy,
    /// The time when the copy was made.
    pub(crate) at: u64,
    pub(crate) owners: Option<(Owners, Vec<Leaving>)>,
    pub(crate) map: u64,
    pub(crate) boots: usize,
}

/// The files on a disk at one point in time.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) files: Vec<(Name, Vec<u8>)>,
    pub(crate) directories: BTreeSet<u16>,
    /// Whether the disk had lost or damaged anything before the copy was made.
    pub(crate) was_to_blame: bool,
}

impl Copy {
    /// Keeps only the files of one shard.
    pub(crate) fn of_shard(mut self, shard: u16) -> Self {
        self.files.retain(|(name, _)| name.shard == shard);
        self
    }
}

/// A copy of one shard's journal, and the values that decide whether the copy can still be
/// restored.
#[derive(Debug)]
pub(crate) struct CopiedJournal {
    pub(crate) node: usize,
    pub(crate) shard: u16,
    /// See [`Lost::written`].
    pub(crate) written: Option<WrittenJournal>,
    pub(crate) files: Copy,
    /// The time when the copy was made.
    pub(crate) at: u64,
    pub(crate) owners: Option<(Owners, Vec<Leaving>)>,
    pub(crate) map: u64,
    /// The time after which the original journal replaces the restored copy, if it ever does.
    pub(crate) back_us: Option<u64>,
}

/// A shard's journal that its node has lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) node: usize,
    pub(crate) shard: u16,
    /// The journal's entry in `identity.json` at the time of the loss.
    pub(crate) written: Option<WrittenJournal>,
    pub(crate) files: Copy,
    /// The time when the journal was lost.
    pub(crate) at: u64,
    /// The allocations that were already missing from the node's data before the loss.
    pub(crate) before: Option<Older>,
}

/// Describes data that lacks some of the allocations that were sent to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Older {
    /// Whether the node can detect on its own that the data is old, for example because the
    /// operator has marked it. If not, only other nodes can detect this.
    pub(crate) is_marked: bool,
    /// All allocations made since this time are missing.
    pub(crate) since_us: u64,
}

/// A shard with old data, and the other nodes that have recorded a different data directory or a
/// longer journal for that shard.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) shard: u16,
    pub(crate) by: Vec<usize>,
}
