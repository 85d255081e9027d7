//! A trait for data that only the running server has.

use std::collections::BTreeMap;
use std::pin::Pin;

use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId};

/// An answer that arrives later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server behind the directory.
pub trait RunningServer: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Millis;

    /// The present state of `pool`; `None` if no reachable shard has it.
    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>>;

    /// The recent demand for `pool`; `None` if no shard of this node has it, or it has not been
    /// watched long enough.
    fn load(&self, pool: PoolId) -> Option<PoolLoad>;

    /// Numbers in the rotation of `pool` that have not been held since `since`; empty if the shard
    /// cannot be reached.
    fn unused(&self, pool: PoolId, since: Millis) -> Later<'_, Vec<NumberRange>>;

    /// The web sites of the configuration, as last read.
    fn configured_sites(&self) -> Vec<Site>;

    /// Reports that the directory has changed, up to `version`. The server then reloads it at once.
    fn changed(&self, version: u64);
}

/// A pool as its shard sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Numbers in rotation.
    pub numbers: u64,
    /// Numbers that can be handed out now.
    pub free: u64,
    /// Numbers that visitors hold.
    pub locked: u64,
    /// The time when the next number becomes free, if none is.
    pub next_free: Option<Millis>,
    /// The shard.
    pub shard: u16,
    /// Numbers handed out since the server started.
    pub allocated: u64,
    /// Rows that got the overflow number since the server started, by reason.
    pub overflow: BTreeMap<String, u64>,
}

/// The recent demand for a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolLoad {
    /// Numbers in rotation.
    pub numbers: u32,
    /// The lockout after an allocation.
    pub lifetime: Millis,
    /// The period of the counts: the lifetime or the time since the server started, or slightly
    /// more.
    pub over: Millis,
    /// Rows in that time, including overflow rows.
    pub asked: u64,
    /// The count of those rows that found every number locked out.
    pub exhausted: u64,
    /// Rows in one lifetime at that rate: the count of numbers that would be locked out on average
    /// if the pool never ran out.
    pub load: f64,
    /// The highest mean of `load` over a clock hour in the last day.
    pub busiest: f64,
}
