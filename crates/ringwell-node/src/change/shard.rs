//! A shard's part of a change of the directory, piece by piece between batches.

use std::rc::Rc;

use ringwell_core::{NumberRange, PoolId, PoolSpec, Retired};
use ringwell_engine::Engine;

use super::{Done, Step};
use crate::shard::ShardThread;

/// Numbers that are looked at before the next batch gets its turn: some ten microseconds.
const PIECE_NUMBERS: u64 = 1024;

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
        Step::Tell(numbers) => Done::Known(locked(&thread, &numbers).await),
        Step::Enter { known, put: pools } => {
            for retired in known {
                adopt(&thread, &retired).await;
            }
            put(&thread, pools).await
        }
        Step::Use(directory) => {
            thread.use_directory(directory);
            Done::Taken
        }
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

/// What the shard knows of those numbers that are in nobody's rotation here and still locked.
async fn locked(thread: &ShardThread, numbers: &[NumberRange]) -> Vec<Retired> {
    let now = thread.now();
    let mut found = Vec::new();
    for range in numbers {
        let is_locked = |retired: &&Retired| !retired.slot.is_free(now);
        let known = |engine: &Engine| -> Vec<Retired> {
            engine.shard().retired_in(*range).filter(is_locked).copied().collect()
        };
        found.extend(known(&thread.engine.borrow()));
        tokio::task::yield_now().await;
    }
    found
}

/// Takes over a lockout; waits for room in the journal's group.
pub(crate) async fn adopt(thread: &Rc<ShardThread>, retired: &Retired) {
    loop {
        let now = thread.now();
        let is_taken = thread.engine.borrow_mut().adopt(now, retired);
        thread.commit_soon();
        if is_taken {
            return;
        }
        thread.room.notified().await;
    }
}
