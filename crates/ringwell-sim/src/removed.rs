//! Numbers and pools that an operator has removed from the list of pools.

use std::collections::BTreeMap;

use crate::model::PoolRule;

/// The numbers and pools that are not in the list at present.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// The numbers, each with the lifetime of the pool that it left.
    pub(crate) numbers: BTreeMap<u64, u64>,
    pub(crate) pools: BTreeMap<u64, PoolRule>,
}
