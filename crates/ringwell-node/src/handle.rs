//! Access to a running node for the management API and the dashboard.
//!
//! Sends queries to the shards as messages. Does not depend on paths, tokens or response formats,
//! all of which are in `ringwell-admin`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use bytes::Bytes;
use ringwell_config::{Config, Site};
use ringwell_core::{Millis, PoolId, PromoNumber};
use ringwell_directory::Directory;
use ringwell_engine::{Moment, Past, Refusal};
use ringwell_wire::RequestError;
use tokio::sync::oneshot;

use ringwell_driver::Platform;
use ringwell_driver::holder::{AskError, HolderError, Joined, ask, holder};
use ringwell_driver::membership::Membership;

use crate::application::{self, PushError};
use crate::platform::Tokio;
use crate::pools::{asked, look_at, other_owner, refused};
use crate::server::Server;
use crate::site::{Outcome, SiteEntry};
use ringwell_driver::message::Message;
use ringwell_driver::moves::{self, MoveError, MoveReport};
use ringwell_driver::node::{HistoryState, JournalState, Node, Phase};
use ringwell_driver::pool_query::PoolQuery;
use ringwell_driver::pool_query::{PoolAsked, PoolState, Rested};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::ShardStats;
use ringwell_os::Clock;

/// An answer that takes no longer than this counts as immediate.
const PROMPT: Duration = Duration::from_millis(200);

/// Builds the service for web pages and for requests outside `/api/`. It is called once on each
/// shard's thread.
pub type Routes = Arc<dyn Fn(Handle) -> Router + Send + Sync>;

/// A request extension that is set if the request's body could not be read. Such a request is
/// passed on without a body. The handler reports the error, and the connection is closed.
#[derive(Clone, Debug)]
pub struct Unread(pub RequestError);

/// A running node. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) server: Arc<Server>,
    pub(crate) peers: Peers,
    pub(crate) clock: Clock,
}

/// The reason why buckets do not move, or have not yet arrived. The message is for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub enum GiveError {
    /// The buckets or the shard do not exist.
    Unknown(String),
    /// This node cannot move the buckets, at least not now. Repeating the request at once does not
    /// help.
    Conflict(String),
    /// The request may be repeated, or the move continues by itself.
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

/// The outcomes of requests from one site's pages.
#[derive(Clone, Debug)]
pub struct SiteStats {
    /// The site's public key.
    pub key: String,
    /// The name of each outcome in the metrics, and its count.
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

