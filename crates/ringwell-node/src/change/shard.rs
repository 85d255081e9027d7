//! A shard's part of a change of the directory, piece by piece between batches.

use std::collections::HashSet;
use std::rc::Rc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, Retired};
use ringwell_directory::{BucketHolds, bucket};
use ringwell_engine::Engine;

use ringwell_driver::message::{Done, Known, Step};

use crate::shard::ShardThread;
use crate::start::spec;

/// Numbers that are looked at before the next batch gets its turn: some ten microseconds.
const PIECE_NUMBERS: u64 = 1024;

/// The same of numbers that are in nobody's rotation.
const PIECE_RETIRED: usize = 1024;

/// The same of a range of which few may be known.
const PIECE_NUMBERS_MAX: u32 = 1024;

/// Remembered answers that are looked at before the next batch gets its turn.
const PIECE_ANSWERS: u32 = 512;

/// Takes a step.
pub(crate) async fn take(thread: Rc<ShardThread>, step: Step) -> Done {
    match step {
        Step::Leave { removed, smaller } => {
            for (index, id) in removed {
                remove(&thread, index, id);
                tokio::task::yield_now().await;
            }
            put(&thread, smaller).await
        }
        Step::Tell { numbers, is_free_too } => {
            let now = thread.now();
            let mut known = known(&thread, &numbers).await;
            known.retain(|retired| is_free_too || !retired.slot.is_free(now));
            Done::Known(known)
        }
        Step::TellAll { numbers, buckets } => tell_all(&thread, &numbers, &buckets).await,
        Step::TellHolds => {
            let now = thread.now();
            Done::Holds(thread.engine.borrow().shard().holds(now).collect())
        }
        Step::TellStored => Done::Stored(thread.commit.durable()),
        Step::HoldBuckets(holds) => hold_buckets(&thread, &holds).await,
        Step::Enter { known, answers, holds, put: pools } => {
            for (place, retired) in known.into_iter().enumerate() {
                pause_at(place).await;
                let adopt = |engine: &mut Engine, now| engine.adopt(now, &retired);
                if when_there_is_room(&thread, adopt).await.is_none() {
                    // A journal that is full may have room again before the next start.
                    thread.engine.borrow_mut().adopt_unrecorded(&retired);
                }
            }
            for (place, entry) in answers.into_iter().enumerate() {
                pause_at(place).await;
                let adopt = |engine: &mut Engine, now| engine.adopt_answer(now, &entry);
                if when_there_is_room(&thread, adopt).await.is_none() {
                    tracing::warn!("batches that are sent again may use up more numbers");
                    break;
                }
            }
            for (place, (pool, until)) in holds.into_iter().enumerate() {
                pause_at(place).await;
                // What is over is known all the same: see `Facts::settle_apart`.
                let is_over = until <= thread.now();
                let hold = |engine: &mut Engine, now| engine.hold_pool(now, pool, until);
                if is_over || when_there_is_room(&thread, hold).await.is_none() {
                    thread.engine.borrow_mut().hold_unrecorded(pool, until);
                }
            }
            put(&thread, pools).await
        }
        Step::Use(directory) => {
            thread.use_directory(directory);
            Done::Taken
        }
    }
}

/// All that is known of these numbers and buckets, piece by piece: pools that leave have left, so that
/// nothing of them changes meanwhile.
async fn tell_all(thread: &ShardThread, numbers: &[NumberRange], buckets: &[u16]) -> Done {
    let at = thread.now();
    let mut known = known(thread, numbers).await;
    let mut given: HashSet<_> = known.iter().map(|retired| retired.slot.number).collect();
    let had = of_buckets(thread, buckets).await;
    known.extend(had.into_iter().filter(|retired| given.insert(retired.slot.number)));
    let mut answers = Vec::new();
    let mut next = thread.engine.borrow().answers_first();
    while let Some(place) = next {
        let is_wanted = |number| given.contains(&number);
        {
            let engine = thread.engine.borrow();
            next = engine.answers_for(place, PIECE_ANSWERS, is_wanted, &mut answers);
        }
        tokio::task::yield_now().await;
    }
    let holds = thread.engine.borrow().shard().holds(Millis::ZERO).collect();
    Done::All(Known { numbers: known, answers, at }, holds)
}

/// Holds the pools of these buckets, without records: `cluster-map.json` has the holds.
async fn hold_buckets(thread: &ShardThread, holds: &BucketHolds) -> Done {
    let directory = thread.node.directory();
    for (place, pool) in directory.pools_of(thread.id).enumerate() {
        pause_at(place).await;
        if let Some(until) = holds.until(pool.id(), spec(pool).lifetime) {
            thread.engine.borrow_mut().hold_unrecorded(pool.id(), until);
        }
    }
    Done::Taken
}

/// Lets batches have their turn after each so many.
async fn pause_at(place: usize) {
    if place % PIECE_RETIRED == PIECE_RETIRED - 1 {
        tokio::task::yield_now().await;
    }
}

fn remove(thread: &ShardThread, index: u32, id: PoolId) {
    let mut engine = thread.engine.borrow_mut();
    if engine.shard().is_pool(index, id) {
        engine.remove_pool(index);
    }
}

async fn put(thread: &ShardThread, pools: Vec<(u32, PoolSpec)>) -> Done {
    let mut looked_at = 0;
    for (index, spec) in pools {
        while thread.engine.borrow_mut().make_room(&spec) {
            tokio::task::yield_now().await;
        }
        if let Err(clash) = thread.engine.borrow_mut().put_pool(index, &spec) {
            return Done::Clash(spec.id, clash);
        }
        looked_at += spec.numbers.iter().map(|range| u64::from(range.count())).sum::<u64>() + 1;
        if looked_at >= PIECE_NUMBERS {
            looked_at = 0;
            tokio::task::yield_now().await;
        }
    }
    Done::Taken
}

/// What the shard knows of those numbers that are in nobody's rotation here.
async fn known(thread: &ShardThread, numbers: &[NumberRange]) -> Vec<Retired> {
    let mut found = Vec::new();
    for piece in numbers.iter().flat_map(|range| range.pieces(PIECE_NUMBERS_MAX)) {
        found.extend(thread.engine.borrow().shard().retired_in(piece));
        tokio::task::yield_now().await;
    }
    found
}

/// What the shard knows of numbers that are in nobody's rotation here, and went out last from pools of
/// these buckets: those may have left their pools since the others were told.
async fn of_buckets(thread: &ShardThread, buckets: &[u16]) -> Vec<Retired> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let mut looked_at = 0;
        for retired in thread.engine.borrow().shard().retired_after(after).take(PIECE_RETIRED) {
            after = Some(retired.slot.number);
            looked_at += 1;
            found.extend(Some(*retired).filter(|it| buckets.contains(&bucket(it.pool))));
        }
        if looked_at < PIECE_RETIRED {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// Writes something into the group that gathers, as soon as it has room for it. `None`: the journal
/// takes nothing.
pub(crate) async fn when_there_is_room(
    thread: &ShardThread,
    mut write: impl FnMut(&mut Engine, Millis) -> bool,
) -> Option<()> {
    loop {
        let now = thread.now();
        let sealed = thread.room.notified();
        if thread.engine.borrow().refusal().is_some() {
            return None;
        }
        let is_written = write(&mut thread.engine.borrow_mut(), now);
        thread.commit_soon();
        if is_written {
            return Some(());
        }
        sealed.await;
    }
}

#[cfg(test)]
mod tests;
