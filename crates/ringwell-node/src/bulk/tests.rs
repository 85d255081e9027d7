//! Answers batches on tokio without sockets, and counts the memory allocations per batch.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::Millis;
use ringwell_directory::{Directory, RingPool};
use ringwell_driver::Platform;
use ringwell_engine::Restore;
use ringwell_journal::Tip;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::platform::Tokio;
use crate::shard::ShardThread;
use ringwell_driver::batch::Terms;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, Node};
use ringwell_driver::queue::Peers;
use ringwell_os::Clock;

mod counted;

const POOLS: u32 = 100;
/// The maximum number of answers that are remembered for the rows of repeatable batches. No test
/// sends that many rows.
const REMEMBERED_MAX: usize = 100_000;

/// Creates shard threads without their tasks: sealed groups are not written, and queues are not
/// read.
fn shard_threads(
    shards: u16,
    lifetime: Millis,
    durability: Durability,
) -> Vec<(Rc<ShardThread>, mpsc::Receiver<Message>)> {
    let pools = demo_pools(POOLS, 200, lifetime).unwrap();
    let directory = Directory::new(1, pools, shards).unwrap();
    let mut config = Config::new("unused".into(), 1);
    config.durability = durability;
    let count = usize::from(shards);
    let ids: Vec<u16> = (0..shards).collect();
    let node = Node::new(config, directory, &ids, None, (None, Begun::default()));
    let node = Arc::new(node);
    let (senders, queues): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(4)).unzip();
    let mut peers = Peers::default();
    (0..).zip(senders).for_each(|(shard, way)| peers.add(shard, way));
    let thread = |(id, queue)| {
        let specs = node.directory().pools_of(id).map(|pool| pool.spec()).collect();
        let tip = Tip::FIRST.raise_epoch();
        let (engine, _) =
            Restore::new(specs, REMEMBERED_MAX).finish(tip, Clock::start().now(), false);
        let node = Arc::clone(&node);
        let clock = Clock::start();
        (
            Rc::new(ShardThread::new(id, node, Tokio, engine, clock.shard_time(), peers.clone())),
            queue,
        )
    };
    (0..shards).zip(queues).map(thread).collect()
}

/// Creates one shard that never waits for its journal.
fn shard_thread() -> Rc<ShardThread> {
    shard_threads(1, Millis(1), Durability::Memory).remove(0).0
}

fn soon(ms: u64) -> Terms {
    Terms { retry: None, deadline: Tokio.moment() + Duration::from_millis(ms), traced: None }
}

fn body(thread: &ShardThread, rows: usize) -> Bytes {
    let directory = thread.directory();
    let pools = directory.pools().collect::<Vec<_>>().into_iter().cycle().take(rows);
    let row = |(at, pool): (usize, &Arc<RingPool>)| {
        format!(
            r#"{{"api_suffix":"{}/allocate_number.json?ring_pool_key={}&m1=autos&m2=ford","request_id":"{at}"}}"#,
            pool.id(),
            pool.key().reveal()
        )
    };
    let rows: Vec<String> = pools.enumerate().map(row).collect();
    format!("{{\"requests\":[{}]}}", rows.join(",")).into()
}

/// Answers a batch, and returns the number of memory allocations for it. Panics unless each row is
/// answered with a number.
fn allocations(thread: &Rc<ShardThread>, rows: usize) -> u64 {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let terms = soon(60_000);
    let body = body(thread, rows);
    let mut answer = Vec::new();
    let count = allocation_counter::measure(|| {
        answer = runtime.block_on(super::answer(thread, body, &terms)).unwrap();
    });
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("\"promo_number\"").count(), rows);
    assert!(!text.contains("overflow") && !text.contains("error_class"), "{text}");
    // Seals the current group, so that the next batch fits into a new one. In this test, no task
    // seals groups.
    drop(thread.engine.borrow_mut().seal(Vec::with_capacity(1 << 20)));
    std::thread::sleep(Duration::from_millis(10));
    count.count_total
}

#[test]
fn a_row_allocates_no_memory_in_the_steady_state() {
    let thread = shard_thread();
    // Takes the lowest count of several runs, because some runs also enlarge a list that has an
    // entry for each group.
    let least = |rows| (0..8).map(|_| allocations(&thread, rows)).min();
    let (many, few) = (least(400), least(10));
    assert_eq!(many, few, "390 more rows cost more allocations");
    assert!(few < Some(10), "a batch allocates {few:?} times");
}
