//! What other threads, and the management API, ask of a shard: its queue is worked through here.

use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::disk::Journal;
use crate::lookup;
use crate::platform::Tokio;
use crate::shard::HttpShard;
use ringwell_driver::link::Link;
use ringwell_driver::message::Message;
use ringwell_driver::node::JournalState;
use ringwell_driver::pool_query;
use ringwell_driver::stats::{JournalStats, ShardStats};
use ringwell_driver::{change, moves};

/// Serves what other threads ask of this shard.
pub(crate) async fn serve(
    thread: Rc<HttpShard>,
    links: Vec<Rc<Link<Tokio>>>,
    journal: Rc<Journal>,
    mut queue: mpsc::Receiver<Message>,
) {
    while let Some(message) = queue.recv().await {
        match message {
            Message::Rows(rows) => thread.serve_peer(rows).await,
            Message::Unanswered(numbers) => thread.withdraw(&numbers),
            Message::Release { number, allocated_at, reply } => {
                let now = thread.now();
                let released = thread.engine.borrow_mut().release(now, number, allocated_at);
                thread.commit_soon();
                let group = thread.engine.borrow().newest_group();
                let thread = Rc::clone(&**thread);
                tokio::task::spawn_local(async move {
                    let durable = if released { thread.commit.wait(group).await } else { Ok(()) };
                    let _ = reply.send(durable.map(|()| released));
                });
            }
            Message::Attribution { number, at, reply } => {
                let looked =
                    lookup::attribution(Rc::clone(&**thread), journal.reader(), number, at);
                tokio::task::spawn_local(async move {
                    let _ = reply.send(looked.await);
                });
            }
            Message::Change(step, reply) => {
                let taken = change::take(Rc::clone(&**thread), step);
                tokio::task::spawn_local(async move {
                    let _ = reply.send(taken.await);
                });
            }
            Message::Adopt { adopted, reply } => {
                let adopting = moves::adopt_here(Rc::clone(&**thread), adopted);
                tokio::task::spawn_local(async move {
                    let _ = reply.send(adopting.await);
                });
            }
            Message::LearnOwners { of, reply } => {
                let (node, peers) = (Arc::clone(&thread.node), thread.peers.clone());
                tokio::task::spawn_local(async move {
                    moves::learn_from(&Tokio, &node, &peers, of).await;
                    let _ = reply.send(());
                });
            }
            Message::Pools(query) => {
                // The time is the engine's too.
                let now = thread.now();
                pool_query::answer(thread.id, &thread.engine.borrow(), now, &thread.stats, query);
            }
            // For shards of other nodes.
            Message::Post { .. } => {}
            Message::Stats(reply) => {
                let _ = reply.send(stats(&thread, &links, &journal));
            }
            Message::Ping(reply) => {
                let _ = reply.send(thread.now());
            }
        }
    }
}

fn stats(thread: &HttpShard, links: &[Rc<Link<Tokio>>], journal: &Journal) -> ShardStats {
    let engine = thread.engine.borrow();
    let stored = journal.stats();
    let mut journals = thread.node.journals();
    let state = journals.find(|(shard, _)| *shard == thread.id).map(|(_, state)| state);
    let mut histories = thread.node.shards().zip(thread.node.histories());
    let history = histories.find(|(shard, _)| *shard == thread.id).map(|(_, state)| state);
    ShardStats {
        shard: thread.id,
        counters: thread.stats.counters(),
        overflow: thread.stats.overflow_counts(),
        latency: thread.stats.latency(),
        links: links.iter().map(|link| link.stats()).collect(),
        connections: thread.connections.count(),
        engine: engine.counts(),
        answers: engine.answers_remembered(),
        numbers: engine.shard().number_count(),
        journal: JournalStats {
            kept: stored.segment_bytes,
            history: history.map_or(0, |state| state as u64),
            groups: stored.frames,
            bytes: stored.body_bytes,
            state: state.unwrap_or(JournalState::Failed) as u64,
        },
    }
}
