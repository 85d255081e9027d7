//! Requests unknown pools from the main application, each only once, no matter how many batches wait
//! for it.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringwell_config::Application as Settings;
use ringwell_core::{PoolId, Throttle};
use ringwell_driver::node::Node;
use ringwell_driver::queue::Peers;
use ringwell_driver::shard::PoolSource;
use tokio::sync::watch;

use super::ages::Ages;
use super::call;
use super::replays::{Replays, unix_seconds};
use crate::pools;
use crate::tasks::spawn;
use ringwell_os::clock::coarse_time;

/// The maximum number of pools that are remembered because the application did not return them.
/// Beyond this number, further pools are not remembered, so each row that names one can cause
/// another request.
const REMEMBERED_MAX: usize = 100_000;

/// The maximum number of concurrent requests. Anyone may name any number of unknown pools, and the
/// limit prevents a flood of requests.
const REQUESTS_MAX: usize = 64;

/// The pause after a request without a usable answer, before the same pool is requested again.
const TROUBLE_AGE: Duration = Duration::from_secs(1);

/// The main application's settings, and the state of requests to it.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) settings: Settings,
    pools: Mutex<Pools>,
    ages: Mutex<Ages>,
    /// The lock is held while a change that the application pushed is carried out. Pushed changes
    /// are therefore carried out one at a time, and in the order accepted.
    pub(super) replays: tokio::sync::Mutex<Replays>,
}

#[derive(Debug, Default)]
struct Pools {
    asked: HashMap<PoolId, Asked>,
    requests: usize,
    /// Warnings are limited, because anyone may name any number of pools.
    warnings: Throttle,
}

#[derive(Debug)]
enum Asked {
    /// A request for the pool is in progress. The sender of this receiver is dropped when the
    /// answer has arrived.
    Now(watch::Receiver<()>),
    /// The pool must not be requested before this time.
    Refused { until: Instant },
}

/// A thread's access to the application.
#[derive(Debug)]
struct Source {
    application: Arc<Application>,
    node: Arc<Node>,
    peers: Peers,
}

/// Returns access to `application` for the thread with the queues `peers`.
pub(crate) fn source(
    application: &Arc<Application>,
    node: &Arc<Node>,
    peers: &Peers,
) -> Rc<dyn PoolSource> {
    let (application, node) = (Arc::clone(application), Arc::clone(node));
    Rc::new(Source { application, node, peers: peers.clone() })
}

impl PoolSource for Source {
    fn ask(&self, pool: PoolId) -> Option<watch::Receiver<()>> {
        self.application.ask((&self.node, &self.peers), pool)
    }
}

impl Application {
    /// If the data directory `data` is given, the time of the newest accepted push is stored there,
    /// so that it outlives the process.
    pub(crate) fn new(settings: Settings, data: Option<&Path>) -> Self {
        let replays = Replays::open(data, unix_seconds()).into();
        Self { settings, pools: Mutex::default(), ages: Mutex::default(), replays }
    }

    fn pools(&self) -> std::sync::MutexGuard<'_, Pools> {
        // No thread panics while it holds the lock.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ages(&self) -> std::sync::MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests from the application a pool that is not in the directory. When the answer has
    /// arrived, the sender of the returned receiver is dropped. Returns `None` if the pool must not
    /// be requested now.
    fn ask(
        self: &Arc<Self>,
        (node, peers): (&Arc<Node>, &Peers),
        pool: PoolId,
    ) -> Option<watch::Receiver<()>> {
        let mut pools = self.pools();
        match pools.asked.get(&pool) {
            Some(Asked::Now(answer)) => return Some(answer.clone()),
            Some(Asked::Refused { until }) if *until > Instant::now() => return None,
            Some(Asked::Refused { .. }) | None => {}
        }
        if pools.requests >= REQUESTS_MAX {
            return None;
        }
        pools.requests += 1;
        let (done, answer) = watch::channel(());
        pools.asked.insert(pool, Asked::Now(answer.clone()));
        drop(pools);
        let (application, node, peers) = (Arc::clone(self), Arc::clone(node), peers.clone());
        spawn(async move {
            let refused_for = application.learn(&node, &peers, pool).await;
            application.note(pool, refused_for);
            drop(done);
        });
        Some(answer)
    }

    /// Requests `pool` from the application, and adds it to the directory. After a failure, returns
    /// the time that must pass before the pool is requested again.
    async fn learn(&self, node: &Node, peers: &Peers, pool: PoolId) -> Option<Duration> {
        let pushes = self.replays.lock().await.count();
        let asked = tokio::time::timeout(self.settings.timeout, call::get(&self.settings, pool));
        let answer = asked.await;
        let replays = self.replays.lock().await;
        if replays.has_newer(pool, pushes) {
            return None;
        }
        let trouble = match answer {
            Ok(Ok(None)) => return Some(self.settings.refusal_age),
            Ok(Ok(Some(found))) => {
                let taken = pools::take(node, peers, vec![found], &[]).await;
                let Err(reason) = taken else {
                    self.gave(pool);
                    return None;
                };
                reason
            }
            Ok(Err(reason)) => reason,
            Err(_) => "no answer in time".to_owned(),
        };
        let passed = self.pools().warnings.pass(coarse_time());
        if let Some(left_out) = passed {
            let said = "cannot fetch a ring pool from the main application";
            tracing::warn!(ring_pool = pool.0, trouble, left_out, "{said}");
        }
        Some(TROUBLE_AGE)
    }

    fn note(&self, pool: PoolId, refused_for: Option<Duration>) {
        let mut pools = self.pools();
        pools.requests -= 1;
        pools.asked.remove(&pool);
        let Some(refused_for) = refused_for else { return };
        let now = Instant::now();
        if pools.asked.len() >= REMEMBERED_MAX {
            let is_over =
                |asked: &Asked| matches!(asked, Asked::Refused { until } if *until <= now);
            pools.asked.retain(|_, asked| !is_over(asked));
        }
        if pools.asked.len() < REMEMBERED_MAX {
            pools.asked.insert(pool, Asked::Refused { until: now + refused_for });
        }
    }

    /// Records that a pool was added in another way, for example by a push. If the pool is removed
    /// later, it may be requested again at once.
    pub(crate) fn forget(&self, pool: PoolId) {
        let mut pools = self.pools();
        if matches!(pools.asked.get(&pool), Some(Asked::Refused { .. })) {
            pools.asked.remove(&pool);
        }
    }

    /// Records that `pool` came from the application.
    pub(super) fn gave(&self, pool: PoolId) {
        self.ages().begin(pool, self.settings.pool_age, 0);
    }

    /// Whether `pool` came from the application.
    pub(super) fn has_given(&self, pool: PoolId) -> bool {
        self.ages().has(pool)
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
