//! Rows do not wait for a store that hangs. Numbers are handed out again once the store has stored
//! the delayed group.

mod look_ups;

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use ringwell_config::Durability;
use ringwell_core::Millis;
use ringwell_driver::node::JournalState;
use ringwell_driver::store::{Appended, FileError, Memory, MemoryReader, Part, Stats, Store};
use ringwell_driver::{Moment, Platform, Shard, writer};
use ringwell_journal::{Clocks, Group};

use crate::support::{Virtual, body, bulk, locked, shards};

/// Stores groups in memory, but not before a given time.
pub struct Hanging {
    platform: Virtual,
    pub until: Cell<Moment>,
    outcome: Cell<Option<Appended>>,
    memory: Memory,
}

impl Hanging {
    pub fn new(platform: &Virtual, until: Moment, outcome: Option<Appended>) -> Rc<Self> {
        Rc::new(Self {
            platform: platform.clone(),
            until: Cell::new(until),
            outcome: Cell::new(outcome),
            memory: Memory::new([0; 16], u64::MAX),
        })
    }
}

impl Store for Hanging {
    type Reader = MemoryReader;
    type Draft = Infallible;

    async fn append(&self, group: Group) -> Appended {
        self.platform.sleep_until(self.until.get()).await;
        match self.outcome.take() {
            Some(Appended::Full { .. }) => Appended::Full { group, error: "no room".to_owned() },
            Some(outcome) => outcome,
            None => self.memory.append(group).await,
        }
    }

    fn wait_max(&self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }

    fn reader(&self) -> MemoryReader {
        self.memory.reader()
    }

    fn expired(&self, _: Millis, _: Clocks) -> Option<Part> {
        None
    }

    fn waits_for_snapshot(&self) -> bool {
        false
    }

    async fn drop_part(&self, _: Part) -> Result<(), FileError> {
        Ok(())
    }

    fn draft(&self, replay_from: u64) -> Result<Infallible, FileError> {
        self.memory.draft(replay_from)
    }

    fn identity(&self) -> [u8; 16] {
        self.memory.identity()
    }

    fn stats(&self) -> Stats {
        self.memory.stats()
    }
}

/// Creates a shard with a store that hangs for `ms` milliseconds and then returns `outcome` once.
fn hanging(
    platform: &Virtual,
    ms: u64,
    outcome: Option<Appended>,
) -> (Rc<Shard<Virtual>>, impl Sized + use<>) {
    let (shard, queue) = shards(platform, 1, Millis(60_000), Durability::Disk).remove(0);
    let until = platform.moment() + Duration::from_millis(ms);
    let store = Hanging::new(platform, until, outcome);
    platform.spawn(writer::run(Rc::clone(&shard), store));
    (shard, queue)
}

fn overflows(answer: &str) -> usize {
    answer.matches("\"overflow\":true").count()
}

/// Sends a 10-row batch with a 100 ms deadline. Returns the count of rows that were answered with
/// overflow numbers, and the batch's duration in milliseconds.
async fn ask(shard: &Rc<Shard<Virtual>>) -> (usize, u128) {
    let begun = shard.platform.moment();
    let asking = Rc::clone(shard);
    // Answers the batch in a separate task, as a connection does, so that all polls use one waker.
    let answer = shard
        .platform
        .task(async move { bulk(&asking, body(&asking, 10), &asking.platform.terms(100)).await });
    let answer = answer.await.unwrap();
    (overflows(&answer), shard.platform.moment().since(begun).as_millis())
}

fn state(shard: &Shard<Virtual>) -> JournalState {
    shard.node.journals().next().unwrap().1
}

async fn at(platform: &Virtual, ms: u64) {
    platform.sleep_until(Moment(Duration::from_millis(ms))).await;
}

#[test]
fn rows_overflow_at_once_during_a_slow_group_and_are_served_again_afterwards() {
    let platform = Virtual::default();
    let (shard, _queue) = hanging(&platform, 700, None);
    platform.run(async {
        assert_eq!(ask(&shard).await, (10, 100), "it is not known yet that it takes long");
        at(&platform, 260).await;
        assert_eq!(state(&shard), JournalState::Waiting);
        let allocated = shard.engine.borrow().counts().allocated;
        assert_eq!(ask(&shard).await, (10, 0), "no row waits for it");
        assert_eq!(shard.engine.borrow().counts().allocated, allocated, "no number is drawn");
        at(&platform, 710).await;
        assert_eq!(state(&shard), JournalState::Writing);
        assert_eq!(ask(&shard).await.0, 0);
        assert_eq!(locked(&shard), 10, "those that went nowhere are free again");
    });
}

#[test]
fn a_shard_that_was_taken_over_hands_out_nothing() {
    let platform = Virtual::default();
    let (shard, _queue) = hanging(&platform, 10, Some(Appended::Taken { epoch: 7 }));
    platform.run(async {
        assert_eq!(ask(&shard).await, (10, 10), "its answer had not left");
        assert_eq!(state(&shard), JournalState::Taken);
        at(&platform, 5_000).await;
        assert_eq!(ask(&shard).await, (10, 0));
        assert_eq!(state(&shard), JournalState::Taken);
    });
}

#[test]
fn a_group_without_room_is_tried_again() {
    let platform = Virtual::default();
    let group = Group {
        header: ringwell_journal::GroupHeader {
            n: 0,
            epoch: 0,
            at: Millis(0),
            last_at: Millis(0),
            body_len: 0,
            body_crc: 0,
            prev_hash: 0,
            clocks: None,
        },
        body: Vec::new(),
    };
    let full = Appended::Full { group, error: String::new() };
    let (shard, _queue) = hanging(&platform, 10, Some(full));
    platform.run(async {
        assert_eq!(ask(&shard).await, (10, 10));
        assert_eq!(state(&shard), JournalState::Full);
        at(&platform, 300).await;
        assert_eq!(state(&shard), JournalState::Writing);
        assert_eq!(ask(&shard).await.0, 0);
    });
}
