//! The count of numbers that a network may still add.

/// The count of numbers that one network may still add, cached during a change. Counting takes time
/// in proportion to the count of the network's pools, so it must not be repeated for every line of
/// a list of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) network: String,
    /// The network's maximum count of numbers, and the count of numbers that it may still add.
    pub(crate) ceiling: Option<(u64, u64)>,
}
