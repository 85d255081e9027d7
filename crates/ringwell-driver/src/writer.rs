//! The shard's task that brings groups to the journal, one at a time, and lets answers go.

use std::future::Future;
use std::rc::Rc;

use ringwell_engine::Refusal;
use ringwell_journal::Group;

use crate::node::JournalState;
use crate::platform::Platform;
use crate::shard::Shard;
use crate::store::{Files, Journal};

/// What became of a group.
#[derive(Debug)]
pub enum Appended {
    /// It is as durable as configured: answers may leave.
    Stored {
        /// Its body, to gather another group in.
        spare: Vec<u8>,
    },
    /// There is no room. The group waits; [`Append::again`] says what becomes of it.
    Full,
    /// Nothing is stored any more until the shard is opened again.
    Failed(String),
}

/// Stores the groups of one shard in their order, one at a time.
pub trait Append: 'static {
    /// Where they go.
    type Files: Files;

    /// Stores a group. Dropping the future does not undo it.
    fn append(&mut self, group: Group) -> impl Future<Output = Appended>;

    /// Waits for the group that found no room.
    fn again(&mut self) -> impl Future<Output = Appended>;

    /// What is stored.
    fn journal(&self) -> &Journal<Self::Files>;
}

/// Writes groups until the shard ends. While one is being stored the next one gathers.
pub async fn run<P: Platform>(shard: Rc<Shard<P>>, mut store: impl Append) {
    let mut spare = Vec::new();
    loop {
        shard.pending.notified().await;
        // Requests that have arrived meanwhile join the group.
        shard.platform.turn().await;
        while let Some(group) = next_group(&shard, &mut spare) {
            match stored(&shard, group, &mut store).await {
                Some(emptied) => spare = forget_oldest(&shard, &mut store).await.unwrap_or(emptied),
                // The journal has failed: groups gather in vain until the restart.
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

/// In memory: gives up the oldest group for the one that was added, after copying what still
/// matters; its buffer is used again.
async fn forget_oldest<P: Platform>(shard: &Shard<P>, store: &mut impl Append) -> Option<Vec<u8>> {
    let oldest = store.journal().take_oldest()?;
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
            // Memory stores a group at once.
            let _ = store.append(group).await;
        }
    }
    if carried > oldest.body.len() / 2 {
        store.journal().keep_more(oldest.body.len() as u64);
    }
    Some(oldest.body)
}

/// Waits until the group is stored; returns its emptied buffer.
async fn stored<P: Platform>(
    shard: &Shard<P>,
    group: Group,
    store: &mut impl Append,
) -> Option<Vec<u8>> {
    let n = group.header.n;
    let mut appended = store.append(group).await;
    loop {
        match appended {
            Appended::Stored { spare } => {
                shard.stored(n);
                return Some(spare);
            }
            Appended::Full => {
                tracing::error!(
                    shard = shard.id,
                    "the journal is full: this shard's rows get overflow numbers until there is room"
                );
                shard.node.set_journal(shard.id, JournalState::Full);
                shard.refuse(Refusal::JournalFull);
            }
            Appended::Failed(error) => {
                tracing::error!(
                    shard = shard.id,
                    error,
                    "the journal failed: this shard's rows get overflow numbers until a restart"
                );
                shard.node.set_journal(shard.id, JournalState::Failed);
                shard.refuse(Refusal::JournalFailed);
                return None;
            }
        }
        appended = store.again().await;
    }
}
