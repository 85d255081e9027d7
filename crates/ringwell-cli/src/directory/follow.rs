//! Applies changes in the database to the shards.
//!
//! Invariant: a version of the directory is confirmed only after every shard of this node uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwell_admin::DatabaseTokens;
use ringwell_config::Site;
use ringwell_node::{OrderError, RunningNode};
use ringwell_store::{Delta, Loaded, NodeRecord, Store, StoreError};
use tokio::sync::{Notify, watch};

use super::journals::Naming;
use super::sites::together;

/// The interval between version checks.
const EVERY: Duration = Duration::from_millis(200);

/// The time without an answer after which the database is considered unavailable.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// The time after which a node that does not confirm changes is reported.
const BEHIND_MAX: Duration = Duration::from_mins(2);

/// The number of checks between searches for numbers whose lockouts have ended.
const DUE_EVERY: u32 = 10;

/// Follows changes in the database.
pub(super) struct Follower {
    store: Store,
    /// This node's name in the database.
    node: String,
    /// The version that the shards use.
    version: u64,
    /// The version last confirmed to the database.
    confirmed: u64,
    live: RunningNode,
    /// The web sites in the configuration.
    sites_of_file: watch::Receiver<Vec<Site>>,
    /// The web sites in the database at `version`.
    sites: Vec<Site>,
    /// The tokens in the database, which are valid at the client addresses.
    tokens: DatabaseTokens,
    /// Notified when this process itself has changed the directory.
    changed: Arc<Notify>,
    /// The database problem that was reported last. `None` again once all queries succeed.
    trouble: Option<Trouble>,
    /// The reason why the shards refuse the newest version.
    refused: Option<String>,
    naming: Naming,
    behind: Behind,
}

/// The nodes that serve an older version than this node.
#[derive(Debug, Default)]
struct Behind {
    /// For each node, the time when it fell behind, and whether that was reported.
    since: BTreeMap<String, (Instant, bool)>,
}

impl Behind {
    /// Reports each node that remains behind for [`BEHIND_MAX`]. Such a node may have been removed
    /// from the cluster.
    fn note(&mut self, nodes: &[NodeRecord], version: u64, now: Instant) {
        let is_behind = |node: &&NodeRecord| node.version < version;
        let behind: BTreeSet<&str> =
            nodes.iter().filter(is_behind).map(|node| node.name.as_str()).collect();
        self.since.retain(|node, _| behind.contains(node.as_str()));
        for node in behind {
            let (since, is_reported) =
                self.since.entry(node.to_owned()).or_insert_with(|| (now, false));
            if !*is_reported && now.duration_since(*since) >= BEHIND_MAX {
                *is_reported = true;
                tracing::warn!(
                    behind = node,
                    "for two minutes, a node has not confirmed the newest changes to ring pools. \
                     Until it does, numbers that were removed from a pool cannot be handed out \
                     again. If the node is gone for good, run `ringwell pools nodes forget NAME`"
                );
            }
        }
    }
}

/// A problem with the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// A query fails.
    Lost,
    /// The database can be read, but refuses changes.
    ReadOnly,
}

/// The result of one database check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckResult {
    /// The node serves the newest version.
    Current,
    /// The node does not serve the newest version.
    Behind,
    /// The node has ended.
    Ended,
}

/// Reads the tokens that permit look-ups.
pub(super) async fn read_tokens(store: &Store, tokens: &DatabaseTokens) -> Result<(), StoreError> {
    tokens.lookup.replace(&store.lookup_hashes().await?);
    tokens.admin.replace(&store.admin_hashes().await?);
    Ok(())
}

impl Follower {
    /// Creates a follower. The database must already record that the shards of `node` use
    /// `version`.
    pub(super) fn new(
        store: Store,
        node: String,
        version: u64,
        live: RunningNode,
        (sites_of_file, sites): (watch::Receiver<Vec<Site>>, Vec<Site>),
        (changed, tokens): (Arc<Notify>, DatabaseTokens),
        naming: Naming,
    ) -> Self {
        let (confirmed, trouble, refused) = (version, None, None);
        Self {
            store,
            node,
            version,
            confirmed,
            live,
            sites_of_file,
            sites,
            tokens,
            changed,
            trouble,
            refused,
            naming,
            behind: Behind::default(),
        }
    }

    /// Follows the database until the node ends. The directory's age is counted from the start of
    /// this function, even if the first check fails.
    pub(super) async fn run(&mut self) {
        self.live.is_current().await;
        while self.round().await {}
    }

    /// Runs a few checks. Returns `false` once the node has ended.
    async fn round(&mut self) -> bool {
        let mut answers = false;
        for _ in 0..DUE_EVERY {
            let _ = tokio::time::timeout(EVERY, self.changed.notified()).await;
            let looked = self.look().await;
            answers = looked.is_ok();
            match looked {
                Ok(CheckResult::Ended) => return false,
                Ok(CheckResult::Current | CheckResult::Behind) => {}
                Err(error) if error.is_busy() => {}
                Err(error) => self.lost(&error),
            }
        }
        if answers {
            match self.periodic_work().await {
                // Another change, such as another node's import, is in progress.
                Err(error) if !error.is_busy() => self.lost(&error),
                Ok(()) | Err(_) => self.found(),
            }
        }
        true
    }

