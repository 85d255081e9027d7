//! The path of a batch without sockets: what it costs in memory, and what becomes of its numbers
//! when the journal, another shard or the client does not wait.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringwell_core::Millis;
use ringwell_directory::{Changes, Config, Directory, Placement, RingPool, demo_pools};
use ringwell_driver::Platform;
use ringwell_engine::Restore;
use ringwell_journal::{Durability, Tip};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::platform::Tokio;
use crate::shard::ShardThread;
use ringwell_driver::batch::Terms;
use ringwell_driver::message::Message;
use ringwell_driver::node::{Begun, Node};
use ringwell_driver::queue::Peers;

mod counted;

const POOLS: u32 = 100;

/// Shard threads without their tasks: nobody writes what they seal, nobody reads their queues.
fn shard_threads(
    shards: u16,
    lifetime: Millis,
    durability: Durability,
) -> Vec<(Rc<ShardThread>, mpsc::Receiver<Message>)> {
    let pools = demo_pools(POOLS, 200, lifetime).unwrap();
    let directory = Directory::new(1, pools, shards).unwrap();
    let config = Config::new("unused".into(), 1);
    let count = usize::from(shards);
    let ids: Vec<u16> = (0..shards).collect();
    let node = Node::new(config, directory, durability, &ids, None, (None, Begun::default()));
    let node = Arc::new(node);
    let (senders, queues): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(4)).unzip();
    let mut peers = Peers::default();
    (0..).zip(senders).for_each(|(shard, way)| peers.add(shard, way));
    let thread = |(id, queue)| {
        let specs = node.directory().pools_of(id).map(|pool| pool.spec()).collect();
        let tip = Tip::FIRST.raise_epoch();
        let (engine, _) = Restore::new(specs, 0).finish(tip, Clock::start().now(), false);
        let node = Arc::clone(&node);
        let clock = Clock::start();
        (
            Rc::new(ShardThread::new(id, node, Tokio, engine, clock.shard_time(), peers.clone())),
            queue,
        )
    };
    (0..shards).zip(queues).map(thread).collect()
}

/// One shard that waits for nothing.
fn shard_thread() -> Rc<ShardThread> {
    shard_threads(1, Millis(1), Durability::Memory).remove(0).0
}

fn locked(thread: &ShardThread) -> usize {
    let now = thread.now() + Millis(2);
    let engine = thread.engine.borrow();
    engine.shard().slots().iter().filter(|slot| !slot.is_free(now)).count()
}

fn soon(ms: u64) -> Terms {
    Terms { retry: None, deadline: Tokio.moment() + Duration::from_millis(ms) }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
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

/// Answers a batch and says how often memory was allocated. Its answer must have a number a row.
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

#[test]
fn rows_that_the_journal_does_not_take_in_time_overflow_and_their_numbers_are_released() {
    let (thread, _queue) = shard_threads(1, Millis(60_000), Durability::Disk).remove(0);
    let body = body(&thread, 40);
    let answer = run(super::answer(&thread, body, &soon(20))).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.matches("\"overflow\":true").count(), 40, "{answer}");
    assert_eq!(thread.engine.borrow().counts().allocated, 40);
    assert_eq!(locked(&thread), 0);
}

/// A timer looks at what is ready first, however long ago the deadline was.
#[test]
fn numbers_that_are_ready_long_after_the_deadline_overflow_and_are_free_again() {
    let (thread, _queue) = shard_threads(1, Millis(60_000), Durability::Disk).remove(0);
    let body = body(&thread, 40);
    let answer = run(async {
        let terms = soon(20);
        let waiting = super::answer(&thread, body, &terms);
        let busy = async {
            // The journal has stored the group, and something else keeps the thread.
            let group = thread.engine.borrow().newest_group();
            thread.stored(group);
            std::thread::sleep(Duration::from_millis(60));
        };
        tokio::join!(waiting, busy).0
    });
    let answer = String::from_utf8(answer.unwrap()).unwrap();
    assert_eq!(answer.matches("\"overflow\":true").count(), 40, "{answer}");
    assert_eq!(thread.engine.borrow().counts().allocated, 40);
    assert_eq!(locked(&thread), 0);
}

