//! The running server's data for the management API.

use std::sync::Arc;

use ringwell_admin::{Later, PoolLoad, PoolState, SharedLoads};
use ringwell_config::Site;
use ringwell_core::{Millis, NumberRange, PoolId};
use ringwell_node::RunningNode;
use tokio::sync::{Notify, watch};

/// The state that the management API's handlers use.
pub(super) struct Server {
    pub(super) live: RunningNode,
    pub(super) changed: Arc<Notify>,
    /// The web sites in the configuration file.
    pub(super) sites_of_file: watch::Receiver<Vec<Site>>,
    pub(super) loads: SharedLoads,
}

impl ringwell_admin::RunningServer for Server {
    fn now(&self) -> Millis {
        self.live.now()
    }

    fn state(&self, pool: PoolId) -> Later<'_, Option<PoolState>> {
        Box::pin(async move {
            let state = self.live.state(pool).await.ok()??;
            let refused = self.live.refused(pool).await.ok()?;
            let refused = refused.into_iter().map(|(reason, rows)| (reason.to_owned(), rows));
            let exhausted = ("exhausted".to_owned(), u64::from(state.exhausted));
            Some(PoolState {
                numbers: state.numbers.into(),
                free: u64::from(state.numbers - state.locked.min(state.numbers)),
                locked: state.locked.into(),
                next_free: state.next_free,
                shard: state.shard,
                allocated: state.allocated.into(),
                overflow: refused.chain([exhausted]).collect(),
            })
        })
    }

    fn load(&self, pool: PoolId) -> Option<PoolLoad> {
        self.loads.lock().of(pool)
    }

    fn other_owner(&self, pool: PoolId) -> Later<'_, Option<String>> {
        Box::pin(async move { self.live.other_owner(pool).await.ok()? })
    }

    fn unused(&self, pool: PoolId, since: Millis) -> Later<'_, Option<Vec<NumberRange>>> {
        Box::pin(async move { self.live.unused(pool, since).await.unwrap_or(Some(Vec::new())) })
    }

    fn configured_sites(&self) -> Vec<Site> {
        self.sites_of_file.borrow().clone()
    }

    fn changed(&self, _version: u64) {
        self.changed.notify_one();
    }
}
