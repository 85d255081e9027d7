//! A running node, for the management API and the dashboard.
//!
//! Owns the queries to the shards, which it sends as messages. Knows nothing of paths, tokens or
//! response formats, which are in `ringwell-admin`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use bytes::Bytes;
use ringwell_config::{Config, Site};
use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::Directory;
use ringwell_engine::{Moment, Past, Refusal};
use ringwell_wire::RequestError;
use tokio::sync::oneshot;

use ringwell_driver::Platform;
use ringwell_driver::holder::{AskError, HolderError, Joined, ask, holder};
use ringwell_driver::membership::Membership;

use crate::application::{self, PushError};
use crate::platform::Tokio;
use crate::running_node::{asked, look_at, refused};
use crate::server::Server;
use crate::site::{Outcome, SiteEntry};
use ringwell_driver::message::Message;
use ringwell_driver::moves::{self, Given, MoveError};
use ringwell_driver::node::{HistoryState, JournalState, Node, Phase};
use ringwell_driver::pool_query::PoolQuery;
use ringwell_driver::pool_query::{PoolAsked, PoolState, Rested};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::ShardStats;
use ringwell_os::Clock;

/// An answer within this time counts as immediate.
const PROMPT: Duration = Duration::from_millis(200);

/// Builds the service for web pages and for requests outside of `/api/`. Called once on each
/// shard's thread.
pub type Routes = Arc<dyn Fn(Handle) -> Router + Send + Sync>;

/// A request extension for a request whose body could not be read; the request then has no body.
/// The handler reports the error, and the connection is closed.
#[derive(Clone, Debug)]
pub struct Unread(pub RequestError);

/// A running node. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) server: Arc<Server>,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
}

/// The reason why buckets do not move, or have not arrived yet, for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub enum GiveError {
    /// The buckets or the shard do not exist.
    Unknown(String),
    /// This node cannot do it now, or at all; repeating the request does not help.
    Conflict(String),
    /// Repeating the request helps, or the move continues by itself.
    Unavailable(String),
}

impl From<MoveError> for GiveError {
    fn from(error: MoveError) -> Self {
        let text = error.to_string();
        match error {
            MoveError::NoBucket(_) | MoveError::NoShard(_) => Self::Unknown(text),
            MoveError::NoCluster
            | MoveError::InLog
            | MoveError::Elsewhere { .. }
            | MoveError::NotTaken { .. }
            | MoveError::Busy(_)
            | MoveError::NothingLeaves
            | MoveError::NotTakenBack { .. }
            | MoveError::Change(_) => Self::Conflict(text),
            MoveError::NotServing | MoveError::OnTheirWay { .. } | MoveError::Map(_) => {
                Self::Unavailable(text)
            }
        }
    }
}

/// The outcomes of the requests of one site's pages.
#[derive(Clone, Debug)]
pub struct SiteStats {
    /// The site's public key.
    pub key: String,
    /// Outcomes by their names in metrics, with their counts.
    pub outcomes: Vec<(&'static str, u64)>,
}

impl Handle {
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.server.node
    }

