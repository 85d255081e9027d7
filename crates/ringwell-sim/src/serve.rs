//! What other nodes ask this one, and how it travels: as `ringwell-node/src/link/serve.rs`.

use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Outcome, Refusal};
use ringwell_mesh::frame::{self, RowAnswer};

use crate::bug::Bug;
use crate::event::{Answered, CallTrouble, Event, LinkTask, Task, Wire};
use crate::fault::Kind;
use crate::thread::{PeerAnswer, PeerRow, PeerRows, Reply, Thread};
use crate::world::{MS, World};

/// A request with rows that waits for their owner.
#[derive(Debug)]
pub(crate) struct Handler {
    from: Reply,
    places: Vec<usize>,
    outcomes: Vec<Outcome>,
    at: Millis,
}

impl World {
    /// Sends a request to the node that has `owner`.
    pub(crate) fn send(&mut self, from: usize, owner: u16, call: Reply, wire: &Wire) {
        let to = self.cluster.home(owner);
        for delay in self.ways(from, to) {
            let life = self.nodes[to].life;
            let is_there = self.nodes[to].running.as_ref().is_some_and(|r| r.is_serving);
            if is_there {
                let due = self.now + delay;
                let task = Task::Wire(wire.clone());
                let to = Event::Thread { node: to, life, shard: owner, due, task };
                self.queue.add(due, to);
            } else {
                self.answer_call(to, call, &Err(CallTrouble::Lost));
            }
        }
    }

