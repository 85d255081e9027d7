//! Processes a shard's queue: requests from other shards and from operators.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_core::{Millis, PromoNumber};
use tokio::sync::mpsc;

use crate::canary::{Bug, planted};
use crate::link::Link;
use crate::message::Message;
use crate::node::{JournalState, Phase};
use crate::platform::Platform;
use crate::shard::Shard;
use crate::stats::{JournalStats, ShardStats};
use crate::store::Store;
use crate::{change, lookup, moves, pool_query};

/// Ends a lockout. Returns whether there was one.
fn release<P: Platform>(
    shard: &Shard<P>,
    number: PromoNumber,
    allocated_at: Option<Millis>,
    seen_at: Option<Millis>,
) -> bool {
    let now = shard.now();
    let mut engine = shard.engine.borrow_mut();
    let is_released = match seen_at {
        Some(seen) => engine.release_unseen(now, number, allocated_at, seen),
        None => engine.release(now, number, allocated_at),
    };
    if let Some(watch) = shard.platform.watch().filter(|_| is_released) {
        watch.released(shard.id, number, now);
    }
    is_released
}

/// Serves the requests in this shard's queue until the queue is closed. `connections` returns the
/// number of open connections.
pub async fn serve<P: Platform>(
    shard: Rc<Shard<P>>,
    links: Vec<Rc<Link<P>>>,
    store: Rc<impl Store>,
    connections: impl Fn() -> usize,
    mut queue: mpsc::Receiver<Message>,
) {
    while let Some(message) = queue.recv().await {
        match message {
            Message::Rows(rows) => shard.serve_peer(rows).await,
            Message::Unanswered(numbers) => shard.withdraw(&numbers),
            Message::Release { number, allocated_at, seen_at, reply } => {
                let is_released = release(&shard, number, allocated_at, seen_at);
                shard.commit_soon();
                let group = shard.engine.borrow().newest_group();
                let releasing = Rc::clone(&shard);
                shard.platform.spawn(async move {
                    let shard = releasing;
                    let durable = if is_released { shard.commit.wait(group).await } else { Ok(()) };
                    let _ = reply.send(durable.map(|()| is_released));
                });
            }
            Message::Attribution { reply, .. } if is_unconfirmed(&shard) => {
                let reason = "the node is starting, and has not compared its journals with the \
                    other nodes yet";
                let _ = reply.send(Err(reason.to_owned()));
            }
            Message::Attribution { number, at, keep_alives, reply } => {
                let wanted = (number, at);
                let looked =
                    lookup::look_up(Rc::clone(&shard), store.reader(), wanted, keep_alives);
                shard.platform.spawn(async move {
                    let _ = reply.send(looked.await);
                });
            }
            Message::Change(step, reply) => {
                let taken = change::take(Rc::clone(&shard), step);
                shard.platform.spawn(async move {
                    let _ = reply.send(taken.await);
                });
            }
            Message::Adopt { adopted, reply } => {
                let adopting = moves::adopt_here(Rc::clone(&shard), adopted);
                shard.platform.spawn(async move {
                    let _ = reply.send(adopting.await);
                });
            }
            Message::LearnOwners { of, reply } => {
                let (node, peers) = (Arc::clone(&shard.node), shard.peers.clone());
                let platform = shard.platform.clone();
                shard.platform.spawn(async move {
                    moves::learn_from(&platform, &node, &peers, of).await;
                    let _ = reply.send(());
                });
            }
            Message::Pools(query) => {
                // This also advances the engine's time.
                let now = shard.now();
                let facts = (&shard.node.begun, &shard.stats);
                pool_query::answer(shard.id, &shard.engine.borrow(), now, facts, query);
            }
            // A thread without links has sent this message.
            Message::Post { to, path, body, reply } => {
                let post = Message::Post { to, path, body, reply };
                let _ = to != shard.id && shard.peers.send(to, post);
            }
            Message::Stats(reply) => {
                let _ = reply.send(stats(&shard, &links, &*store, connections()));
            }
            Message::Ping(reply) => {
                let _ = reply.send(shard.now());
            }
        }
    }
}

/// Whether other nodes may have records that show that this shard's journal lacks allocations. A
/// node of a cluster asks them before it serves.
fn is_unconfirmed<P: Platform>(shard: &Shard<P>) -> bool {
    let is_member = shard.node.membership.is_some();
    is_member && shard.node.phase() == Phase::Starting && !planted(Bug::StartingAnswers)
}

fn stats<P: Platform>(
    shard: &Shard<P>,
    links: &[Rc<Link<P>>],
    store: &impl Store,
    connections: usize,
) -> ShardStats {
    let engine = shard.engine.borrow();
    let stored = store.stats();
    let mut journals = shard.node.journals();
    let state = journals.find(|(id, _)| *id == shard.id).map(|(_, state)| state);
    let now = shard.platform.moment();
    let mut troubles = shard.node.troubles().filter(|(id, ..)| *id == shard.id);
    let trouble = troubles.next().map(|(_, _, trouble)| now.since(trouble.since));
    let held = shard.node.held(now).find(|(id, _)| *id == shard.id).map(|(_, left)| left);
    let mut histories = shard.node.shards().zip(shard.node.histories());
    let history = histories.find(|(id, _)| *id == shard.id).map(|(_, state)| state);
    ShardStats {
        shard: shard.id,
        counters: shard.stats.counters(),
        overflow: shard.stats.overflow_counts(),
        latency: shard.stats.latency(),
        links: links.iter().map(|link| link.stats()).collect(),
        connections,
        engine: engine.counts(),
        answers: engine.answers_remembered(),
        numbers: engine.shard().number_count(),
        journal: JournalStats {
            kept: stored.segment_bytes,
            history: history.map_or(0, |state| state as u64),
            groups: stored.frames,
            bytes: stored.body_bytes,
            state: state.unwrap_or(JournalState::Failed) as u64,
            trouble_seconds: trouble.map_or(0, seconds),
            held_seconds: held.map_or(0, seconds),
        },
    }
}

/// Returns `time` in whole seconds, rounded up and at least 1. A hold or failure that has not ended
/// is therefore never reported as 0.
fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}
