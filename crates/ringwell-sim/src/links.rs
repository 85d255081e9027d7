//! The state of links.

use std::collections::BTreeMap;

/// A link is identified by its node, the node's process (its `life`), the thread that uses the
/// link, and the destination shard.
pub(crate) type Link = (usize, u32, u16, u16);

/// The state of links as it can be observed from outside.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The start times of the calls since the last fast answer.
    pub(crate) bad: BTreeMap<Link, Vec<u64>>,
    /// The calls in progress, with their links and start times.
    pub(crate) calls: BTreeMap<u64, (Link, u64)>,
}
