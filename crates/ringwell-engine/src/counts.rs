//! Counts of an engine's events.

/// Counts of events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Numbers handed out.
    pub allocated: u64,
    /// Lockouts that a returning visitor extended.
    pub kept: u64,
    /// Rows of repeated batches that got the answer they had before.
    pub repeated: u64,
    /// Rows that found every number locked.
    pub exhausted: u64,
    /// Rows refused because their pool belongs to another shard.
    pub moved: u64,
    /// Lockouts ended early.
    pub released: u64,
    /// Current allocations whose records were copied before their segment was dropped.
    pub carried: u64,
}
