//! The list of blocked callers, in memory: a call is refused without asking the database.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ringwell_core::PoolId;
use ringwell_store::Repeated;

use super::Service;
use crate::attribution::Serving;
use crate::block::{Block, Blocks};
use crate::caller::Caller;
use crate::log::LogError;

/// The interval for reading the list again: another server may have changed it.
const EVERY: Duration = Duration::from_secs(10);

static UNREAD: Repeated = Repeated::new();

impl Service {
    /// Reads the list from the log.
    pub(crate) async fn read_blocks(&self) -> Result<(), LogError> {
        let rows = self.inner.log.blocks().await?;
        let blocks = Arc::new(Blocks::new(rows.into_iter().map(|row| row.block).collect()));
        *self.inner.blocks.write().unwrap_or_else(PoisonError::into_inner) = blocks;
        Ok(())
    }

    /// Keeps the list as the log has it, until the process ends. Without an answer of the log it stays
    /// as it was.
    pub(super) async fn follow_blocks(self) {
        loop {
            if let Err(error) = self.read_blocks().await
                && let Some(left_out) = UNREAD.pass()
            {
                tracing::warn!(%error, left_out, "the list of blocked callers is as it was");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Whether a list may have an entry for this pool: not for one that does not exist.
    pub(crate) fn may_block_at(&self, pool: u64) -> bool {
        self.inner.numbers.has_pool(PoolId(pool)).unwrap_or(true)
    }

    /// The entry by which `caller` is refused at a number that `serving` serve.
    pub(super) fn block(&self, caller: &Caller, serving: &[Serving]) -> Option<Block> {
        let blocks = Arc::clone(&self.inner.blocks.read().unwrap_or_else(PoisonError::into_inner));
        blocks.find(caller, serving).cloned()
    }
}
