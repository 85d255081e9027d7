//! Links to other nodes' shards: the sending side on this thread.
//!
//! Each thread of this node has one link to each of the other nodes' shards. The entries of a
//! link's queue are sent as requests over HTTP/1.1 on keep-alive connections. Pacing decides when
//! they are sent, and which of them are answered with overflow at once. A slow or broken link
//! affects only the rows that are sent over it. Source: docs/spec/link.md, docs/spec/pacing.md.

pub(crate) mod limits;
mod rows;
pub mod serve;
mod translate;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_mesh::frame;
use ringwell_mesh::pacing::{Ending, Pacing, Window};
use tokio::sync::mpsc;

use crate::canary::{Bug, planted};
use crate::membership::{Membership, Neighbour};
use crate::platform::{Moment, Net, Path, Platform, Trouble};

use crate::message::{Message, PeerRows};
use crate::node::Node;
use crate::queue::{Peers, QUEUE_MESSAGES_MAX};
use crate::stats::{Counter, LinkStats};

/// This thread's link to one of another node's shards.
#[derive(Debug)]
pub struct Link<P: Platform> {
    platform: P,
    node: Arc<Node>,
    neighbour: Neighbour,
    pacing: Pacing,
    window: RefCell<Window>,
    /// Rows that wait until the window admits them, oldest first. Each entry has its own id.
    waiting: RefCell<VecDeque<(u64, PeerRows)>>,
    waited: Cell<u64>,
    net: P::Net,
    is_pinging: Cell<bool>,
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

/// A link and its outgoing queue.
#[derive(Debug)]
pub struct Way<P: Platform> {
    /// The link.
    pub link: Rc<Link<P>>,
    queue: mpsc::Receiver<Message>,
}

/// Creates the links of the thread that runs shard `caller`, and adds their queues to `peers`.
pub fn to_others<P: Platform>(
    platform: &P,
    node: &Arc<Node>,
    caller: u16,
    peers: &mut Peers,
    net: impl Fn(&Neighbour) -> P::Net,
) -> Vec<Way<P>> {
    let others = node.membership.iter().flat_map(Membership::others);
    let way = |neighbour: Neighbour| {
        let (sender, queue) = mpsc::channel(QUEUE_MESSAGES_MAX);
        peers.add(neighbour.shard, sender);
        // Each link has its own seed, so that a node's links ping at different times.
        let seed = u64::from(caller) << 16 | u64::from(neighbour.shard);
        let net = net(&neighbour);
        Way { link: Rc::new(Link::new(platform.clone(), node, net, neighbour, seed)), queue }
    };
    others.map(way).collect()
}

impl<P: Platform> Way<P> {
    /// Runs until the thread ends.
    pub async fn run(mut self) {
        while let Some(message) = self.queue.recv().await {
            let link = Rc::clone(&self.link);
            match message {
                Message::Rows(rows) => link.take(rows),
                Message::Unanswered(numbers) => {
                    link.platform.clone().spawn(async move { link.give_back(&numbers).await });
                }
                Message::Release { number, allocated_at, seen_at, reply } => {
                    link.platform.clone().spawn(async move {
                        let _ = reply.send(link.release(number, (allocated_at, seen_at)).await);
                    });
                }
                Message::Attribution { number, at, keep_alives, reply } => {
                    link.platform.clone().spawn(async move {
                        let _ = reply.send(link.attribution((number, at), keep_alives).await);
                    });
                }
                Message::Post { path, body, reply, .. } => {
                    link.platform.clone().spawn(async move {
                        let _ = reply.send(link.post(path, body).await);
                    });
                }
                // Each node answers these messages for its own shards only, so they are never sent
                // over a link.
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

impl<P: Platform> Link<P> {
    fn new(platform: P, node: &Arc<Node>, net: P::Net, neighbour: Neighbour, seed: u64) -> Self {
        let links = &node.config.links;
        let pacing = Pacing::new(links.deadline, links.slow, links.wait);
        Self {
            node: Arc::clone(node),
            platform,
            net,
            neighbour,
            pacing,
            window: RefCell::new(Window::new(pacing, seed)),
            waiting: RefCell::default(),
            waited: Cell::default(),
            is_pinging: Cell::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the current time in the form that the window uses.
    fn now(&self) -> Duration {
        self.platform.moment().0
    }

    /// Sends the waiting rows that the window admits, or answers all with overflow if the link is
    /// shut. Runs after each change of the window.
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
                    "a shard did not answer in time: its rows get overflow numbers until the shard \
                    answers pings"
                );
                self.platform.spawn(Rc::clone(self).ping());
            }
            return;
        }
        while self.window.borrow_mut().next_waiting() {
            let Some((_, rows)) = self.waiting.borrow_mut().pop_front() else { break };
            self.platform.spawn(Rc::clone(self).ask(rows));
        }
    }

    /// Pings a shut link's shard until it is fast again.
    async fn ping(self: Rc<Self>) {
        loop {
            if planted(Bug::NeverReopened) {
                return;
            }
            let Some(at) = self.window.borrow().ping_at() else { break };
            self.platform.sleep_until(Moment(at)).await;
            self.window.borrow_mut().ping_sent(self.now());
            let begun = self.platform.moment();
            let answer = self.platform.within(self.pacing.deadline, self.send_ping()).await;
            let ending = match answer {
                Some(Ok(())) => Ending::Answered,
                Some(Err(Trouble::Refused(..))) => Ending::Refused,
                Some(Err(Trouble::Lost(_))) | None => Ending::Lost,
            };
            let (now, took) = (self.now(), self.platform.moment().since(begun));
            // If the ping took longer than its time limit, this thread was delayed.
            let lag = took.saturating_sub(self.pacing.deadline);
            self.window.borrow_mut().pinged(now, took, ending, lag);
        }
        self.is_pinging.set(false);
        tracing::info!(
            shard = self.neighbour.shard,
            node = self.neighbour.node,
            "a shard answers again: rows are sent to it again, only a few at first"
        );
        self.settle();
    }

    /// Sends a ping that goes through the queue of the link's shard.
    async fn send_ping(&self) -> Result<(), Trouble> {
        let mut ping = Vec::new();
        frame::write_ping(&mut ping, self.neighbour.shard);
        let answer = self.net.call(Path::Ping, ping.into()).await?;
        let read = frame::read_answer(&answer, 0).map(drop);
        read.map_err(|error| Trouble::Lost(error.to_string()))
    }

    /// Returns a copy of the counts, for `/metrics` and `/v1/shards`.
    pub fn stats(&self) -> LinkStats {
        let (window, net) = (self.window.borrow(), self.net.stats());
        LinkStats {
            shard: self.neighbour.shard,
            node: self.neighbour.node.clone(),
            window: window.window(),
            in_flight: window.in_flight(),
            waiting: window.waiting(),
            is_shut: window.is_shut(),
            last_ping: window.last_ping(),
            connections: net.connections,
            connects: net.connects,
            requests: self.counts.requests.get(),
            slow: self.counts.slow.get(),
            lost: self.counts.lost.get(),
            paced_rows: self.counts.paced_rows.get(),
            late_released: self.counts.late_released.get(),
            latency: net.latency,
            clock_ahead_ms: net.clock_ahead_ms,
        }
    }
}
