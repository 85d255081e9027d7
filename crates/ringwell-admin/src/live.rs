//! What only the running server knows, asked through a trait that the server fulfils.

use std::collections::BTreeMap;
use std::pin::Pin;

use ringwell_core::{Millis, PoolId};

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server behind the directory.
pub trait Live: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Millis;

    /// What `pool` is doing now; `None` if no shard that can be reached has it.
    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>>;

    /// The directory has changed, up to `version`: the server takes it without being asked twice.
    fn changed(&self, version: u64);
}

/// A pool as its shard sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Numbers that can go out now.
    pub free: u64,
    /// Numbers that visitors hold.
    pub locked: u64,
    /// When the next one comes free, if none is.
    pub next_free: Option<Millis>,
    /// Rows that got the overflow number since the server started, by reason.
    pub overflow: BTreeMap<String, u64>,
}
