//! The task that passes a shard's groups to the store, one at a time. It sends each group's answers
//! once the group is durable.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use ringwell_engine::Refusal;
use ringwell_journal::Group;

use crate::canary::{Bug, planted};
use crate::node::JournalState;
use crate::platform::Platform;
use crate::shard::Shard;
use crate::store::{Appended, Store};

/// The pause before another attempt to store a group that there was no space for.
const RETRY: Duration = Duration::from_millis(250);

/// Stores groups until the shard ends or its journal fails. While one group is being stored, the
/// next group accepts records.
pub async fn run<P: Platform, S: Store>(shard: Rc<Shard<P>>, store: Rc<S>) {
    let mut spare = Vec::new();
    loop {
        shard.pending.notified().await;
        // Records of requests that have arrived in the meantime join the group.
        shard.platform.turn().await;
        while let Some(group) = next_group(&shard, &mut spare) {
            if planted(Bug::Pipelined) {
                let (shard, store) = (Rc::clone(&shard), Rc::clone(&store));
                shard.platform.clone().spawn(async move {
                    let _ = stored(&shard, group, &*store).await;
                });
                continue;
            }
            match stored(&shard, group, &*store).await {
                Some(emptied) => {
                    spare = forget_oldest(&shard, &*store).await.unwrap_or(emptied);
                }
                // Nothing more is stored, so further groups are useless until the shard is opened
                // again.
                None => return,
            }
        }
    }
}

fn next_group<P: Platform>(shard: &Shard<P>, spare: &mut Vec<u8>) -> Option<Group> {
    let has_group = shard.has_group();
    let group = has_group.then(|| shard.seal(std::mem::take(spare)))?;
    shard.room.notify_waiters();
    group
}

/// Drops the oldest group of a store in memory, after copying the records that are still needed.
/// Returns the dropped group's buffer, to be reused.
async fn forget_oldest<P: Platform>(shard: &Shard<P>, store: &impl Store) -> Option<Vec<u8>> {
    let oldest = store.take_oldest()?;
    let now = shard.now();
    if !shard.engine.borrow().needs_group(oldest.header.n) {
        return Some(oldest.body);
    }
    let mut carried = 0;
    let mut records = oldest.records();
    loop {
        let (is_done, full) = {
            let mut engine = shard.engine.borrow_mut();
            let before = engine.pending_bytes();
            let is_done = engine.carry(now, &mut records, oldest.header.clocks);
            let is_done = is_done.unwrap_or_else(|error| {
                tracing::error!(shard = shard.id, %error, "a group in memory cannot be read");
                true
            });
            carried += engine.pending_bytes() - before;
            (is_done, if is_done { None } else { engine.seal(Vec::new()) })
        };
        if is_done {
            break;
        }
        if let Some(group) = full {
            // A store in memory stores a group at once.
            let _ = store.append(group).await;
        }
    }
    if carried > oldest.body.len() / 2 {
        store.keep_more(oldest.body.len() as u64);
    }
    Some(oldest.body)
}

/// Waits until the group is stored, and returns its emptied buffer. Returns `None` if nothing more
/// will be stored.
async fn stored<P: Platform>(
    shard: &Shard<P>,
    mut group: Group,
    store: &impl Store,
) -> Option<Vec<u8>> {
    let n = group.header.n;
    loop {
        let mut appending = pin!(store.append(group));
        let in_time = match store.wait_max() {
            Some(most) => shard.platform.within(most, appending.as_mut()).await,
            None => Some(appending.as_mut().await),
        };
        let appended = if let Some(appended) = in_time {
            appended
        } else {
            let why = format!("group {n} is not stored yet");
            shard.hold_up(JournalState::Waiting, Refusal::JournalWaits, &why);
            appending.await
        };
        match appended {
            Appended::Stored { spare } => {
                shard.stored(n);
                return Some(spare);
            }
            Appended::Full { group: again, error } => {
                shard.hold_up(JournalState::Full, Refusal::JournalFull, &error);
                shard.platform.within(RETRY, shard.retry.notified()).await;
                group = again;
            }
            Appended::Taken { epoch } => {
                let why = format!("another process has taken over the journal (epoch {epoch})");
                shard.hold_up(JournalState::Taken, Refusal::Moved, &why);
                return None;
            }
            Appended::Failed(error) => {
                shard.journal_failed(&error);
                return None;
            }
        }
    }
}