    /// Returns the current directory.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        self.node().directory()
    }

    /// Returns the wall-clock time at which `number` became an overflow number, if it still is one
    /// and that time is recorded.
    #[must_use]
    pub fn became_overflow(&self, number: PromoNumber) -> Option<Millis> {
        let dating = self.node().dating(self.node().clocks(&Tokio));
        self.node().overflow_periods(|periods| periods.began(number, dating))
    }

    /// Returns the time since the directory was last confirmed to be current. `None` if the
    /// directory comes from a file.
    #[must_use]
    pub fn directory_age(&self) -> Option<Duration> {
        self.node().directory_age(Tokio.moment())
    }

    /// Returns the phase of the node, from startup to shutdown.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.node().phase()
    }

    /// Returns the configured durability, which a record must have before its answer is sent.
    #[must_use]
    pub fn durability(&self) -> String {
        self.node().config.durability.to_string()
    }

    /// Returns this node's shards in ascending order, with the states of their journals.
    pub fn journals(&self) -> impl Iterator<Item = (u16, JournalState)> {
        self.node().journals()
    }

    /// Returns the journals that store nothing at present, each with its shard, its state, the
    /// reason, and the time since the state began.
    #[must_use]
    pub fn troubles(&self) -> Vec<(u16, JournalState, String, Duration)> {
        let now = Tokio.moment();
        let troubles = self.node().troubles();
        troubles.map(|(id, state, it)| (id, state, it.reason, now.since(it.since))).collect()
    }

    /// Returns the shards with held pools, each with the remaining time of its longest hold.
    #[must_use]
    pub fn held(&self) -> Vec<(u16, Duration)> {
        self.node().held(Tokio.moment()).collect()
    }

    /// Returns for each shard, in order, whether the part of its history that was not read at
    /// startup is readable.
    pub fn histories(&self) -> impl Iterator<Item = HistoryState> {
        self.node().histories()
    }

    /// Returns the node's membership in a cluster.
    #[must_use]
    pub fn membership(&self) -> Option<&Membership> {
        self.node().membership.as_ref()
    }

    /// Returns the number of bucket moves that this node has recorded since it began to use its
    /// cluster file.
    #[must_use]
    pub fn moves(&self) -> Option<u64> {
        self.node().owners().map(|owners| owners.moves())
    }

    /// Returns by how many milliseconds the wall clock is ahead of shard time.
    #[must_use]
    pub fn wall_ahead_ms(&self) -> i64 {
        self.clock.clocks().wall_less_shard()
    }

    /// Returns the outcomes of the requests from web pages, for each site.
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

    /// Returns the sites whose pages are served now.
    #[must_use]
    pub fn served_sites(&self) -> Vec<Site> {
        self.server.sites.table().values().map(|entry| entry.site().clone()).collect()
    }

    /// Returns the number of visitors to web pages who have not yet shown that they are people.
    #[must_use]
    pub fn sites_waiting(&self) -> usize {
        self.server.sites.waiting()
    }

    /// Calls `tapped` with each number that a visitor to a web page has tapped. `tapped` runs on a
    /// shard's thread and must not block. If this method is called several times, only the first
    /// call takes effect.
    pub fn on_taps(&self, tapped: impl Fn(PromoNumber) + Send + Sync + 'static) {
        self.server.sites.on_taps(Box::new(tapped));
    }

    /// Asks this node's shards for their statistics.
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

    /// Returns the holder of `number` at the wall-clock time `at`.
    ///
    /// # Errors
    /// [`HolderError`].
    pub async fn holder(&self, number: PromoNumber, at: Millis) -> Result<Joined, HolderError> {
        holder(self.node(), &self.peers, number, at).await
    }

    /// Asks each shard in the cluster for the holder of `number` at the time `at`, and for the
    /// keep-alives of that allocation. Nodes whose release does not support such requests do not
    /// answer. For each shard that did not answer, the result contains the reason.
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

    /// Ends the lockout of a number if the lockout results from the allocation at `allocated_at`,
    /// in shard time. The inner error means that the shard refused.
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

    /// Returns the time of a shard's newest allocation of a number, for use with [`Self::release`];
    /// zero if there is none. Returns `None` if the answer took so long that the allocation may be
    /// newer than the request.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn newest_in(
        &self,
        shard: u16,
        number: PromoNumber,
    ) -> Result<Option<Millis>, AskError> {
        // The look-up is for the newest allocation, so periods in which records were lost or clocks
        // were wrong do not matter.
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

    /// Gives some of this node's buckets to another shard. The move continues even if the caller
    /// stops waiting.
    ///
    /// # Errors
    /// The [`GiveError`] shows whether anything was moved.
    pub async fn give(&self, buckets: BTreeSet<u16>, to: u16) -> Result<MoveReport, GiveError> {
        let (node, peers) = (Arc::clone(self.node()), self.peers.clone());
        let given = async move { moves::give(&Tokio, &node, &peers, buckets, to).await };
        Ok(moves::to_its_end(&Tokio, given).await.ok_or_else(stopping)??)
    }

    /// Takes back buckets that were given up but have not arrived. In all other respects, this is
    /// like [`Self::give`].
    ///
    /// # Errors
    /// Returns a [`GiveError`] if the buckets were not taken back. Their move then continues.
    pub async fn take_back(&self) -> Result<MoveReport, GiveError> {
        let (node, peers) = (Arc::clone(self.node()), self.peers.clone());
        let back = async move { moves::abort(&Tokio, &node, &peers).await };
        Ok(moves::to_its_end(&Tokio, back).await.ok_or_else(stopping)??)
    }

    /// Applies a signed pool change that the main application sent.
    ///
    /// # Errors
    /// [`PushError`].
    pub async fn push(&self, headers: &HeaderMap, body: Bytes) -> Result<(), PushError> {
        let of = (Arc::clone(self.node()), self.peers.clone());
        application::webhook(self.server.application.as_ref(), of, headers, body).await
    }

    /// Returns the demand for each pool that this node serves.
    pub async fn asked(&self) -> Vec<PoolAsked> {
        asked(self.node(), &self.peers).await
    }

    /// Returns the current state of `pool`; `None` if no shard of this node owns it.
    pub async fn state(&self, pool: PoolId) -> Option<PoolState> {
        let look = |place, reply| PoolQuery::State { place, reply };
        look_at(self.node(), &self.peers, pool, look).await.flatten()
    }

    /// Returns the name of the node that owns `pool`; `None` if this node owns it.
    #[must_use]
    pub fn other_owner(&self, pool: PoolId) -> Option<String> {
        other_owner(self.node(), pool)
    }

    /// Counts the numbers of `pool` by the time since a visitor last held them. Returns `None` if
    /// no shard of this node owns the pool.
    pub async fn rested(&self, pool: PoolId) -> Option<Rested> {
        let look = |place, reply| PoolQuery::Rested { place, reply };
        look_at(self.node(), &self.peers, pool, look).await.flatten()
    }

    /// Returns, for each reason, the number of rows for `pool` that got an overflow number or no
    /// number although the pool was not exhausted. The counts begin when this node starts.
    pub async fn refused(&self, pool: PoolId) -> Vec<(&'static str, u64)> {
        refused(self.node(), &self.peers, pool).await
    }

    /// Returns for each pool the number of rows that [`Self::refused`] counts, for all reasons
    /// together. Each shard reports only the `top` pools with the highest counts.
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
