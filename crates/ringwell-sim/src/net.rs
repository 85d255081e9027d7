//! The network between processes. Requests and answers may be delayed, lost, duplicated or
//! reordered, and may arrive after the receiving process has ended.

use std::rc::Rc;

use bytes::Bytes;
use ringwell_driver::link::serve;
use ringwell_driver::{Path, Trouble};
use ringwell_mesh::frame;

use crate::event::Event;
use crate::fault::Kind;
use crate::message::{Caller, Replied, Sent};
use crate::model::{Judged, Violation};
use crate::pace::MS;
use crate::world::World;

/// The maximum number of consecutive calls without a fast answer: five such calls reduce even the
/// largest window to 0, and a sixth may already be in progress.
const BAD_MAX: usize = 6;

/// The time after which a call without a fast answer counts towards `BAD_MAX`.
const JUDGED_US: u64 = 60 * MS;

/// An answer that takes longer than this does not count as fast.
const QUICK_US: u64 = 50 * MS;

impl World {
    /// Checks that a link shuts if its shard is slow or cannot be reached.
    pub(crate) fn judge_call(
        &mut self,
        call: u64,
        (node, thread, shard): (usize, u16, u16),
        path: Path,
        body: &Bytes,
    ) -> Judged {
        let (link, now) = ((node, self.nodes[node].life, thread, shard), self.now());
        if !matches!(path, Path::Rows | Path::Ping) {
            return Ok(());
        }
        self.links.calls.insert(call, (link, now));
        if path == Path::Ping {
            return Ok(());
        }
        let known = self.thread(node, thread);
        let (idle_at, stalled) = known.map_or((0, 0), |it| (it.was_idle_at, it.stalled_until));
        let bad = self.links.bad.entry(link).or_default();
        let is_judged = |begun: &&u64| **begun > stalled && **begun + JUDGED_US < idle_at;
        let judged = bad.iter().filter(is_judged).count();
        if judged > BAD_MAX {
            let text = format!(
                "shard {thread} got no good answer to {judged} consecutive requests to shard \
                {shard}"
            );
            let rule = "a link does not shut";
            return Err(Violation { rule, text, number: 0, shard });
        }
        // Rows with short deadlines do not affect the state of a link.
        let limits = frame::Limits::default();
        let asked = frame::read_ask(body, &limits);
        if asked.is_ok_and(|(ask, _)| u64::from(ask.remaining_ms) * MS >= QUICK_US / 2) {
            bad.push(now);
        }
        Ok(())
    }

    /// Sends a request to the node of `shard`.
    pub(crate) fn send_call(
        &mut self,
        call: u64,
        from: usize,
        shard: u16,
        path: Path,
        body: &Bytes,
    ) {
        let to = self.cluster.home(shard);
        let life = self.nodes[to].life;
        for delay in self.ways(from, to) {
            let body = body.clone();
            let request = Event::Request { call, node: to, life, shard, path, body };
            self.queue.add(self.now() + delay, request);
        }
    }

    /// Sends the result of a call back to its caller.
    pub(crate) fn send_reply(&mut self, call: u64, from: usize, replied: &Replied) {
        let to = self.shared.calls.borrow().get(&call).map(|caller| caller.node);
        let Some(to) = to else { return };
        for delay in self.ways(from, to) {
            let replied = replied.clone();
            self.queue.add(self.now() + delay, Event::Replied { call, replied });
        }
    }

    /// Returns the delay of each delivery of a frame. A lost frame is never delivered, and a
    /// duplicated frame is delivered twice.
    fn ways(&mut self, from: usize, to: usize) -> Vec<u64> {
        if self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now()) {
            return Vec::new();
        }
        if self.faults.strikes(Kind::FrameLost) {
            return Vec::new();
        }
        let copies = if self.faults.strikes(Kind::FrameDoubled) { 2 } else { 1 };
        let mut ways = Vec::new();
        for _ in 0..copies {
            let mut delay = self.chance.between(30, 250);
            if self.faults.strikes(Kind::FrameReordered) {
                delay += self.faults.stream(Kind::FrameReordered).below(20 * MS);
            }
            if self.faults.strikes(Kind::FrameDelayed) {
                delay += self.faults.stream(Kind::FrameDelayed).between(5 * MS, 4_000 * MS);
            }
            ways.push(delay);
        }
        ways
    }

    /// Handles a request that arrives. Any thread of the node may receive it.
    pub(crate) fn request_arrives(
        &mut self,
        (call, node, life): (u64, usize, u32),
        shard: u16,
        path: Path,
        body: Bytes,
    ) {
        let running = self.nodes[node].running.as_ref();
        let running = running.filter(|_| self.nodes[node].life == life);
        let threads = running.iter().flat_map(|running| running.threads.values());
        let open: Vec<_> = threads.filter(|thread| thread.is_open.get()).collect();
        let own = open.iter().position(|thread| thread.shard.id == shard).unwrap_or(0);
        // In about three out of four cases, the shard's own thread receives the request.
        let drawn = self.chance.below(4 * open.len().max(1) as u64);
        let place = usize::try_from(drawn).ok().filter(|drawn| *drawn < open.len());
        let Some(thread) = open.get(place.unwrap_or(own)) else {
            return self.send_reply(call, node, &Err(Trouble::Lost("it is away".to_owned())));
        };
        let (sim, shard) = (thread.sim.clone(), Rc::clone(&thread.shard));
        thread.sim.executor.spawn(async move {
            let answer = serve::answer(&shard, path, body, frame::VERSION).await;
            let replied = answer.map(Bytes::from);
            let replied = replied.map_err(|(status, why)| Trouble::Refused(status, why));
            sim.send(Sent::Reply { call, from: sim.life.node, replied });
        });
    }

    pub(crate) fn reply_arrives(&mut self, call: u64, replied: Replied) {
        let caller = self.shared.calls.borrow_mut().remove(&call);
        let Some(caller) = caller else { return };
        let begun = self.links.calls.remove(&call);
        if let Some((link, begun)) = begun.filter(|_| replied.is_ok())
            && begun + QUICK_US >= self.now()
        {
            self.links.bad.remove(&link);
        }
        let is_there = self.nodes[caller.node].life == caller.life;
        if is_there && self.nodes[caller.node].running.is_some() {
            caller.answer(replied);
        }
    }

    /// Handles the end of a process. Its pending requests are discarded. Connections from other
    /// nodes break, unless the machine has lost power.
    pub(crate) fn break_calls(&mut self, node: usize, is_power: bool) {
        let mut broken = Vec::new();
        self.shared.calls.borrow_mut().retain(|call, caller: &mut Caller| {
            if caller.to == node && caller.node != node {
                broken.push(*call);
            }
            caller.node != node
        });
        for call in broken.into_iter().filter(|_| !is_power) {
            self.send_reply(call, node, &Err(Trouble::Lost("the connection broke".to_owned())));
        }
    }
}
