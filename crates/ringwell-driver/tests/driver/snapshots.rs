//! Tests when a shard takes snapshots and drops history, and for how long a snapshot waits for a
//! log.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringwell_config::{Config, Durability};
use ringwell_core::Millis;
use ringwell_driver::maintenance::{Snapshot, task};
use ringwell_driver::store::{
    Appended, Draft, FileError, Memory, MemoryReader, Part, Stats, Store,
};
use ringwell_driver::{Moment, Platform, Shard, lifecycle, writer};
use ringwell_engine::{Refusal, SnapshotStep};
use ringwell_journal::{Clocks, Group};

use crate::support::{Virtual, body, bulk, shards_with};

/// The last group that each published snapshot covers.
type Published = Arc<Mutex<Vec<u64>>>;

/// Stores groups in memory, but not before a given time, and records each published snapshot.
struct Keeping {
    platform: Virtual,
    until: Moment,
    memory: Memory,
    published: Published,
    is_held_up: Cell<bool>,
    /// The history that may be dropped. This test store never drops any.
    part: Cell<Option<Part>>,
    dropped: Cell<u32>,
}

struct Counted(Published);

impl Draft for Counted {
    fn write(&mut self, _: &[u8]) -> Result<(), FileError> {
        Ok(())
    }

    fn publish(self, through: u64) -> Result<(), FileError> {
        self.0.lock().unwrap().push(through);
        Ok(())
    }

    fn stored(&self) -> u64 {
        0
    }
}

impl Store for Keeping {
    type Reader = MemoryReader;
    type Draft = Counted;

    async fn append(&self, group: Group) -> Appended {
        self.platform.sleep_until(self.until).await;
        self.memory.append(group).await
    }

    fn wait_max(&self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }

    fn reader(&self) -> MemoryReader {
        self.memory.reader()
    }

    fn expired(&self, _: Millis, _: Clocks) -> Option<Part> {
        self.part.get()
    }

    fn waits_for_snapshot(&self) -> bool {
        self.is_held_up.get()
    }

    async fn drop_part(&self, _: Part) -> Result<(), FileError> {
        self.dropped.set(self.dropped.get() + 1);
        Ok(())
    }

    fn draft(&self, _: u64) -> Result<Counted, FileError> {
        Ok(Counted(Arc::clone(&self.published)))
    }

    fn identity(&self) -> [u8; 16] {
        self.memory.identity()
    }

    fn stats(&self) -> Stats {
        let stats = self.memory.stats();
        Stats { written_bytes: stats.body_bytes, ..stats }
    }
}

/// Creates a shard whose store stores nothing in the first `ms` milliseconds, and whose history may
/// be up to 80 s old.
fn shard(platform: &Virtual, ms: u64) -> (Rc<Shard<Virtual>>, Rc<Keeping>) {
    let mut config = Config::new("unused".into(), 1);
    config.journal.history_age = Millis(80_000);
    let (shard, queue) =
        shards_with(platform, 1, Millis(60_000), Durability::Disk, config).remove(0);
    // Leaks the queue so that it stays open, although nothing is sent to this shard.
    std::mem::forget(queue);
    let store = Rc::new(Keeping {
        platform: platform.clone(),
        until: platform.moment() + Duration::from_millis(ms),
        memory: Memory::new([0; 16], u64::MAX),
        published: Arc::default(),
        is_held_up: Cell::default(),
        part: Cell::default(),
        dropped: Cell::default(),
    });
    platform.spawn(writer::run(Rc::clone(&shard), Rc::clone(&store)));
    (shard, store)
}

async fn ask(shard: &Rc<Shard<Virtual>>) {
    bulk(shard, body(shard, 3), &shard.platform.terms(100)).await;
}

async fn at(platform: &Virtual, ms: u64) {
    platform.sleep_until(Moment(Duration::from_millis(ms))).await;
}

