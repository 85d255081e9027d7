//! A thread's link to a shard of another node: as `ringwell-node/src/link/{mod,rows}.rs`, with the
//! production window and the production frames.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Outcome, Refusal};
use ringwell_mesh::frame::{self, RowAnswer};
use ringwell_mesh::pacing::{Admission, Ending, Pacing, Window};

use crate::bug::Bug;
use crate::event::{Answered, CallTrouble, LinkTask, Task, Wire};
use crate::model::Violation;
use crate::thread::{PeerAnswer, PeerRows, Reply, Thread, unanswered};
use crate::world::{MS, World};

/// What must be left of a batch's time when the rows' answer is there.
const MARGIN_US: u64 = 5 * MS;
/// How long an answer that is too late is waited for, so that its numbers can be given back.
const LATE_US: u64 = 1_000 * MS;
/// From its largest size a window shuts after five bad answers.
const BAD_IN_A_ROW_MAX: u32 = 5;

/// The link of one thread to one shard of another node.
#[derive(Debug)]
pub(crate) struct Link {
    window: Window,
    waiting: VecDeque<(u64, PeerRows)>,
    calls: BTreeMap<u64, Call>,
    is_pinging: bool,
    /// Bad verdicts since the last good one, and whether rows went out after too many.
    bad_in_a_row: u32,
}

#[derive(Debug)]
struct Call {
    rows: PeerRows,
    begun: u64,
    limit: u64,
    was_told_slow: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    /// The rows have their overflow numbers; the answer is waited for, to give its numbers back.
    Late,
    Ping,
}

impl Link {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            window: Window::new(Pacing::default(), seed),
            waiting: VecDeque::new(),
            calls: BTreeMap::new(),
            is_pinging: false,
            bad_in_a_row: 0,
        }
    }
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn long(us: u64) -> Duration {
    Duration::from_micros(us)
}

impl World {
    /// Takes rows: they go out at once, wait for a place, or overflow.
    pub(crate) fn link_take(
        &mut self,
        node: usize,
        thread: &mut Thread,
        owner: u16,
        rows: PeerRows,
    ) {
        let now = long(self.now);
        let seed = u64::from(thread.shard) << 16 | u64::from(owner);
        let link = thread.links.entry(owner).or_insert_with(|| Link::new(seed));
        match link.window.ask(now) {
            Admission::Send => self.link_ask(node, thread, owner, rows),
            Admission::Wait => {
                let number = self.id();
                if let Some(link) = thread.links.get_mut(&owner) {
                    link.waiting.push_back((number, rows));
                }
                let wait = us(Pacing::default().wait);
                self.later(node, thread.shard, wait, Task::Link(owner, LinkTask::GiveUp(number)));
            }
            Admission::Overflow(_) => self.refuse_rows(node, &rows, Refusal::Paced),
        }
    }

    pub(crate) fn on_link(
        &mut self,
        node: usize,
        thread: &mut Thread,
        owner: u16,
        due: u64,
        task: LinkTask,
    ) {
        match task {
            LinkTask::GiveUp(number) => self.link_give_up(node, thread, owner, number),
            LinkTask::Slow(call) => self.link_slow(node, thread, owner, call, due),
            LinkTask::Limit(call) => self.link_limit(node, thread, owner, call),
            LinkTask::LateMax(call) => {
                if let Some(link) = thread.links.get_mut(&owner) {
                    link.calls.remove(&call);
                }
            }
            LinkTask::Answer(call, answer) => self.link_answer(node, thread, owner, call, answer),
            LinkTask::PingDue => self.link_ping(node, thread, owner),
            LinkTask::PingLimit(call) => {
                let lag = self.now - due;
                self.link_pinged(node, thread, owner, call, Ending::Lost, lag);
            }
        }
    }

    fn link_give_up(&mut self, node: usize, thread: &mut Thread, owner: u16, number: u64) {
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let place = link.waiting.iter().position(|(waiting, _)| *waiting == number);
        if let Some((_, rows)) = place.and_then(|place| link.waiting.remove(place)) {
            link.window.gave_up();
            self.refuse_rows(node, &rows, Refusal::Paced);
        }
    }