    /// The node's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.node().config
    }

    /// The current state of the directory.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        self.node().directory()
    }

    /// The time since the directory was last confirmed to be current. `None` if it comes from a
    /// file.
    #[must_use]
    pub fn directory_age(&self) -> Option<Duration> {
        self.node().directory_age(Tokio.moment())
    }

    /// The phase of the node's life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.node().phase()
    }

    /// The durability that answers wait for, by its name in the configuration.
    #[must_use]
    pub fn durability(&self) -> String {
        self.node().durability.to_string()
    }

    /// The shards of this node, in ascending order, with the states of their journals.
    pub fn journals(&self) -> impl Iterator<Item = (u16, JournalState)> {
        self.node().journals()
    }

    /// The journals that do not store: the shard, the state, the reason, and the time since it
    /// began.
    #[must_use]
    pub fn troubles(&self) -> Vec<(u16, JournalState, String, Duration)> {
        let now = Tokio.moment();
        let troubles = self.node().troubles();
        troubles.map(|(id, state, it)| (id, state, it.reason, now.since(it.since))).collect()
    }

    /// The shards with held pools, each with the remaining time of the hold.
    #[must_use]
    pub fn held(&self) -> Vec<(u16, Duration)> {
        self.node().held(Tokio.moment()).collect()
    }

    /// The state of each shard's history that was not read at startup, in the same order.
    pub fn histories(&self) -> impl Iterator<Item = HistoryState> {
        self.node().histories()
    }

    /// The node's membership in a cluster.
    #[must_use]
    pub fn membership(&self) -> Option<&Membership> {
        self.node().membership.as_ref()
    }

    /// The count of bucket moves that this node has recorded since its cluster file began.
    #[must_use]
    pub fn moves(&self) -> Option<u64> {
        self.node().owners().map(|owners| owners.moves())
    }

    /// The time by which the wall clock is ahead of shard time, in milliseconds.
    #[must_use]
    pub fn wall_ahead_ms(&self) -> i64 {
        self.clock.clocks().wall_less_shard()
    }

    /// The outcomes of the requests of web pages, by site.
    #[must_use]
    pub fn sites(&self) -> Vec<SiteStats> {
        let table = self.server.sites.table();
        let outcomes = |counts| {
            Outcome::ALL
                .iter()
                .zip(counts)
                .map(|(outcome, count)| (outcome.name(), count))
                .collect()
        };
        let of = |(key, entry): (&String, &Arc<SiteEntry>)| SiteStats {
            key: key.clone(),
            outcomes: outcomes(entry.counts()),
        };
        table.iter().map(of).collect()
    }

    /// The sites whose pages are served now.
    #[must_use]
    pub fn served_sites(&self) -> Vec<Site> {
        self.server.sites.table().values().map(|entry| entry.site().clone()).collect()
    }

    /// The count of web page visitors who have not yet shown that they are people.
    #[must_use]
    pub fn sites_waiting(&self) -> usize {
        self.server.sites.waiting()
    }

    /// Calls `tapped` with each number that a visitor of a web page has tapped. `tapped` runs on a
    /// shard's thread and must not wait. If this is called several times, the first call counts.
    pub fn on_taps(&self, tapped: impl Fn(PromoNumber) + Send + Sync + 'static) {
        self.server.sites.on_taps(Box::new(tapped));
    }

    /// Queries the state of this node's shards.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn stats(&self) -> Result<Vec<ShardStats>, AskError> {
        let mut shards = Vec::new();
        for shard in self.node().shards() {
            shards.push(self.ask(shard, Message::Stats).await?);
        }
        Ok(shards)
    }

    /// Returns the holder of `number` at `at`, by the wall clock.
    ///
    /// # Errors
    /// [`HolderError`].
    pub async fn holder(&self, number: PromoNumber, at: Millis) -> Result<Joined, HolderError> {
        holder(self.node(), &self.peers, number, at).await
    }

    /// Asks each shard of the cluster for the holder of `number` at `at`, with the keep-alives of
    /// the allocation. Shards of nodes of an older version do not answer; a shard that did not
    /// answer is listed with its reason.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn attribution_with_keep_alives(
        &self,
        number: PromoNumber,
        at: Moment,
    ) -> Result<Vec<(u16, Result<Past, String>)>, AskError> {
        ask(&self.peers, (number, at), true).await
    }

    /// Ends a lockout if it belongs to the allocation at `allocated_at`, in shard time. The inner
    /// error is a refusal by the shard.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn release(
        &self,
        shard: u16,
        number: PromoNumber,
        allocated_at: Option<Millis>,
    ) -> Result<Result<bool, Refusal>, AskError> {
        self.ask(shard, |reply| Message::Release { number, allocated_at, seen_at: None, reply })
            .await
    }

    /// Returns the time of a shard's newest allocation of a number, as in [`Self::release`]; zero
    /// if there is none. Returns `None` if the answer took so long that the allocation may have
    /// been made after the question.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn newest_in(
        &self,
        shard: u16,
        number: PromoNumber,
    ) -> Result<Option<Millis>, AskError> {
        // Lost periods and wrong clocks do not matter for the newest allocation.
        let at = Moment::Shard(Millis(u64::MAX));
        let (begun, wall) = (Tokio.moment(), Tokio.wall());
        let past = self
            .ask(shard, |reply| Message::Attribution { number, at, keep_alives: false, reply })
            .await?
            .map_err(|_| AskError::Stopped)?;
        let is_slow = Tokio.moment().since(begun) > PROMPT;
        let is_before = |at: Millis| u128::from(at.0) < wall.as_millis();
        match (past.held, past.later) {
            (Some(held), _) if is_slow && !is_before(held.allocated_wall) => Ok(None),
            (Some(held), _) => Ok(Some(held.allocated_at)),
            (None, Some(_)) if is_slow => Ok(None),
            (None, later) => Ok(Some(later.unwrap_or_default())),
        }
    }

    async fn ask<T>(
        &self,
        shard: u16,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        if !self.peers.send(shard, message(reply)) {
            return Err(AskError::Busy);
        }
        answer.await.map_err(|_| AskError::Stopped)
    }

    /// Gives buckets of this node to another shard. The move continues even if the caller stops
    /// waiting.
    ///
    /// # Errors
    /// [`GiveError`] indicates whether anything has moved.
    pub async fn give(&self, buckets: BTreeSet<u16>, to: u16) -> Result<Given, GiveError> {
        let (node, peers) = (Arc::clone(self.node()), self.peers.clone());
        let given = async move { moves::give(&Tokio, &node, &peers, buckets, to).await };
        Ok(moves::to_its_end(&Tokio, given).await.ok_or_else(stopping)??)
    }

    /// Takes back released buckets that have not arrived; otherwise like [`Self::give`].
    ///
    /// # Errors
    /// [`GiveError`]. The move then continues.
    pub async fn take_back(&self) -> Result<Given, GiveError> {
        let (node, peers) = (Arc::clone(self.node()), self.peers.clone());
        let back = async move { moves::abort(&Tokio, &node, &peers).await };
        Ok(moves::to_its_end(&Tokio, back).await.ok_or_else(stopping)??)
    }

    /// Applies a change of a pool that the main application has signed.
    ///
    /// # Errors
    /// [`PushError`].
    pub async fn push(&self, headers: &HeaderMap, body: Bytes) -> Result<(), PushError> {
        application::webhook(self.clone(), headers, body).await
    }

    /// Returns the demand for each pool of this node.
    pub async fn asked(&self) -> Vec<PoolAsked> {
        asked(self.node(), &self.peers).await
    }

    /// Returns the current state of `pool`; `None` if no shard of this node owns it.
    pub async fn state(&self, pool: PoolId) -> Option<PoolState> {
        let look = |place, reply| PoolQuery::State { place, reply };
        look_at(self.node(), &self.peers, pool, look).await.flatten()
    }

    /// Returns the numbers in the rotation of `pool` that no visitor has held since `since`.
    pub async fn unused(&self, pool: PoolId, since: Millis) -> Vec<NumberRange> {
        let look = |place, reply| PoolQuery::Unused { place, since, reply };
        look_at(self.node(), &self.peers, pool, look).await.unwrap_or_default()
    }

    /// Returns how long the numbers of `pool` have rested; `None` if no shard of this node owns it.
    pub async fn rested(&self, pool: PoolId) -> Option<Rested> {
        let look = |place, reply| PoolQuery::Rested { place, reply };
        look_at(self.node(), &self.peers, pool, look).await.flatten()
    }

    /// Counts, by reason, the rows for `pool` that got no number on this node since it started,
    /// although the pool was not exhausted.
    pub async fn refused(&self, pool: PoolId) -> Vec<(&'static str, u64)> {
        refused(self.node(), &self.peers, pool).await
    }

    /// Counts the rows that no shard answered, by pool. Each shard reports its `top` pools.
    pub async fn most_refused(&self, top: usize) -> BTreeMap<PoolId, u64> {
        let mut most: BTreeMap<PoolId, u64> = BTreeMap::new();
        for shard in self.node().shards() {
            let (reply, answer) = oneshot::channel();
            let look = Message::Pools(PoolQuery::MostRefused { pools: top, reply });
            self.peers.send_when_there_is_room(shard, look).await;
            for (pool, rows) in answer.await.unwrap_or_default() {
                *most.entry(pool).or_default() += rows;
            }
        }
        most
    }
}

fn stopping() -> GiveError {
    GiveError::Unavailable("the node is stopping".to_owned())
}
