//! A platform in virtual time, for tests. No thread sleeps, and every run is the same.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::{Directory, RingPool};
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::clock::{Clock, reading};
use ringwell_driver::local::{Executor, turn};
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, Node};
use ringwell_driver::queue::Peers;
use ringwell_driver::stats::Kind;
use ringwell_driver::{Moment, Platform, Shard};
use ringwell_engine::Restore;
use ringwell_journal::Tip;
use ringwell_os::OsFiles;
use ringwell_wire::RequestError;
use tokio::sync::mpsc;

/// The time from the machine's boot to the start of the process.
const SINCE_BOOT: Duration = Duration::from_secs(1_000);

/// The wall-clock time at the start of a test.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// Time passes only in [`Virtual::run`] and [`Executor::advance`]. The second field is the time by
/// which the wall clock is ahead.
#[derive(Clone, Debug, Default)]
pub struct Virtual(pub Executor, pub Rc<Cell<Duration>>);

impl Platform for Virtual {
    const TURNS_TO_READ: usize = 1;

    type Files = OsFiles;
    type Net = Infallible;

    fn files(&self) -> OsFiles {
        OsFiles
    }

    fn moment(&self) -> Moment {
        self.0.now()
    }

    fn boot_time(&self) -> Duration {
        SINCE_BOOT + self.0.now().0
    }

    fn wall(&self) -> Duration {
        WALL + self.0.now().0 + self.1.get()
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.0.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        // The work is done before the future is returned, so dropping the future does not cancel
        // it.
        let done = work();
        async {
            turn().await;
            Some(done)
        }
    }
}

impl Virtual {
    /// Runs `work` and all tasks. While no task is ready, time jumps to the next timer.
    ///
    /// # Panics
    /// Panics if there is nothing left to wait for.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            if let Some(output) = self.0.run(work.as_mut()) {
                return output;
            }
            self.0.advance(self.0.next_timer().expect("it waits forever"));
        }
    }

    /// Returns the terms of a batch whose deadline is `ms` milliseconds from now.
    pub fn terms(&self, ms: u64) -> Terms {
        Terms { retry: None, deadline: self.moment() + Duration::from_millis(ms), traced: None }
    }
}

/// Creates a node's shards without their tasks, so sealed groups are not stored and queues are not
/// read.
pub fn shards(
    platform: &Virtual,
    count: u16,
    lifetime: Millis,
    durability: Durability,
) -> Vec<(Rc<Shard<Virtual>>, mpsc::Receiver<Message>)> {
    shards_with(platform, count, lifetime, durability, Config::new("unused".into(), 1))
}

/// Like [`shards`], with the configuration `config`.
pub fn shards_with(
    platform: &Virtual,
    count: u16,
    lifetime: Millis,
    durability: Durability,
    mut config: Config,
) -> Vec<(Rc<Shard<Virtual>>, mpsc::Receiver<Message>)> {
    // Creates at least four pools for each shard.
    let pools = demo_pools(100.max(4 * u32::from(count)), 200, lifetime).unwrap();
    let directory = Directory::new(1, pools, count).unwrap();
    let ids: Vec<u16> = (0..count).collect();
    config.durability = durability;
    let node = Arc::new(Node::new(config, directory, &ids, None, (None, Begun::default())));
    let mut peers = Peers::default();
    let queue = |shard: &u16| {
        let (way, queue) = mpsc::channel(4);
        peers.add(*shard, way);
        queue
    };
    let queues: Vec<_> = ids.iter().map(queue).collect();
    let read = reading(1, platform.boot_time(), platform.wall());
    let clock = Clock::going_on(read.resume(&[]), read.since_boot);
    let shard = |(id, queue)| {
        let specs = node.directory().pools_of(id).map(|pool| pool.spec()).collect();
        let now = clock.now(platform.boot_time());
        let (engine, _) = Restore::new(specs, 1_000).finish(Tip::FIRST.raise_epoch(), now, false);
        let (node, clock, peers) = (Arc::clone(&node), clock.clone(), peers.clone());
        (Rc::new(Shard::new(id, node, platform.clone(), engine, clock, peers)), queue)
    };
    ids.into_iter().zip(queues).map(shard).collect()
}

/// Returns the body of a bulk request with `rows` rows, which cycle through the pools.
pub fn body(shard: &Shard<Virtual>, rows: usize) -> Bytes {
    let directory = shard.directory();
    let pools = directory.pools().collect::<Vec<_>>().into_iter().cycle().take(rows);
    let row = |(at, pool): (usize, &Arc<RingPool>)| {
        format!(
            r#"{{"api_suffix":"{}/allocate_number.json?ring_pool_key={}","request_id":"{at}"}}"#,
            pool.id(),
            pool.key().reveal()
        )
    };
    let rows: Vec<String> = pools.enumerate().map(row).collect();
    format!("{{\"requests\":[{}]}}", rows.join(",")).into()
}

/// Answers a bulk request.
pub async fn bulk(shard: &Rc<Shard<Virtual>>, body: Bytes, terms: &Terms) -> String {
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &shard.node.wire_limits);
    let render = |answered: &Answered<'_>| answered.bulk();
    let answer: Result<_, RequestError> =
        batch::answer(shard, Kind::Bulk, terms, read, render).await;
    String::from_utf8(answer.unwrap()).unwrap()
}

/// Returns the count of locked numbers in the shard.
pub fn locked(shard: &Shard<Virtual>) -> usize {
    let now = shard.now() + Millis(2);
    let engine = shard.engine.borrow();
    engine.shard().slots().iter().filter(|slot| !slot.is_free(now)).count()
}
