//! A shard's part of a change of the directory, piece by piece between batches.

use std::collections::HashSet;
use std::rc::Rc;

use ringwell_core::{Millis, NumberRange, PoolId, PoolSpec, Retired};
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
        Step::Tell(numbers) => {
            let now = thread.now();
            let mut known = known(&thread, &numbers).await;
            known.retain(|retired| !retired.slot.is_free(now));
            Done::Known(known)
        }
        Step::TellAll(numbers) => {
            let known = known(&thread, &numbers).await;
            let given: HashSet<_> = known.iter().map(|retired| retired.slot.number).collect();
            let engine = thread.engine.borrow();
            Done::All(known, engine.answers_for(|number| given.contains(&number)).collect())
        }
        Step::TellHolds => {
            let now = thread.now();
            Done::Holds(thread.engine.borrow().shard().holds(now).collect())
        }
        Step::Enter { known, put: pools } => {
            for retired in known {
                let adopt = |engine: &mut Engine, now| engine.adopt(now, &retired);
                if when_there_is_room(&thread, adopt).await.is_none() {
                    // Without a journal nothing goes out of this shard until a restart, which
                    // reads what the others know from their journals.
                    tracing::warn!(shard = thread.id, "a lockout is known to another shard only");
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

/// What the shard knows of those numbers that are in nobody's rotation here.
async fn known(thread: &ShardThread, numbers: &[NumberRange]) -> Vec<Retired> {
    let mut found = Vec::new();
    for range in numbers {
        found.extend(thread.engine.borrow().shard().retired_in(*range));
        tokio::task::yield_now().await;
    }
    found
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
