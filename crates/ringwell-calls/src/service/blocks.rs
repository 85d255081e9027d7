//! Keeps the list of blocked callers in memory, so that a call can be refused without querying the
//! database.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ringwell_core::PoolId;
use ringwell_store::Repeated;

use super::Service;
use crate::attribution::Serving;
use crate::block::{BlockRow, Blocks};
use crate::caller::Caller;
use crate::log::LogError;

/// The interval at which the list is reloaded, in case another server has changed it.
const EVERY: Duration = Duration::from_secs(10);

static UNREAD: Repeated = Repeated::new();

impl Service {
    /// Reads the list from the log.
    pub(crate) async fn read_blocks(&self) -> Result<(), LogError> {
        let rows = self.inner.log.blocks().await?;
        let blocks = Arc::new(Blocks::new(rows));
        *self.inner.blocks.write().unwrap_or_else(PoisonError::into_inner) = blocks;
        Ok(())
    }

    /// Reloads the list periodically until the process ends. If the log does not answer, the list
    /// remains unchanged.
    pub(super) async fn follow_blocks(self) {
        loop {
            if let Err(error) = self.read_blocks().await
                && !self.inner.log.reports(&error)
                && let Some(left_out) = UNREAD.pass()
            {
                tracing::warn!(%error, left_out, "the list of blocked callers could not be \
                    reloaded");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Whether callers may be blocked for the pool with the id `pool`. False if the pool does not
    /// exist.
    pub(crate) fn may_block_at(&self, pool: u64) -> bool {
        self.inner.numbers.has_pool(PoolId(pool)).unwrap_or(true)
    }

    /// The list's entry that blocks a call from `caller` to a number in the pools `serving`.
    pub(super) fn block(&self, caller: &Caller, serving: &[Serving]) -> Option<BlockRow> {
        let blocks = Arc::clone(&self.inner.blocks.read().unwrap_or_else(PoisonError::into_inner));
        blocks.find(caller, serving).cloned()
    }
}
