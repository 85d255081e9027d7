//! The shard's task that brings groups to the journal, one at a time, and lets answers go.

use std::rc::Rc;

use ringwell_engine::Refusal;
use ringwell_journal::Group;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::disk::{Flushed, Journal};
use crate::shard::ShardThread;
use ringwell_driver::node::JournalState;

/// Writes groups until the thread ends. While one is being stored the next one gathers.
pub(crate) async fn run(
    thread: Rc<ShardThread>,
    journal: Rc<Journal>,
    mut flushed: UnboundedReceiver<Flushed>,
) {
    let mut spare = Vec::new();
    loop {
        thread.pending.notified().await;
        // Requests that have arrived meanwhile join the group.
        tokio::task::yield_now().await;
        while let Some(group) = next_group(&thread, &mut spare) {
            let at_once = journal.submit(group);
            match stored(&thread, at_once, &mut flushed).await {
                Some(emptied) => spare = forget_oldest(&thread, &journal).unwrap_or(emptied),
                // The journal has failed: groups gather in vain until the restart.
                None => return,
            }
        }
    }
}

fn next_group(thread: &ShardThread, spare: &mut Vec<u8>) -> Option<Group> {
    let has_group = thread.has_group();
    let group = has_group.then(|| thread.seal(std::mem::take(spare)))?;
    thread.room.notify_waiters();
    group
}

/// In memory: gives up the oldest group for the one that was added, after copying what still
/// matters; its buffer is used again.
fn forget_oldest(thread: &ShardThread, journal: &Journal) -> Option<Vec<u8>> {
    let oldest = journal.take_oldest()?;
    let now = thread.now();
    let mut engine = thread.engine.borrow_mut();
    if !engine.needs_group(oldest.header.n) {
        return Some(oldest.body);
    }
    let mut carried = 0;
    let mut records = oldest.records();
    loop {
        let before = engine.pending_bytes();
        let is_done =
            engine.carry(now, &mut records, oldest.header.clocks).unwrap_or_else(|error| {
                tracing::error!(shard = thread.id, %error, "a group in memory cannot be read");
                true
            });
        carried += engine.pending_bytes() - before;
        if is_done {
            break;
        }
        // Memory stores a group at once.
        let _ = engine.seal(Vec::new()).map(|group| journal.submit(group));
    }
    if carried > oldest.body.len() / 2 {
        journal.keep_more(oldest.body.len() as u64);
    }
    Some(oldest.body)
}

/// Waits until the group in flight is stored; returns its emptied buffer.
async fn stored(
    thread: &ShardThread,
    mut at_once: Option<Flushed>,
    flushed: &mut UnboundedReceiver<Flushed>,
) -> Option<Vec<u8>> {
    loop {
        let told = match at_once.take() {
            Some(told) => told,
            None => flushed.recv().await?,
        };
        match told {
            Flushed::Stored { n, spare, .. } => {
                thread.stored(n);
                return Some(spare);
            }
            Flushed::Full { .. } => {
                tracing::error!(
                    shard = thread.id,
                    "the journal is full: this shard's rows get overflow numbers until there is room"
                );
                thread.node.set_journal(thread.id, JournalState::Full);
                thread.refuse(Refusal::JournalFull);
            }
            Flushed::Failed { error, .. } => {
                tracing::error!(
                    shard = thread.id,
                    error,
                    "the journal failed: this shard's rows get overflow numbers until a restart"
                );
                thread.node.set_journal(thread.id, JournalState::Failed);
                thread.refuse(Refusal::JournalFailed);
                return None;
            }
        }
    }
}
