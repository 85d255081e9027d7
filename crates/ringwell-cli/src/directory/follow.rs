//! What changes in the database reaches the shards.
//!
//! Invariant: a version is confirmed when every shard goes by it, and not before.

use std::sync::Arc;
use std::time::Duration;

use ringwell_node::{Live, LiveError};
use ringwell_store::{Delta, Store, StoreError};
use tokio::sync::Notify;

use super::now;

/// How often the version is asked for.
const EVERY: Duration = Duration::from_millis(200);

/// How often numbers are looked for whose lockouts are over.
const DUE_EVERY: u32 = 10;

/// Who follows the database.
pub(super) struct Follower {
    pub(super) store: Store,
    /// Who this node is to the database.
    pub(super) node: String,
    /// What the shards go by.
    pub(super) version: u64,
    pub(super) live: Live,
    /// Told when this process itself has changed the directory.
    pub(super) changed: Arc<Notify>,
    /// The database did not answer the last time.
    pub(super) is_lost: bool,
    /// Why the newest version cannot be served.
    pub(super) refused: Option<String>,
}

/// What a look at the database came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// The node serves the newest version.
    Current,
    /// It does not.
    Behind,
    /// The node has ended.
    Ended,
}

impl Follower {
    /// A few looks; `false` when the node has ended.
    pub(super) async fn round(&mut self) -> bool {
        for _ in 0..DUE_EVERY {
            let _ = tokio::time::timeout(EVERY, self.changed.notified()).await;
            let looked = self.look().await;
            match looked {
                Ok(Looked::Ended) => return false,
                Ok(Looked::Current | Looked::Behind) => self.found(),
                Err(error) => self.lost(&error),
            }
        }
        if let Err(error) = self.store.due(now()).await {
            self.lost(&error);
        }
        true
    }

    /// Takes over what is new.
    async fn look(&mut self) -> Result<Looked, StoreError> {
        let mut looked = Looked::Current;
        if self.store.version().await? != self.version {
            let delta = self.store.changed_since(self.version).await?;
            looked = self.take(delta).await?;
        }
        if looked == Looked::Current {
            self.live.is_current().await;
        }
        Ok(looked)
    }

    async fn take(&mut self, delta: Delta) -> Result<Looked, StoreError> {
        let Delta { version, changed, removed } = delta;
        let (put, gone) = (changed.len(), removed.len());
        match self.live.change(changed, removed).await {
            Ok(()) => {
                tracing::info!(version, changed = put, removed = gone, "the directory has changed");
                self.refused = None;
            }
            Err(LiveError::Refused(reason)) => {
                self.refused(version, reason);
                return Ok(Looked::Behind);
            }
            Err(LiveError::Stopping) => return Ok(Looked::Ended),
        }
        self.version = version;
        self.store.confirm(&self.node, version, now()).await?;
        Ok(Looked::Current)
    }

    /// The shards do not take what the database allows. Nothing is confirmed: numbers that have left
    /// a pool there may still go out of it here. It is tried again with whatever comes next.
    fn refused(&mut self, version: u64, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(version, reason, "a change of the directory cannot be served yet");
            self.refused = Some(reason);
        }
    }

    fn lost(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_lost, true) {
            tracing::error!(
                %error,
                "the directory's database cannot be read: the server goes on with the pools it has"
            );
        }
    }

    fn found(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            tracing::info!("the directory's database is there again");
        }
    }
}
