//! The path of a batch without sockets: what it costs in memory.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_directory::{Config, Directory, demo_pools};
use ringwell_engine::Restore;
use ringwell_journal::{Durability, Tip};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::gather::Terms;
use crate::mesh::Peers;
use crate::node::Node;
use crate::shard::ShardThread;

const POOLS: u32 = 100;

/// A shard's thread without a journal: nothing is waited for.
fn shard_thread() -> Rc<ShardThread> {
    let pools = demo_pools(POOLS, 200, Millis(1)).unwrap();
    let directory = Directory::new(1, pools, 1).unwrap();
    let specs = directory.pools_of(0).iter().map(ringwell_directory::RingPool::spec).collect();
    let config = Config::new("unused".into(), 1);
    let node = Arc::new(Node::new(config, directory, Durability::Memory, 1));
    let tip = Tip::FIRST.raise_epoch();
    let (engine, _) = Restore::new(specs, 0).finish(tip, Clock::start().now(), false);
    let (sender, _) = mpsc::channel(1);
    Rc::new(ShardThread::new(0, node, engine, Clock::start(), Peers(vec![sender])))
}

fn body(thread: &ShardThread, rows: usize) -> Bytes {
    let pools = thread.directory.pools().iter().cycle().take(rows);
    let row = |(at, pool): (usize, &ringwell_directory::RingPool)| {
        format!(
            r#"{{"api_suffix":"{}/allocate_number.json?ring_pool_key={}&m1=autos&m2=ford","request_id":"{at}"}}"#,
            pool.id(),
            pool.key().reveal()
        )
    };
    let rows: Vec<String> = pools.enumerate().map(row).collect();
    format!("{{\"requests\":[{}]}}", rows.join(",")).into()
}

/// Answers a batch and says how often memory was allocated. Its answer must have a number a row.
fn allocations(thread: &Rc<ShardThread>, rows: usize) -> u64 {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let terms = Terms { retry: None, deadline: Instant::now() + Duration::from_mins(1) };
    let body = body(thread, rows);
    let mut answer = Vec::new();
    let count = allocation_counter::measure(|| {
        answer = runtime.block_on(super::answer(thread, body, &terms)).unwrap();
    });
    let text = String::from_utf8(answer).unwrap();
    assert_eq!(text.matches("\"promo_number\"").count(), rows);
    assert!(!text.contains("overflow") && !text.contains("error_class"), "{text}");
    // Nobody seals groups here: room for the next batch.
    drop(thread.engine.borrow_mut().seal(Vec::with_capacity(1 << 20)));
    std::thread::sleep(Duration::from_millis(10));
    count.count_total
}

#[test]
fn a_row_allocates_no_memory_in_the_steady_state() {
    let thread = shard_thread();
    // The least of several: lists that count groups grow now and then.
    let least = |rows| (0..8).map(|_| allocations(&thread, rows)).min();
    let (many, few) = (least(400), least(10));
    assert_eq!(many, few, "390 more rows cost more allocations");
    assert!(few < Some(10), "a batch allocates {few:?} times");
}
