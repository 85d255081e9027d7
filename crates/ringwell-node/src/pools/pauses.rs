//! Measures the cost of adding one pool to shards that already have many pools.
//!
//! Every poll of a shard's task delays the shard's batches. The tests measure the CPU time of each
//! poll, and the bytes that it allocates. The number of bytes is the same in every run. To run the
//! first test with another number of pools:
//! `RINGWELL_PAUSES_POOLS=1000000 cargo test --release -p ringwell-node pauses -- --nocapture`.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::{Millis, NumberRange, PromoNumber};
use ringwell_directory::{Directory, PoolFields, RingPool};
use ringwell_engine::Restore;
use ringwell_journal::Tip;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::platform::Tokio;
use crate::pools;
use crate::shard::ShardThread;
use ringwell_driver::change::take;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, Node};
use ringwell_driver::queue::Peers;
use ringwell_driver::rows::spec;
use ringwell_os::Clock;

const POOLS: &str = "RINGWELL_PAUSES_POOLS";
const USUAL: u32 = 50_000;
const SHARDS: u16 = 2;
/// The maximum number of numbers in one pool.
const LARGEST: u32 = 100_000;
/// The number of pools that are added, one after the other.
const CHANGES: usize = 16;
/// The maximum number of bytes that a shard may allocate in one step for a new pool, no matter how
/// many pools the shard has.
const BYTES_MAX: u64 = 64 << 10;
/// The longest allowed delay of a batch.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The most bytes that one poll allocated, and the most CPU time that one poll took.
#[derive(Clone, Debug, Default)]
struct Longest(Rc<Cell<(u64, Duration)>>);

struct Measured<F>(Pin<Box<F>>, Longest);

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let began = processor_time();
        let mut polled = Poll::Pending;
        let used = allocation_counter::measure(|| polled = self.0.as_mut().poll(context));
        let took = processor_time().saturating_sub(began);
        let (bytes, time) = self.1.0.get();
        self.1.0.set((bytes.max(used.bytes_total), time.max(took)));
        polled
    }
}

/// The thread of each shard, with its queue.
type Threads = Vec<(Rc<ShardThread>, mpsc::Receiver<Message>)>;

/// Creates the shards of a node. All of them run on the current thread.
fn shard_threads(pools: &[RingPool]) -> (Arc<Node>, Peers, Threads) {
    let (count, mut directory) = (i64::try_from(pools.len()).unwrap(), None);
    let used = allocation_counter::measure(|| {
        directory = Directory::new(1, pools.to_vec(), SHARDS).ok();
    });
    let (directory, bytes) = (directory.unwrap(), used.bytes_current / count);
    println!("DIRECTORY {bytes} bytes per pool of one range");
    assert!(bytes < 1024, "a pool takes {bytes} bytes of the directory");
    let ids: Vec<u16> = (0..SHARDS).collect();
    let mut config = Config::new("unused".into(), 1);
    config.durability = Durability::Memory;
    let node = Node::new(config, directory, &ids, None, (None, Begun::default()));
    let (node, mut peers) = (Arc::new(node), Peers::default());
    let queues: Vec<_> = (0..SHARDS)
        .map(|shard| {
            let (way, queue) = mpsc::channel(4);
            peers.add(shard, way);
            queue
        })
        .collect();
    let threads = ids.into_iter().zip(queues).map(|(id, queue)| {
        let directory = node.directory();
        let specs = directory.pools_of(id).map(|pool| spec(pool)).collect();
        let tip = Tip::FIRST.raise_epoch();
        let (engine, _) = Restore::new(specs, 0).finish(tip, Clock::start().now(), false);
        let (node, peers) = (Arc::clone(&node), peers.clone());
        (
            Rc::new(ShardThread::new(id, node, Tokio, engine, Clock::start().shard_time(), peers)),
            queue,
        )
    });
    let threads = threads.collect();
    (node, peers, threads)
}

/// Processes the changes that are sent to a shard, in the same way as the server does.
async fn serve(thread: Rc<ShardThread>, mut queue: mpsc::Receiver<Message>, longest: Longest) {
    while let Some(message) = queue.recv().await {
        let Message::Change(step, reply) = message else { panic!("only changes are expected") };
        let taken = take(Rc::clone(&thread), step);
        let longest = longest.clone();
        tokio::task::spawn_local(Measured(
            Box::pin(async move { drop(reply.send(taken.await)) }),
            longest,
        ));
    }
}

#[test]
fn a_new_pool_does_not_delay_batches_on_the_shards() {
    let pools = std::env::var(POOLS).ok().map_or(USUAL, |text| text.parse().unwrap());
    let mut there = demo_pools(pools, 10, Millis(60_000)).unwrap();
    let new = there.split_off(there.len() - CHANGES);
    check(&there, new);
}

#[test]
fn a_pool_of_the_maximum_size_does_not_delay_them_either() {
    let mut there = demo_pools(1_000, 10, Millis(60_000)).unwrap();
    let new = there.split_off(there.len() - CHANGES);
    let largest = |(first, pool): (u64, RingPool)| {
        let numbers = NumberRange::new(PromoNumber::from_e164(first).unwrap(), LARGEST).unwrap();
        let numbers = vec![numbers];
        RingPool::new(PoolFields { numbers, ..pool.fields().clone() }).unwrap()
    };
    let firsts = (14_000_000_000..).step_by(LARGEST as usize);
    check(&there, firsts.zip(new).map(largest).collect());
}

/// Adds the pools `new` to the pools `there`, one after the other.
fn check(there: &[RingPool], new: Vec<RingPool>) {
    let pools = there.len();
    let (node, peers, threads) = shard_threads(there);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let local = LocalSet::new();
    let (steps, asking) = (Longest::default(), Longest::default());
    let mut times = Vec::new();
    local.block_on(&runtime, async {
        for (thread, queue) in threads {
            tokio::task::spawn_local(serve(thread, queue, steps.clone()));
        }
        for pool in new {
            let (node, peers, id) = (Arc::clone(&node), peers.clone(), pool.id());
            // Adds the pool in a task on a shard's thread. The server does the same when it gets a
            // pool from the main application.
            let work = async move {
                pools::take(&node, &peers, vec![pool], &[]).await.unwrap();
                assert!(node.directory().lookup(id).is_some());
            };
            let took = |longest: &Longest| longest.0.replace((longest.0.get().0, Duration::ZERO)).1;
            tokio::task::spawn_local(Measured(Box::pin(work), asking.clone())).await.unwrap();
            times.push(took(&steps).max(took(&asking)));
        }
    });
    let bytes = steps.0.get().0.max(asking.0.get().0);
    times.sort_unstable();
    let (least, most) = (times[0], times[times.len() - 1]);
    println!(
        "PAUSES {pools} pools: at most {bytes} bytes allocated in one step; longest step of a \
         change: {least:?} to {most:?}"
    );
    assert!(bytes <= BYTES_MAX, "adding a pool allocates {bytes} bytes on a shard's thread");
    // Takes the shortest of several measured times, because other work on the machine disturbs some
    // of the runs.
    assert!(least <= TIME_MAX, "adding a pool takes {least:?} on a shard's thread");
}
