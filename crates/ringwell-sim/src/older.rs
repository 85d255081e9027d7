//! Types that describe a data directory that lacks some of the allocations that its node has sent
//! to clients.

use std::collections::BTreeSet;

use ringwell_directory::Owners;
use ringwell_driver::store::{Leaving, WrittenJournal};

use crate::disk::Name;

/// A copy of a node's data, and the conditions that must still be met when it is restored.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) node: usize,
    /// Whether the operator marks the restored data.
    pub(crate) is_marked: bool,
    pub(crate) files: Copy,
    /// The time when the copy was made.
    pub(crate) at: u64,
    pub(crate) owners: Option<(Owners, Vec<Leaving>)>,
    pub(crate) map: u64,
    pub(crate) boots: usize,
}

/// The files of a disk at some time.
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

/// A copy of one shard's journal, and the conditions that must still be met when it is restored.
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
    /// The time between the restoration of the copy and the return of the original journal, if the
    /// original returns.
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
    /// The allocations that the data already lacked before the loss.
    pub(crate) before: Option<Older>,
}

/// Describes data that lacks some of the allocations that were sent to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Older {
    /// Whether the operator has marked the data. If not, only other nodes can detect that the data
    /// is old.
    pub(crate) is_marked: bool,
    /// The time since which all allocations are missing.
    pub(crate) since_us: u64,
}

/// A shard with older data, and the nodes that have a record of a longer journal of that shard.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) shard: u16,
    pub(crate) by: Vec<usize>,
}