/// This test only checks that a snapshot has a step for moved numbers. The engine's tests check
/// that the step writes these numbers.
#[test]
pub fn a_snapshot_has_a_step_for_numbers_that_moved_while_it_was_taken() {
    let platform = Virtual::default();
    let (shard, store) = shard(&platform, 0);
    let mut engine = shard.engine.borrow_mut();
    let mut snapshot = Snapshot::begin(&*store, &engine, 0).unwrap();
    let mut has_step = false;
    while !snapshot.piece(&mut engine, 100) {
        has_step |= matches!(snapshot.step(), SnapshotStep::Moved(_));
    }
    assert!(has_step);
}

#[test]
pub fn a_snapshot_covers_the_groups_that_were_added_while_it_was_taken() {
    let platform = Virtual::default();
    let (shard, store) = shard(&platform, 0);
    platform.run(async {
        let before = shard.engine.borrow().newest_group();
        let (of, to) = (Rc::clone(&shard), Rc::clone(&store));
        let snapshot = platform.task(async move { task::snapshot(&of, &*to).await });
        platform.turn().await;
        ask(&shard).await;
        let newest = shard.engine.borrow().newest_group();
        assert!(newest > before && store.published.lock().unwrap().is_empty());
        snapshot.await.unwrap().unwrap();
        assert_eq!(*store.published.lock().unwrap(), [newest]);
    });
}

#[test]
pub fn a_snapshot_waits_ten_seconds_for_a_log_that_stores_slowly_and_not_for_a_full_disk() {
    for (ms, why, wanted) in [
        (700, None, Ok(700)),
        (9_000, None, Ok(9_000)),
        (20_000, None, Err(10_000)),
        (9_000, Some(Refusal::JournalFull), Err(300)),
    ] {
        let platform = Virtual::default();
        let (shard, store) = shard(&platform, ms);
        platform.run(async {
            ask(&shard).await;
            at(&platform, 300).await;
            assert_eq!(shard.engine.borrow().refusal(), Some(Refusal::JournalWaits));
            if let Some(why) = why {
                shard.refuse(why);
            }
            // The argument `true` means that lockouts were extended, so the shard must not start
            // without a snapshot.
            let taken = lifecycle::begin_shard(&shard, &*store, true).await;
            let took = u64::try_from(platform.moment().0.as_millis()).unwrap();
            let (Ok(expected) | Err(expected)) = wanted;
            assert!((expected..expected + 400).contains(&took), "{took} instead of {wanted:?}");
            assert_eq!(taken.is_ok(), wanted.is_ok(), "{wanted:?}");
            let published = store.published.lock().unwrap().len();
            assert_eq!(published, usize::from(wanted.is_ok()));
        });
    }
}

#[test]
fn a_snapshot_is_due_after_an_eighth_of_the_age_of_history_or_if_history_waits_for_it() {
    let platform = Virtual::default();
    let (shard, store) = shard(&platform, 0);
    platform.spawn(task::run(Rc::clone(&shard), Rc::clone(&store)));
    platform.run(async {
        let published = || store.published.lock().unwrap().len();
        at(&platform, 1_500).await;
        ask(&shard).await;
        at(&platform, 9_500).await;
        assert_eq!(published(), 0);
        at(&platform, 11_500).await;
        assert_eq!(published(), 1);
        ask(&shard).await;
        at(&platform, 14_500).await;
        assert_eq!(published(), 1);
        store.is_held_up.set(true);
        at(&platform, 15_500).await;
        assert_eq!(published(), 2);
    });
}

#[test]
fn history_that_could_not_be_dropped_is_tried_again_once_in_each_round() {
    let platform = Virtual::default();
    let (shard, store) = shard(&platform, 0);
    platform.spawn(task::run(Rc::clone(&shard), Rc::clone(&store)));
    platform.run(async {
        ask(&shard).await;
        at(&platform, 500).await;
        let bytes = u64::from(u32::MAX);
        store.part.set(Some(Part { first_n: 1, next_n: 2, bytes, last_at: Millis::ZERO }));
        at(&platform, 4_500).await;
        assert_eq!(store.dropped.get(), 4);
    });
}