    /// Sends rows that the window has let out.
    fn link_ask(&mut self, node: usize, thread: &mut Thread, owner: u16, rows: PeerRows) {
        let pacing = Pacing::default();
        let left = rows.deadline.saturating_sub(self.now).saturating_sub(MARGIN_US);
        let limit = us(pacing.deadline).min(left);
        if limit == 0 {
            self.link_ended(node, thread, owner, 0, Ending::Lost, Duration::MAX, false);
            self.refuse_rows(node, &rows, Refusal::Late);
            return;
        }
        let id = self.id();
        let bytes = self.ask_bytes(node, owner, &rows, limit);
        let life = self.nodes[node].life;
        let from = Reply::Call { node, life, thread: thread.shard, link: owner, call: id };
        let wire = Wire::Ask { from, batch: rows.batch, bytes };
        let (begun, slow) = (self.now, us(pacing.slow));
        let call = Call { rows, begun, limit, was_told_slow: false, state: State::Asked };
        if let Some(link) = thread.links.get_mut(&owner) {
            link.calls.insert(id, call);
        }
        self.send(node, owner, from, &wire);
        let at = |task| Task::Link(owner, task);
        if limit >= slow {
            self.later(node, thread.shard, slow, at(LinkTask::Slow(id)));
        }
        self.later(node, thread.shard, limit, at(LinkTask::Limit(id)));
    }

    fn ask_bytes(&self, node: usize, owner: u16, rows: &PeerRows, limit: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some(running) = &self.nodes[node].running else { return bytes };
        let ask = frame::Ask {
            shard: owner,
            remaining_ms: u32::try_from(limit / MS).unwrap_or(u32::MAX),
            map_version: running.owners.version(),
            retry: rows.retry,
        };
        let asked = rows.rows.iter().map(|row| frame::AskRow {
            pool: row.id,
            row: row.row,
            params: [row.params.as_slice(), b""],
            visitor: row.visitor,
        });
        frame::write_ask(&mut bytes, &ask, asked);
        bytes
    }

    fn link_slow(&mut self, node: usize, thread: &mut Thread, owner: u16, id: u64, due: u64) {
        let lag = self.now - due;
        let now = long(self.now);
        let never = self.bug == Some(Bug::NeverShut);
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let Some(call) = link.calls.get_mut(&id).filter(|call| call.state == State::Asked) else {
            return;
        };
        call.was_told_slow = true;
        if !never {
            link.window.slow(now, long(lag));
        }
        if long(lag) <= Pacing::default().stall {
            link.bad_in_a_row += 1;
        }
        self.link_settle(node, thread, owner);
    }

    /// The rows' time is over: they overflow, the answer may still come.
    fn link_limit(&mut self, node: usize, thread: &mut Thread, owner: u16, id: u64) {
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let Some(call) = link.calls.get_mut(&id).filter(|call| call.state == State::Asked) else {
            return;
        };
        call.state = State::Late;
        let (rows, took) = (call.rows.clone(), self.now - call.begun);
        let was_told_slow = call.was_told_slow;
        // A client in more of a hurry than links are judged by.
        let is_void = call.limit < us(Pacing::default().slow);
        let lag = if is_void { Duration::MAX } else { Duration::ZERO };
        self.link_ended(node, thread, owner, took, Ending::Lost, lag, was_told_slow);
        self.refuse_rows(node, &rows, Refusal::Late);
        self.later(node, thread.shard, LATE_US, Task::Link(owner, LinkTask::LateMax(id)));
    }

