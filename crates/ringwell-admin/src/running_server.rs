//! A trait for data that only the running server has.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId};

/// An answer that arrives later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The running server that uses the directory.
pub trait RunningServer: Send + Sync {
    /// The current time, in milliseconds since 1970.
    fn now(&self) -> Millis;

    /// The present state of `pool`. `None` if no reachable shard has the pool.
    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>>;

    /// The recent demand for `pool`. `None` if no shard of this node has the pool, or if the pool
    /// has not been watched long enough.
    fn load(&self, pool: PoolId) -> Option<PoolLoad>;

    /// The name of the node that serves `pool`. `None` if this node serves it, or if there is only
    /// one node.
    fn other_owner(&self, _pool: PoolId) -> Later<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// The numbers in the rotation of `pool` that no visitor has held since the time `since`. Empty
    /// if the pool's shard cannot be reached. `None` if it is not known which numbers visitors have
    /// held since then.
    fn unused(&self, pool: PoolId, since: Millis) -> Later<'_, Option<Vec<NumberRange>>>;

    /// The web sites in the configuration that was last read.
    fn configured_sites(&self) -> Vec<Site>;

    /// Reports that the directory has changed and is now at version `version`. The server then
    /// reloads the directory immediately.
    fn changed(&self, version: u64);
}

/// The state of a pool in its shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// The count of numbers in rotation.
    pub numbers: u64,
    /// The count of numbers that can be handed out now.
    pub free: u64,
    /// The count of numbers that visitors hold.
    pub locked: u64,
    /// The time at which the next number becomes free, if none is free now.
    pub next_free: Option<Millis>,
    /// The shard that owns the pool.
    pub shard: u16,
    /// The count of numbers handed out since the server started.
    pub allocated: u64,
    /// The count of overflow rows since the server started, by reason.
    pub overflow: BTreeMap<String, u64>,
}

/// The recent demand for a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolLoad {
    /// The count of numbers in rotation.
    pub numbers: u32,
    /// The guaranteed lifetime of an allocation.
    pub lifetime: Millis,
    /// The mean lockout after an allocation, including keep-alives and releases.
    pub lockout: Duration,
    /// The period of the counts: the lifetime or slightly more, or the server's uptime if that is
    /// shorter.
    pub over: Millis,
    /// The count of rows during `over`, including overflow rows.
    pub asked: u64,
    /// The count of rows during `over` for which every number was locked out.
    pub exhausted: u64,
    /// The share of visitors during `over` for whom every number was locked out. Such visitors
    /// repeat their rows. The repeats are assumed to be as frequent as other visitors' keep-alives.
    pub overflow: f64,
    /// The mean count of numbers that would be locked out if the pool never ran out. It is the
    /// count of rows in one lifetime, at the rate measured in `over`, plus the numbers that stayed
    /// locked out after one lifetime because of keep-alives.
    pub load: f64,
    /// The highest mean of `load` over a clock hour in the last day.
    pub busiest: f64,
}

impl PoolLoad {
    /// A cautious estimate of `load`, for decisions that cost money or wake people. While `over` is
    /// shorter than the lifetime, `load` is extrapolated from few rows; the actual load is below
    /// this estimate in about one case in forty.
    #[must_use]
    pub fn at_least(&self) -> f64 {
        if self.over >= self.lifetime || self.asked == 0 {
            return self.load;
        }
        #[expect(clippy::cast_precision_loss, reason = "the counts of a lifetime are below 2^52")]
        let asked = self.asked as f64;
        // The square root of a count of independent events has a standard deviation of one half.
        self.load * (1.0 - 1.0 / asked.sqrt()).powi(2)
    }
}