    /// Does the periodic work that does not have to run several times a second.
    async fn periodic_work(&mut self) -> Result<(), StoreError> {
        if self.store.is_read_only().await? {
            return Err(StoreError::ReadOnly);
        }
        self.naming.note(&self.store, &self.node).await?;
        let nodes = self.store.nodes().await?;
        // Adds this node again if it is missing, because an operator may have removed it by
        // mistake.
        if nodes.iter().all(|node| node.name != self.node) {
            self.store.confirm(&self.node, self.version, self.live.now()).await?;
        }
        self.behind.note(&nodes, self.version, Instant::now());
        self.store.due(self.live.now()).await?;
        read_tokens(&self.store, &self.tokens).await
    }

    /// Checks the database, and applies its changes.
    async fn look(&mut self) -> Result<CheckResult, StoreError> {
        let mut looked = CheckResult::Current;
        // Changes to the configuration's sites are applied even while the database does not answer.
        if self.sites_of_file.has_changed().unwrap_or(false) {
            self.serve_sites().await;
        }
        let version = tokio::time::timeout(SILENT_MAX, self.store.version()).await;
        let version = version.unwrap_or(Err(StoreError::Silent))?;
        if version < self.version {
            looked = self.go_back().await?;
        } else if version != self.version {
            let delta = self.store.changed_since(self.version).await?;
            looked = self.take(delta).await?;
        }
        if looked == CheckResult::Current {
            self.live.is_current().await;
            self.confirm().await?;
        }
        Ok(looked)
    }

    /// Confirms `version` to the database if it is not confirmed yet. Every check calls this, so a
    /// failed confirmation is repeated. Numbers that have left their pools cannot be handed out
    /// again before the confirmation.
    async fn confirm(&mut self) -> Result<(), StoreError> {
        if self.confirmed != self.version {
            self.store.confirm(&self.node, self.version, self.live.now()).await?;
            self.confirmed = self.version;
        }
        Ok(())
    }

    async fn take(&mut self, delta: Delta) -> Result<CheckResult, StoreError> {
        let Delta { version, changed, removed, sites } = delta;
        let (put, gone) = (changed.len(), removed.len());
        let taken = self.live.change(changed, removed).await;
        let looked = self.taken(version, taken);
        if looked != CheckResult::Current {
            return Ok(looked);
        }
        tracing::info!(version, changed = put, removed = gone, "the directory has changed");
        if let Some(sites) = sites {
            self.sites = sites;
            self.serve_sites().await;
        }
        self.version = version;
        Ok(CheckResult::Current)
    }

    /// Replaces all pools after the database has lost changes. Otherwise, this node would hand out
    /// numbers that, according to the database, are free for other pools.
    async fn go_back(&mut self) -> Result<CheckResult, StoreError> {
        let Loaded { version, pools, sites } = self.store.load_all().await?;
        let taken = self.live.replace(pools).await;
        let looked = self.taken(version, taken);
        if looked != CheckResult::Current {
            // Waits before the next attempt, because each attempt reads all pools.
            tokio::time::sleep(SILENT_MAX).await;
            return Ok(looked);
        }
        tracing::error!(
            version,
            served = self.version,
            "the directory's database contains an older version than the one this server was \
             using: a fail-over lost changes, or the database was restored from a copy. The server \
             now uses the pools of the older version. Once all nodes use these pools, repeat the \
             lost changes"
        );
        (self.version, self.sites) = (version, sites);
        self.serve_sites().await;
        Ok(CheckResult::Current)
    }

    /// Records whether the shards have applied the pools of `version`.
    fn taken(&mut self, version: u64, taken: Result<(), OrderError>) -> CheckResult {
        match taken {
            Ok(()) => {
                self.refused = None;
                CheckResult::Current
            }
            Err(OrderError::Refused(reason)) => {
                self.refused(version, reason);
                CheckResult::Behind
            }
            Err(OrderError::Stopping) => CheckResult::Ended,
        }
    }

    async fn serve_sites(&mut self) {
        let of_file = self.sites_of_file.borrow_and_update().clone();
        self.live.sites(together(&of_file, self.sites.clone())).await;
    }

    /// Records that the shards refuse a version that is valid in the database. The version is not
    /// confirmed, because this node may still hand out numbers that the version removes from their
    /// pools. The next check tries again.
    fn refused(&mut self, version: u64, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(
                version,
                reason,
                "a change to the directory cannot be applied yet; the server will try again"
            );
            self.refused = Some(reason);
        }
    }

    fn lost(&mut self, error: &StoreError) {
        let trouble = if error.is_read_only() { Trouble::ReadOnly } else { Trouble::Lost };
        if self.trouble.replace(trouble) == Some(trouble) {
            return;
        }
        match trouble {
            Trouble::ReadOnly => tracing::error!(
                %error,
                "the directory's database cannot be changed: the server continues with the pools \
                 in it, and changes to pools fail"
            ),
            Trouble::Lost => tracing::error!(
                %error,
                "the directory's database cannot be read: the server continues with its current \
                 pools"
            ),
        }
    }

    fn found(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the directory's database is available again");
        }
    }
}

#[cfg(test)]
#[test]
fn a_node_that_stays_behind_is_reported_once_until_it_catches_up() {
    use ringwell_core::Millis;

    let node = |name: &str, version| NodeRecord { name: name.to_owned(), version, at: Millis(0) };
    let (mut behind, start) = (Behind::default(), Instant::now());
    let mut reported = |b, seconds| {
        behind.note(&[node("a", 7), node("b", b)], 7, start + Duration::from_secs(seconds));
        behind.since.get("b").map(|(_, is_reported)| *is_reported)
    };
    assert_eq!(reported(6, 0), Some(false));
    assert_eq!(reported(6, 119), Some(false));
    assert_eq!(reported(6, 120), Some(true));
    assert_eq!(reported(7, 121), None);
    assert_eq!(reported(6, 122), Some(false));
}
