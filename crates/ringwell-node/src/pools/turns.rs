//! Other tasks, such as batches, run between the pieces of a shard's long steps.

use std::cell::Cell;
use std::sync::Arc;

use ringwell_config::{Config, Durability, demo_pools};
use ringwell_core::PromoNumber;
use ringwell_directory::Directory;
use ringwell_engine::{Restore, RowKey};
use ringwell_journal::{AnswerEntry, RecordedAnswer, Tip};
use tokio::task::LocalSet;

use crate::platform::Tokio;
use crate::shard::ShardThread;
use ringwell_core::{Millis, NumberRange, PoolId, Retired};
use ringwell_driver::change::take;
use ringwell_driver::message::{Step, StepResult};
use ringwell_driver::node::{Begun, Node};
use ringwell_driver::queue::Peers;
use ringwell_driver::rows::spec;
use ringwell_os::Clock;
use std::rc::Rc;

/// The maximum counts of answers and of promo numbers in one piece of a step, copied from
/// `ringwell_driver::change`.
const PIECE_ANSWERS: u32 = 512;
const PIECE_NUMBERS: u64 = 1024;

/// Creates a shard that remembers `answers` answers and has `numbers` retired numbers.
fn thread(answers: u64, numbers: u64) -> Rc<ShardThread> {
    let pools = demo_pools(1, 10, Millis(1)).unwrap();
    let directory = Directory::new(1, pools, 1).unwrap();
    let specs = directory.pools_of(0).map(|pool| spec(pool)).collect();
    let mut config = Config::new("unused".into(), 1);
    config.durability = Durability::Memory;
    let node = Node::new(config, directory, &[0], None, (None, Begun::default()));
    let clock = Clock::start();
    let mut restore = Restore::new(specs, usize::MAX);
    for answer in 0..answers {
        let mut batch = [0; 16];
        batch[..8].copy_from_slice(&answer.to_le_bytes());
        let (row, at) = (RowKey { batch, row: 0 }, clock.now());
        restore.answer(&AnswerEntry { row, at, answer: RecordedAnswer::Overflow, pool: PoolId(7) });
    }
    let (mut engine, _) = restore.finish(Tip::FIRST.raise_epoch(), clock.now(), false);
    for number in 0..numbers {
        let slot = ringwell_core::Slot {
            number: PromoNumber::from_e164(12_100_000_000 + number).unwrap(),
            allocated_at: Millis(1),
            locked_until: Millis(2),
            position: ringwell_core::Position::NONE,
        };
        let (pool, visitor) = (PoolId(1), None);
        engine.adopt_unrecorded(&Retired { slot, local_at: Millis(1), pool, visitor });
    }
    Rc::new(ShardThread::new(
        0,
        Arc::new(node),
        Tokio,
        engine,
        clock.shard_time(),
        Peers::default(),
    ))
}

/// Performs the step, and returns how often other tasks ran before it was complete.
fn turns(thread: &Rc<ShardThread>, step: Step) -> (StepResult, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let turns = Rc::new(Cell::new(0));
    let done = runtime.block_on(LocalSet::new().run_until(async {
        let count = Rc::clone(&turns);
        let other = tokio::task::spawn_local(async move {
            loop {
                count.set(count.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let done = take(Rc::clone(thread), step).await;
        other.abort();
        done
    }));
    (done, turns.get())
}

#[test]
fn batches_have_their_turn_while_a_shard_reports_its_whole_state() {
    let (answers, numbers) = (50_000, 20_000);
    let thread = thread(answers, numbers);
    let first = PromoNumber::from_e164(12_100_000_000).unwrap();
    let range = NumberRange::new(first, 20_000).unwrap();
    let step = Step::ReportAll { numbers: vec![range], buckets: vec![0] };
    let (StepResult::All(known, _), turns) = turns(&thread, step) else { panic!("another answer") };
    assert_eq!((known.numbers.len() as u64, known.answers.len() as u64), (numbers, answers));
    let wanted = answers / u64::from(PIECE_ANSWERS) + numbers / PIECE_NUMBERS;
    assert!(turns >= wanted, "{turns} turns, {wanted} pieces");
}
