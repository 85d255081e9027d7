//! The names of files on a simulated disk.

/// The name of a file. For the node's own files, `shard` is `u16::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) shard: u16,
    pub(crate) sort: Sort,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    Segment,
    Spare,
    Snapshot,
    /// A snapshot, spare segment or map that is not complete yet.
    Unfinished,
    Map,
}
