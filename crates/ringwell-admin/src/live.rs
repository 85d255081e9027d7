//! What only the running server knows, asked through a trait that the server fulfils.

use std::collections::BTreeMap;
use std::pin::Pin;

use ringwell_core::{Millis, NumberRange, PoolId};

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server behind the directory.
pub trait Live: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Millis;

    /// What `pool` is doing now; `None` if no shard that can be reached has it.
    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>>;

    /// What has been asked of `pool` lately; `None` if no shard of this node has it, or nobody has
    /// looked for long enough.
    fn load(&self, pool: PoolId) -> Option<PoolLoad>;

    /// Numbers in the rotation of `pool` that nobody has held since the moment `since`, as far as
    /// the shard that has it can be reached.
    fn unused(&self, pool: PoolId, since: Millis) -> Later<'_, Vec<NumberRange>>;

    /// The directory has changed, up to `version`: the server takes it without being asked twice.
    fn changed(&self, version: u64);
}

/// A pool as its shard sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Numbers in rotation.
    pub numbers: u64,
    /// Numbers that can go out now.
    pub free: u64,
    /// Numbers that visitors hold.
    pub locked: u64,
    /// When the next one comes free, if none is.
    pub next_free: Option<Millis>,
    /// The shard.
    pub shard: u16,
    /// Numbers handed out since the server started.
    pub allocated: u64,
    /// Rows that got the overflow number since the server started, by reason.
    pub overflow: BTreeMap<String, u64>,
}

/// What has been asked of a pool lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolLoad {
    /// Numbers in rotation.
    pub numbers: u32,
    /// How long an allocation locks its number out.
    pub lifetime: Millis,
    /// The time that the counts are of: the lifetime, or since the server started, or a little
    /// more.
    pub over: Millis,
    /// Rows in that time, those that overflowed included.
    pub asked: u64,
    /// How many of them found every number locked.
    pub exhausted: u64,
    /// Rows in one lifetime at that rate: numbers that would be locked out on average if none ever
    /// ran out.
    pub load: f64,
    /// The highest mean of `load` over a clock hour, of the last day.
    pub busiest: f64,
}