    fn link_answer(
        &mut self,
        node: usize,
        thread: &mut Thread,
        owner: u16,
        id: u64,
        answer: Answered,
    ) {
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let state = link.calls.get(&id).map(|call| call.state);
        if state == Some(State::Ping) {
            let ending = match answer.map(|bytes| frame::read_answer(&bytes, 0)) {
                Ok(Ok(_)) => Ending::Answered,
                Err(CallTrouble::Refused) => Ending::Refused,
                Ok(Err(_)) | Err(CallTrouble::Lost) => Ending::Lost,
            };
            return self.link_pinged(node, thread, owner, id, ending, 0);
        }
        let Some(call) = link.calls.remove(&id) else { return };
        let read = answer.map(|bytes| frame::read_answer(&bytes, call.rows.rows.len()));
        if call.state == State::Late {
            if let Ok(Ok(answer)) = read {
                self.give_back(node, owner, &unanswered(&outcomes(&answer)));
            }
            return;
        }
        let took = self.now - call.begun;
        let is_void = read.is_ok() && !call.was_told_slow && long(took) > Pacing::default().slow;
        let lag = if is_void { Duration::MAX } else { Duration::ZERO };
        let ending = match &read {
            Ok(_) => Ending::Answered,
            Err(CallTrouble::Refused) => Ending::Refused,
            Err(CallTrouble::Lost) => Ending::Lost,
        };
        self.link_ended(node, thread, owner, took, ending, lag, call.was_told_slow);
        match read {
            Ok(Ok(answer)) => {
                if let Err(unseen) = self.reply(node, call.rows.reply, outcomes(&answer)) {
                    self.give_back(node, owner, &unanswered(&unseen));
                }
            }
            Ok(Err(_)) | Err(_) => self.refuse_rows(node, &call.rows, Refusal::Unreachable),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the window wants to know all of it")]
    fn link_ended(
        &mut self,
        node: usize,
        thread: &mut Thread,
        owner: u16,
        took: u64,
        ending: Ending,
        lag: Duration,
        was_told_slow: bool,
    ) {
        let now = long(self.now);
        let pacing = Pacing::default();
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let is_good = ending == Ending::Answered && long(took) <= pacing.slow;
        if is_good {
            link.bad_in_a_row = 0;
        } else if lag <= pacing.stall && !was_told_slow {
            link.bad_in_a_row += 1;
        }
        if self.bug == Some(Bug::NeverShut) {
            link.window.ended(now, Duration::ZERO, Ending::Answered, lag, was_told_slow);
        } else {
            link.window.ended(now, long(took), ending, lag, was_told_slow);
        }
        self.link_settle(node, thread, owner);
    }

    /// After each change of the window: lets those who wait go on, or sends them away.
    fn link_settle(&mut self, node: usize, thread: &mut Thread, owner: u16) {
        loop {
            let Some(link) = thread.links.get_mut(&owner) else { return };
            if link.window.is_shut() {
                let all = std::mem::take(&mut link.waiting);
                let is_new = !std::mem::replace(&mut link.is_pinging, true);
                for (_, rows) in all {
                    self.refuse_rows(node, &rows, Refusal::Paced);
                }
                if is_new {
                    self.link_ping_later(node, thread, owner);
                }
                return;
            }
            if link.bad_in_a_row > BAD_IN_A_ROW_MAX && self.model.link_fault.is_none() {
                let text = format!(
                    "shard {} had {} bad answers in a row from shard {owner}; the link is open",
                    thread.shard, link.bad_in_a_row
                );
                let rule = "a link does not shut";
                self.model.link_fault = Some(Violation { rule, text, number: 0, shard: owner });
            }
            if !link.window.next_waiting() {
                return;
            }
            let Some((_, rows)) = link.waiting.pop_front() else { return };
            self.link_ask(node, thread, owner, rows);
        }
    }

    fn link_ping_later(&mut self, node: usize, thread: &mut Thread, owner: u16) {
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let Some(at) = link.window.ping_at() else {
            link.is_pinging = false;
            link.bad_in_a_row = 0;
            return self.link_settle(node, thread, owner);
        };
        let delay = us(at).saturating_sub(self.now);
        self.later(node, thread.shard, delay, Task::Link(owner, LinkTask::PingDue));
    }

    fn link_ping(&mut self, node: usize, thread: &mut Thread, owner: u16) {
        let id = self.id();
        let now = long(self.now);
        let life = self.nodes[node].life;
        let from = Reply::Call { node, life, thread: thread.shard, link: owner, call: id };
        let rows = PeerRows { batch: 0, rows: Vec::new(), retry: None, deadline: 0, reply: from };
        let limit = us(Pacing::default().deadline);
        let (begun, state) = (self.now, State::Ping);
        let call = Call { rows, begun, limit, was_told_slow: false, state };
        if let Some(link) = thread.links.get_mut(&owner) {
            link.window.ping_sent(now);
            link.calls.insert(id, call);
        }
        let mut bytes = Vec::new();
        frame::write_ping(&mut bytes, owner);
        self.send(node, owner, from, &Wire::Ping { from, bytes });
        self.later(node, thread.shard, limit, Task::Link(owner, LinkTask::PingLimit(id)));
    }

    fn link_pinged(
        &mut self,
        node: usize,
        thread: &mut Thread,
        owner: u16,
        id: u64,
        ending: Ending,
        lag: u64,
    ) {
        let now = long(self.now);
        let Some(link) = thread.links.get_mut(&owner) else { return };
        let Some(call) = link.calls.remove(&id) else { return };
        let took = long(self.now - call.begun);
        link.window.pinged(now, took, ending, long(lag));
        self.link_ping_later(node, thread, owner);
    }

    /// Answers all rows with a refusal. Nobody may wait any more: that is no harm.
    fn refuse_rows(&mut self, node: usize, rows: &PeerRows, why: Refusal) {
        let outcomes = vec![Outcome::Refused(why); rows.rows.len()];
        let _ = self.reply(node, rows.reply, PeerAnswer { at: Millis::ZERO, outcomes });
    }

    /// The process at the other end has been killed: every call to it ends.
    pub(crate) fn break_connections(&mut self, ended: usize) {
        let mut broken = Vec::new();
        for (node, other) in (0..).zip(&self.nodes) {
            let threads = other.running.iter().flat_map(|running| running.threads.values());
            for thread in threads {
                let to = |owner: &u16| self.cluster.home(*owner) == ended;
                for (owner, link) in thread.links.iter().filter(|(owner, _)| to(owner)) {
                    broken
                        .extend(link.calls.keys().map(|call| (node, thread.shard, *owner, *call)));
                }
            }
        }
        for (node, shard, owner, call) in broken {
            let task = LinkTask::Answer(call, Err(CallTrouble::Lost));
            self.later(node, shard, 100, Task::Link(owner, task));
        }
    }

    /// Has numbers released that no client has seen.
    pub(crate) fn give_back(&mut self, node: usize, owner: u16, numbers: &[(PromoNumber, Millis)]) {
        let Some((_, allocated_at)) = numbers.first() else { return };
        let mut bytes = Vec::new();
        let unseen = frame::Unanswered {
            shard: owner,
            allocated_at: *allocated_at,
            kept: false,
            numbers: numbers.iter().map(|(number, _)| *number).collect(),
        };
        frame::write_unanswered(&mut bytes, &unseen);
        self.send(node, owner, Reply::Handler(0), &Wire::Unanswered(bytes));
    }
}

/// What another node's answer says.
fn outcomes(answer: &frame::Answer) -> PeerAnswer {
    let outcome = |row: &RowAnswer| match *row {
        RowAnswer::Allocated { number } => Outcome::Allocated { number },
        RowAnswer::Kept { number } => Outcome::Kept { number },
        RowAnswer::Exhausted { until } => Outcome::Exhausted { until },
        RowAnswer::JournalFull => Outcome::Refused(Refusal::JournalFull),
        RowAnswer::JournalFailed => Outcome::Refused(Refusal::JournalFailed),
        RowAnswer::Late => Outcome::Refused(Refusal::Late),
        RowAnswer::Busy => Outcome::Refused(Refusal::Busy),
        RowAnswer::Moved => Outcome::Refused(Refusal::Moved),
    };
    PeerAnswer { at: answer.at, outcomes: answer.rows.iter().map(outcome).collect() }
}
