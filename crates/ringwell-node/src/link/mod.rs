//! Links to the shards of other nodes: this thread's side of them.
//!
//! One link for each shard of another node and each thread of this one. What is put into its
//! queue goes out as a request over HTTP/1.1 on a kept-alive connection; pacing decides when, and
//! what is answered with overflow at once. A link that is slow or gone costs its own rows their
//! numbers and nothing else. Source: docs/spec/link.md, docs/spec/pacing.md.

mod call;
mod rows;
pub(crate) mod serve;
pub(crate) mod tls;
mod translate;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwell_mesh::pacing::{Ending, Pacing, Window};
use tokio::sync::mpsc;

use ringwell_driver::Trouble;
use ringwell_driver::membership::{Membership, Neighbour};

use self::call::Calls;
pub(crate) use self::call::HttpNet;
use self::tls::Tls;
use crate::server::Server;
use ringwell_driver::message::{Message, PeerRows};
use ringwell_driver::node::Node;
use ringwell_driver::queue::{Peers, QUEUE_MESSAGES_MAX};
use ringwell_driver::stats::{Counter, LinkStats};

/// The link of this thread to one shard of another node.
#[derive(Debug)]
pub(crate) struct Link {
    node: Arc<Node>,
    neighbour: Neighbour,
    pacing: Pacing,
    window: RefCell<Window>,
    /// Rows that wait for a place in the window, oldest first, by a number of their own.
    waiting: RefCell<VecDeque<(u64, PeerRows)>>,
    waited: Cell<u64>,
    calls: HttpNet,
    is_pinging: Cell<bool>,
    origin: Instant,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    requests: Counter,
    slow: Counter,
    lost: Counter,
    paced_rows: Counter,
    late_released: Counter,
}

/// A link and the queue of what is to go over it.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) link: Rc<Link>,
    queue: mpsc::Receiver<Message>,
}

/// Makes the links of the thread of shard `caller`, and adds the ways to `peers`.
pub(crate) fn to_others(server: &Server, caller: u16, peers: &mut Peers) -> Vec<Way> {
    let (node, tls) = (&server.node, server.links.as_ref());
    let others = node.membership.iter().flat_map(Membership::others);
    let way = |neighbour: Neighbour| {
        let (sender, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
        peers.add(neighbour.shard, sender);
        // The links of a node ping at different times, and a node's own as well.
        let seed = u64::from(caller) << 16 | u64::from(neighbour.shard);
        Way { link: Rc::new(Link::new(node, tls.cloned(), neighbour, seed)), queue }
    };
    others.map(way).collect()
}

impl Way {
    /// Works until the thread ends.
    pub(crate) async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            let link = Rc::clone(&self.link);
            match message {
                Message::Rows(rows) => link.take(rows),
                Message::Unanswered(numbers) => {
                    tokio::task::spawn_local(async move { link.give_back(&numbers).await });
                }
                Message::Release { number, allocated_at, reply } => {
                    tokio::task::spawn_local(async move {
                        let _ = reply.send(link.release(number, allocated_at).await);
                    });
                }
                Message::Attribution { number, at, reply } => {
                    tokio::task::spawn_local(async move {
                        let _ = reply.send(link.attribution(number, at).await);
                    });
                }
                Message::Post { path, body, reply } => {
                    tokio::task::spawn_local(async move {
                        let _ = reply.send(link.post(path, body).await);
                    });
                }
                // Each node answers for its own shards.
                Message::Stats(_)
                | Message::Ping(_)
                | Message::Change(..)
                | Message::Pools(_)
                | Message::LearnOwners { .. }
                | Message::Adopt { .. } => {}
            }
        }
    }
}

impl Link {
    fn new(node: &Arc<Node>, tls: Option<Tls>, neighbour: Neighbour, seed: u64) -> Self {
        let links = &node.config.links;
        let pacing = Pacing {
            deadline: links.deadline,
            slow: links.slow,
            wait: links.wait,
            ..Pacing::default()
        };
        Self {
            node: Arc::clone(node),
            calls: HttpNet(Rc::new(Calls::new(node, &neighbour, tls))),
            neighbour,
            pacing,
            window: RefCell::new(Window::new(pacing, seed)),
            waiting: RefCell::default(),
            waited: Cell::default(),
            is_pinging: Cell::default(),
            origin: Instant::now(),
            counts: Counts::default(),
        }
    }

    /// Time as the window counts it.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// After each change of the window: lets those who wait go on, or sends them away.
    fn settle(self: &Rc<Self>) {
        if self.window.borrow().is_shut() {
            let all = std::mem::take(&mut *self.waiting.borrow_mut());
            for (_, rows) in all {
                self.overflow(rows);
            }
            if !self.is_pinging.replace(true) {
                tracing::warn!(
                    shard = self.neighbour.shard,
                    node = self.neighbour.node,
                    "a shard was slow or gone: its rows get overflow numbers until it answers pings"
                );
                tokio::task::spawn_local(Rc::clone(self).ping());
            }
            return;
        }
        while self.window.borrow_mut().next_waiting() {
            let Some((_, rows)) = self.waiting.borrow_mut().pop_front() else { break };
            tokio::task::spawn_local(Rc::clone(self).ask(rows));
        }
    }

    /// Pings a shard that was slow until it is quick again.
    async fn ping(self: Rc<Self>) {
        loop {
            let Some(at) = self.window.borrow().ping_at() else { break };
            tokio::time::sleep_until((self.origin + at).into()).await;
            self.window.borrow_mut().ping_sent(self.now());
            let begun = Instant::now();
            let answer = tokio::time::timeout(self.pacing.deadline, self.calls.0.ping()).await;
            let ending = match answer {
                Ok(Ok(())) => Ending::Answered,
                Ok(Err(Trouble::Refused(..))) => Ending::Refused,
                Ok(Err(Trouble::Lost(_))) | Err(_) => Ending::Lost,
            };
            let (now, took) = (self.now(), begun.elapsed());
            // A timer that rang late: this thread was.
            let lag = took.saturating_sub(self.pacing.deadline);
            self.window.borrow_mut().pinged(now, took, ending, lag);
        }
        self.is_pinging.set(false);
        tracing::info!(
            shard = self.neighbour.shard,
            node = self.neighbour.node,
            "a shard answers again: its rows are eased back in"
        );
        self.settle();
    }

    /// A copy of the counts, for `/metrics` and `/v1/shards`.
    pub(crate) fn stats(&self) -> LinkStats {
        let window = self.window.borrow();
        LinkStats {
            shard: self.neighbour.shard,
            node: self.neighbour.node.clone(),
            window: window.window(),
            in_flight: window.in_flight(),
            waiting: window.waiting(),
            is_shut: window.is_shut(),
            last_ping: window.last_ping(),
            connections: self.calls.0.open(),
            connects: self.calls.0.connects(),
            requests: self.counts.requests.get(),
            slow: self.counts.slow.get(),
            lost: self.counts.lost.get(),
            paced_rows: self.counts.paced_rows.get(),
            late_released: self.counts.late_released.get(),
            latency: self.calls.0.latency(),
        }
    }
}
