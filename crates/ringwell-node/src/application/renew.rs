//! Expiry of pools from the main application: pools in use are fetched again, and unused pools are
//! dropped.
//!
//! Without expiry, a process would keep every pool that it ever fetched, even pools that the
//! application has removed. Source: docs/spec/application.md, "Expiry of pools".

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringwell_core::PoolId;
use ringwell_directory::RingPool;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::call;
use super::fetch::Application;
use crate::pools;
use crate::shard::HttpShard;
use ringwell_driver::message::Message;
use ringwell_driver::pool_query::{PoolAsked, PoolQuery};

/// The interval between rounds. As long as expired pools are left, the next round begins at once.
const ROUND: Duration = Duration::from_millis(200);

/// The time after which a pool is fetched again if a fetch failed.
const TROUBLE_AGE: Duration = Duration::from_secs(10);

/// Refreshes or drops the application's expired pools, until the thread ends.
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
    // A shard counts requests only for its own pools, so a node in a cluster cannot see whether
    // other nodes' pools are unused. In a cluster, unused pools are therefore fetched again too.
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
    if let Err(trouble) = pools::take(&thread.node, &thread.peers, put, removed).await {
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