#[test]
fn a_client_that_hangs_up_leaves_its_numbers_free() {
    let (thread, _queue) = shard_threads(1, Millis(60_000), Durability::Disk).remove(0);
    let body = body(&thread, 40);
    run(async {
        let terms = soon(60_000);
        let waiting = super::answer(&thread, body, &terms);
        // The journal never answers; the client goes after a moment.
        assert!(tokio::time::timeout(Duration::from_millis(20), waiting).await.is_err());
    });
    assert_eq!(thread.engine.borrow().counts().allocated, 40);
    assert_eq!(locked(&thread), 0);
}

#[test]
fn a_shard_that_does_not_answer_costs_its_own_rows_their_numbers_and_no_others() {
    let mut shards = shard_threads(2, Millis(60_000), Durability::Memory);
    let (other, mut queue) = shards.remove(1);
    let (thread, _queue) = shards.remove(0);
    let body = body(&thread, 100);
    let begun = Instant::now();
    let answer = run(super::answer(&thread, body.clone(), &soon(30))).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(30), "it did not wait for the other shard");
    let answer = String::from_utf8(answer).unwrap();
    let own = thread.directory().pools_of(0).count();
    assert_eq!(answer.matches("\"overflow\":true").count(), 100 - own);
    assert_eq!(locked(&thread), own);
    // It takes the rows up too late, and hands nothing out.
    let Ok(Message::Rows(rows)) = queue.try_recv() else { panic!("it was not asked") };
    run(other.serve_peer(rows));
    assert_eq!(other.engine.borrow().counts().allocated, 0);
    // A queue that is full is known to be slow: no waiting.
    for _ in 0..4 {
        drop(run(super::answer(&thread, body.clone(), &soon(1))));
    }
    let begun = Instant::now();
    drop(run(super::answer(&thread, body, &soon(5_000))));
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited for a shard that was not asked");
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_is_released_by_its_owner() {
    let mut shards = shard_threads(2, Millis(60_000), Durability::Memory);
    let (other, mut queue) = shards.remove(1);
    let (thread, _queue) = shards.remove(0);
    let body = body(&thread, 100);
    run(async {
        let terms = soon(60_000);
        let waiting = super::answer(&thread, body, &terms);
        assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
        let Ok(Message::Rows(rows)) = queue.try_recv() else { panic!("it was not asked") };
        other.serve_peer(rows).await;
    });
    assert_eq!((locked(&thread), locked(&other)), (0, 0));
}

/// The thread finds its rows' pools on shard 1 as long as nobody tells it better.
#[test]
fn rows_that_are_refused_as_moved_are_asked_for_once_more_of_the_new_owner() {
    let mut shards = shard_threads(3, Millis(60_000), Durability::Memory);
    let (new, mut new_queue) = shards.remove(2);
    let (old, mut old_queue) = shards.remove(1);
    let (thread, _queue) = shards.remove(0);
    let before = thread.node.directory();
    let all_to = |shard| Placement::from_owners(&[shard; 1024], 3).unwrap();
    let state = |shard| Arc::new(before.moved(all_to(shard)));
    let (outdated, newest) = (state(1), state(2));
    let specs = |shard: &Rc<ShardThread>| {
        for (index, pool) in Changes::between(&before, &newest, 2).put {
            shard.engine.borrow_mut().put_pool(index, &pool.spec()).unwrap();
        }
    };
    // Numbers go out of one shard only: those of this test are new to shard 2.
    for (index, _) in Changes::between(&before, &newest, 1).removed {
        old.engine.borrow_mut().remove_pool(index);
    }
    specs(&new);
    thread.use_directory(outdated);
    let body = body(&thread, 40);
    let answer = run(async {
        let terms = soon(60_000);
        let waiting = super::answer(&thread, body, &terms);
        let owners = async {
            let Some(Message::Rows(rows)) = old_queue.recv().await else { panic!("not asked") };
            // Meanwhile this thread has learnt who owns them.
            thread.use_directory(newest);
            old.serve_peer(rows).await;
            let Some(Message::Rows(rows)) = new_queue.recv().await else { panic!("not asked") };
            new.serve_peer(rows).await;
        };
        tokio::join!(waiting, owners).0
    });
    let answer = String::from_utf8(answer.unwrap()).unwrap();
    assert!(!answer.contains("overflow") && !answer.contains("errors"), "{answer}");
    assert_eq!(new.engine.borrow().counts().allocated, 40);
}
