//! Counts of an engine's events.

/// Counts of events since startup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Numbers handed out.
    pub allocated: u64,
    /// The count of lockouts that a returning visitor extended.
    pub kept: u64,
    /// The count of rows of repeated batches that got the same answer as before.
    pub repeated: u64,
    /// The count of rows for which every number was locked out.
    pub exhausted: u64,
    /// The count of rows refused because their pool belongs to another shard.
    pub moved: u64,
    /// Lockouts ended early.
    pub released: u64,
    /// The count of current allocations whose records were copied before their segment was dropped.
    pub carried: u64,
}