    /// How long what is sent takes: not at all there, once, or twice.
    pub(crate) fn ways(&mut self, from: usize, to: usize) -> Vec<u64> {
        if self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now) {
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

    /// Brings the end of a call to where it began.
    fn answer_call(&mut self, from: usize, call: Reply, answer: &Answered) {
        let Reply::Call { node, life, thread, link, call } = call else { return };
        for delay in self.ways(from, node) {
            let due = self.now + delay;
            let task = Task::Link(link, LinkTask::Answer(call, answer.clone()));
            self.queue.add(due, Event::Thread { node, life, shard: thread, due, task });
        }
    }

    /// What was on its way to a process that has ended: its connection breaks.
    pub(crate) fn unheard(&mut self, task: &Task) {
        if let Task::Wire(Wire::Ask { from, .. } | Wire::Ping { from, .. }) = task
            && let Reply::Call { link, .. } = from
        {
            let home = self.cluster.home(*link);
            self.answer_call(home, *from, &Err(CallTrouble::Lost));
        }
    }

    pub(crate) fn serve_wire(&mut self, node: usize, thread: &mut Thread, wire: Wire) {
        let limits = frame::Limits::default();
        match wire {
            Wire::Ask { from, batch, bytes } => {
                let Ok((ask, rows)) = frame::read_ask(&bytes, &limits) else {
                    return self.answer_call(node, from, &Err(CallTrouble::Refused));
                };
                self.serve_ask(node, thread, (from, batch), &ask, rows, &bytes);
            }
            Wire::Unanswered(bytes) => {
                let Ok(unseen) = frame::read_unanswered(&bytes, &limits) else { return };
                let numbers =
                    unseen.numbers.into_iter().map(|number| (number, unseen.allocated_at));
                let numbers: Vec<(PromoNumber, Millis)> = numbers.collect();
                self.later(node, thread.shard, 10, Task::Unanswered(numbers));
            }
            Wire::Ping { from, bytes } => {
                if frame::read_ping(&bytes).is_ok() {
                    self.later(node, thread.shard, 10, Task::PingServed(from));
                } else {
                    self.answer_call(node, from, &Err(CallTrouble::Refused));
                }
            }
        }
    }

    fn serve_ask(
        &mut self,
        node: usize,
        thread: &Thread,
        (from, batch): (Reply, u64),
        ask: &frame::Ask,
        read: Vec<frame::ReadRow>,
        bytes: &[u8],
    ) {
        let deadline = self.now + u64::from(ask.remaining_ms) * MS;
        let mut handler = Handler {
            from,
            places: Vec::new(),
            outcomes: vec![Outcome::Refused(Refusal::Moved); read.len()],
            at: Millis::ZERO,
        };
        let mut rows = Vec::new();
        for (place, row) in read.into_iter().enumerate() {
            let entry = thread.directory.lookup(row.pool);
            let entry = entry.filter(|entry| entry.shard() == ask.shard);
            let Some(pool) = entry.map(ringwell_directory::Entry::index) else { continue };
            let params = row.params.map(|range| &bytes[range]).concat();
            let (id, row, visitor) = (row.pool, row.row, row.visitor);
            rows.push(PeerRow { pool, id, row, params, visitor });
            handler.places.push(place);
        }
        if rows.is_empty() {
            return self.handler_ends(node, &handler);
        }
        let id = self.id();
        if let Some(running) = self.running(node) {
            running.handlers.insert(id, handler);
        }
        let reply = Reply::Handler(id);
        let rows = PeerRows { batch, rows, retry: ask.retry, deadline, reply };
        let hop = self.chance.between(5, 60);
        self.later(node, ask.shard, hop, Task::Rows(rows));
        if self.bug != Some(Bug::DeadlineIgnored) {
            self.later(node, ask.shard, deadline - self.now, Task::HandlerDeadline(id));
        }
    }

    /// The rows' owner has answered.
    pub(crate) fn handler_answers(&mut self, node: usize, id: u64, answer: &PeerAnswer) {
        let taken = self.running(node).and_then(|running| running.handlers.remove(&id));
        let Some(mut handler) = taken else { return };
        handler.at = answer.at;
        for (place, outcome) in handler.places.iter().zip(&answer.outcomes) {
            handler.outcomes[*place] = *outcome;
        }
        self.handler_ends(node, &handler);
    }

    /// The owner has not answered in time: whatever it says later is released.
    pub(crate) fn handler_is_due(&mut self, node: usize, _thread: &mut Thread, id: u64) {
        let taken = self.running(node).and_then(|running| running.handlers.remove(&id));
        let Some(mut handler) = taken else { return };
        for place in &handler.places {
            handler.outcomes[*place] = Outcome::Refused(Refusal::Late);
        }
        self.handler_ends(node, &handler);
    }

    fn handler_ends(&mut self, node: usize, handler: &Handler) {
        let map_version = self.map_version(node);
        let rows = handler.outcomes.iter().map(row_answer).collect();
        let mut bytes = Vec::new();
        frame::write_answer(&mut bytes, &frame::Answer { at: handler.at, map_version, rows });
        self.answer_call(node, handler.from, &Ok(bytes));
    }

    fn map_version(&self, node: usize) -> u64 {
        self.nodes[node].running.as_ref().map_or(0, |running| running.owners.version())
    }

    /// A ping has come through the shard's own queue.
    pub(crate) fn ping_served(&mut self, node: usize, thread: &mut Thread, from: Reply) {
        let at = thread.engine.at(self.shard_time(node));
        let map_version = self.map_version(node);
        let mut bytes = Vec::new();
        frame::write_answer(&mut bytes, &frame::Answer { at, map_version, rows: Vec::new() });
        self.answer_call(node, from, &Ok(bytes));
    }
}

/// An outcome as it travels.
fn row_answer(outcome: &Outcome) -> RowAnswer {
    match *outcome {
        Outcome::Allocated { number } => RowAnswer::Allocated { number },
        Outcome::Kept { number } => RowAnswer::Kept { number },
        Outcome::Exhausted { until } => RowAnswer::Exhausted { until },
        Outcome::Refused(Refusal::JournalWaits) => RowAnswer::Busy,
        Outcome::Refused(Refusal::JournalFull) => RowAnswer::JournalFull,
        Outcome::Refused(Refusal::JournalFailed) => RowAnswer::JournalFailed,
        Outcome::Refused(Refusal::Late) => RowAnswer::Late,
        Outcome::Refused(Refusal::Busy | Refusal::Paced | Refusal::Unreachable) => RowAnswer::Busy,
        Outcome::Refused(Refusal::Moved) => RowAnswer::Moved,
    }
}
