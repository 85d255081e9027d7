//! Expiry of pools from the main application: pools in use are fetched again, and unused pools are
//! dropped.
//!
//! Without expiry, a process would keep every pool that it ever fetched, even pools that the
//! application has removed. Source: docs/spec/application.md, "Expiry of pools".

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringwell_core::PoolId;
use ringwell_directory::RingPool;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{Application, call};
use crate::running_node;
use crate::shard::HttpShard;
use ringwell_driver::message::Message;
use ringwell_driver::pool_query::{PoolAsked, PoolQuery};

/// The maximum number of pools that are checked and concurrently fetched in one round.
const POOLS_A_ROUND: usize = 64;

/// The interval between rounds. As long as expired pools are left, the next round begins at once.
const ROUND: Duration = Duration::from_millis(200);

/// The time after which a pool is fetched again if a fetch failed.
const TROUBLE_AGE: Duration = Duration::from_secs(10);

/// The time at which each pool of the application expires.
#[derive(Debug, Default)]
pub(super) struct Ages {
    terms: HashMap<PoolId, Term>,
    /// The pools, sorted by the time at which they expire. A pool that is being checked is not in
    /// this set.
    ends: BTreeSet<(Instant, PoolId)>,
}

#[derive(Debug)]
struct Term {
    end: Instant,
    /// The pool's request count when the pool last became valid.
    asked: u32,
}

impl Ages {
    /// Makes `pool` valid for `age` from now on.
    fn begin(&mut self, pool: PoolId, age: Duration, asked: u32) {
        self.end(pool);
        let end = Instant::now() + age;
        self.terms.insert(pool, Term { end, asked });
        self.ends.insert((end, pool));
    }

    fn end(&mut self, pool: PoolId) {
        if let Some(term) = self.terms.remove(&pool) {
            self.ends.remove(&(term.end, pool));
        }
    }

    /// Returns expired pools, each with the request count that it had when it last became valid.
    fn over(&mut self, now: Instant) -> Vec<(PoolId, u32)> {
        let mut over = Vec::new();
        while over.len() < POOLS_A_ROUND
            && let Some(first) = self.ends.first().copied().filter(|(end, _)| *end <= now)
        {
            self.ends.remove(&first);
            over.extend(self.terms.get(&first.1).map(|term| (first.1, term.asked)));
        }
        over
    }
}

impl Application {
    /// Records that `pool` came from the application.
    pub(super) fn gave(&self, pool: PoolId) {
        self.ages().begin(pool, self.settings.pool_age, 0);
    }

    /// Whether `pool` came from the application.
    pub(super) fn has_given(&self, pool: PoolId) -> bool {
        self.ages().terms.contains_key(&pool)
    }

    /// Records that `pool` is managed elsewhere, or was removed.
    pub(crate) fn disown(&self, pool: PoolId) {
        self.ages().end(pool);
    }

    /// Records that all pools come from the configuration.
    pub(crate) fn disown_all(&self) {
        *self.ages() = Ages::default();
    }
}

/// Refreshes or drops expired pools of the application, until the thread ends.
pub(crate) async fn renew(thread: Rc<HttpShard>) {
    let Some(application) = thread.server.application.clone() else { return };
    loop {
        let over = application.ages().over(Instant::now());
        if over.is_empty() {
            tokio::time::sleep(ROUND).await;
            continue;
        }
        renew_these(&thread, &application, over).await;
    }
}

async fn renew_these(thread: &HttpShard, application: &Application, over: Vec<(PoolId, u32)>) {
    let asked = asked(thread, over.iter().map(|(pool, _)| *pool)).await;
    let is_unused = |(pool, before): &(PoolId, u32)| asked.get(pool).is_some_and(|n| n == before);
    // A shard counts requests only for its own pools, so a node of a cluster cannot see whether the
    // pools of other nodes are unused. In a cluster, unused pools are therefore fetched again too.
    let may_go = thread.node.membership.is_none();
    let (unused, used): (Vec<_>, Vec<_>) =
        over.into_iter().partition(|pool| may_go && is_unused(pool));
    let mut removed: Vec<PoolId> = unused.into_iter().map(|(pool, _)| pool).collect();
    let pushes = application.replays.lock().await.count();
    let mut asking = JoinSet::new();
    for (pool, _) in used {
        let settings = application.settings.clone();
        asking.spawn_local(async move {
            let answer = tokio::time::timeout(settings.timeout, call::get(&settings, pool)).await;
            (pool, answer.unwrap_or_else(|_| Err("no answer in time".to_owned())))
        });
    }
    let mut put: Vec<RingPool> = Vec::new();
    while let Some(answer) = asking.join_next().await {
        let Ok((pool, answer)) = answer else { continue };
        if !application.has_given(pool) {
            // The pool is now managed in another way, or was removed.
            continue;
        }
        let mut age = application.settings.pool_age;
        match answer {
            Ok(None) => {
                removed.push(pool);
                continue;
            }
            Ok(Some(found)) if thread.node.directory().pool(pool) == Some(&found) => {}
            Ok(Some(found)) => put.push(found),
            Err(trouble) => {
                tracing::warn!(
                    ring_pool = pool.0,
                    trouble,
                    "cannot refresh the ring pool from the main application: the pool is unchanged"
                );
                age = age.min(TROUBLE_AGE);
            }
        }
        application.ages().begin(pool, age, asked.get(&pool).copied().unwrap_or_default());
    }
    let replays = application.replays.lock().await;
    // A push that was accepted after these pools were requested is newer than the answers.
    put.retain(|found| !replays.has_newer(found.id(), pushes));
    removed.retain(|pool| !replays.has_newer(*pool, pushes));
    for found in put {
        take(thread, vec![found], &[]).await;
    }
    if !removed.is_empty() {
        for pool in &removed {
            application.disown(*pool);
        }
        take(thread, Vec::new(), &removed).await;
    }
}

async fn take(thread: &HttpShard, put: Vec<RingPool>, removed: &[PoolId]) {
    if let Err(trouble) = running_node::take(&thread.node, &thread.peers, put, removed).await {
        tracing::warn!(
            trouble,
            "cannot apply the main application's changes to ring pools: the pools are unchanged"
        );
    }
}

/// Returns the request counts of those `pools` that this node's shards own.
async fn asked(thread: &HttpShard, pools: impl Iterator<Item = PoolId>) -> HashMap<PoolId, u32> {
    let mut by_shard = BTreeMap::<u16, Vec<_>>::new();
    let directory = thread.node.directory();
    for pool in pools {
        let entry = directory.lookup(pool).filter(|entry| thread.node.is_own(entry.shard()));
        if let Some(entry) = entry {
            by_shard.entry(entry.shard()).or_default().push((entry.index(), pool));
        }
    }
    let mut asked = HashMap::new();
    for (shard, places) in by_shard {
        let (reply, answer) = oneshot::channel();
        let look = Message::Pools(PoolQuery::Asked { places, reply });
        thread.peers.send_when_there_is_room(shard, look).await;
        let count = |of: PoolAsked| (of.pool, of.allocated.wrapping_add(of.exhausted));
        asked.extend(answer.await.unwrap_or_default().into_iter().map(count));
    }
    asked
}
