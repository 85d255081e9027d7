//! One shard's thread: its engine, what waits for its journal, and rows that others ask it for.
//!
//! Does what `ringwell-node` does in `shard.rs`, `commit.rs` and `writer.rs`, in the same order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_directory::Directory;
use ringwell_driver::maintenance::Rounds;
use ringwell_driver::open::Opened;
use ringwell_driver::store::{FileError, Inline, InlineJournal};
use ringwell_engine::{Ask, Engine, Outcome, Refusal, RowKey};
use ringwell_journal::Group;

use crate::bug::Bug;
use crate::event::{Event, Task};
use crate::fault::Kind;
use crate::files::SimFiles;
use crate::keeping::{Carrying, Snap, snapshot_every};
use crate::link::Link;
use crate::model::{Grant, Judged};
use crate::post::Caller;
use crate::world::{MS, World};

pub(crate) use crate::gather::InFlight;
pub(crate) use crate::serve::Handler;

/// How long a group waits on a full disk before it is tried again.
const FULL_RETRY_US: u64 = 250 * MS;

/// What the tasks of a shard's thread share.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) shard: u16,
    /// The state of the directory that rows are looked up in.
    pub(crate) directory: Arc<Directory>,
    pub(crate) engine: Engine,
    pub(crate) journal: InlineJournal<SimFiles>,
    /// Groups up to this one are durable.
    pub(crate) durable: u64,
    /// Why nobody may wait for the journal.
    pub(crate) refusal: Option<Refusal>,
    pub(crate) writing: Writing,
    commit_is_due: bool,
    promised: VecDeque<Promised>,
    /// Who waits until what was adopted is durable, with its group.
    pub(crate) adopted: Vec<(u64, Caller)>,
    /// When another node was asked last who owns what.
    pub(crate) learnt_at: Option<u64>,
    pub(crate) links: BTreeMap<u16, Link>,
    pub(crate) is_ready: bool,
    pub(crate) busy_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) slow_by: u64,
    pub(crate) snap: Option<Snap>,
    pub(crate) rounds: Rounds,
    pub(crate) snapshot_at: u64,
    pub(crate) carry: Option<Carrying>,
    /// The shard must not go on before a snapshot does.
    pub(crate) lengthened: Option<Millis>,
}

/// What the journal's own thread does.
#[derive(Debug)]
pub(crate) enum Writing {
    Idle,
    /// A frame is on its way to the disk.
    Frame,
    /// A group waits for room.
    Full,
    /// Nothing is stored any more.
    Failed,
}

/// An answer to another shard that waits for a group to be durable.
#[derive(Debug)]
struct Promised {
    group: u64,
    answer: PeerAnswer,
    reply: Reply,
}

/// One row of a batch that another shard took in.
#[derive(Clone, Debug)]
pub(crate) struct PeerRow {
    pub(crate) pool: u32,
    pub(crate) id: PoolId,
    pub(crate) row: u16,
    pub(crate) params: Vec<u8>,
    pub(crate) visitor: Option<VisitorId>,
}

/// The rows of one batch that one shard owns.
#[derive(Clone, Debug)]
pub(crate) struct PeerRows {
    /// Which batch it is: for the model alone.
    pub(crate) batch: u64,
    pub(crate) rows: Vec<PeerRow>,
    pub(crate) retry: Option<[u8; 16]>,
    pub(crate) deadline: u64,
    pub(crate) reply: Reply,
}

/// What became of them, in their order.
#[derive(Clone, Debug)]
pub(crate) struct PeerAnswer {
    pub(crate) at: Millis,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A batch of the same process, with rows at this place among its other shards.
    Batch { batch: u64, remote: usize },
    /// A request over a link that this process serves.
    Handler(u64),
    /// A call of another process: its node and life, thread, link and number.
    Call { node: usize, life: u32, thread: u16, link: u16, call: u64 },
}

impl Thread {
    pub(crate) fn new(
        opened: Opened<SimFiles>,
        directory: Arc<Directory>,
        bug: Option<Bug>,
    ) -> Self {
        let Opened { shard, engine, store, doubts, .. } = opened;
        let Inline::Files(journal) = store else { unreachable!("the disk is simulated") };
        let rounds = Rounds::new(&journal, snapshot_every(bug), None, engine.now());
        Self {
            shard,
            directory,
            durable: engine.group() - 1,
            engine,
            journal,
            refusal: None,
            writing: Writing::Idle,
            commit_is_due: false,
            promised: VecDeque::new(),
            adopted: Vec::new(),
            learnt_at: None,
            links: BTreeMap::new(),
            is_ready: false,
            busy_until: 0,
            slow_until: 0,
            slow_by: 0,
            snap: None,
            rounds,
            snapshot_at: 0,
            carry: None,
            lengthened: doubts.lengthened,
        }
    }

    /// Begins to store a group.
    fn write(&mut self, group: &Group) -> Result<(), FileError> {
        self.journal.frames().write(group)
    }
}

/// Whether an answer says what must not be forgotten.
pub(crate) fn is_promise(outcome: &Outcome, is_repeatable: bool) -> bool {
    match outcome {
        Outcome::Allocated { .. } | Outcome::Kept { .. } => true,
        Outcome::Exhausted { .. } => is_repeatable,
        Outcome::Refused(_) => false,
    }
}

fn told_number(outcome: Outcome) -> Option<PromoNumber> {
    match outcome {
        Outcome::Allocated { number } | Outcome::Kept { number } => Some(number),
        Outcome::Exhausted { .. } | Outcome::Refused(_) => None,
    }
}

/// The numbers of an answer that may be released.
pub(crate) fn unanswered(answer: &PeerAnswer) -> Vec<(PromoNumber, Millis)> {
    let numbers = answer.outcomes.iter().filter_map(|outcome| match *outcome {
        Outcome::Allocated { number } => Some((number, answer.at)),
        Outcome::Kept { .. } | Outcome::Exhausted { .. } | Outcome::Refused(_) => None,
    });
    numbers.collect()
}

impl World {
    pub(crate) fn work(
        &mut self,
        node: usize,
        thread: &mut Thread,
        due: u64,
        task: Task,
    ) -> Judged {
        match task {
            Task::Rows(_) | Task::Release(..) | Task::Unanswered(_) | Task::PingServed(_)
                if !thread.is_ready =>
            {
                // The queue is there, and nobody serves it yet.
                self.later(node, thread.shard, MS, task);
            }
            Task::Batch(batch) => self.take_in(node, thread, batch)?,
            Task::Deadline(batch) => self.batch_is_due(node, thread, batch)?,
            Task::Wake(batch) => self.try_finish(node, thread, batch)?,
            Task::Abort(batch) => self.abort(node, thread, batch),
            Task::Rows(rows) => self.serve_peer(node, thread, &rows)?,
            Task::Release(number, at) => self.release(node, thread, number, at),
            Task::Unanswered(numbers) => self.withdraw(node, thread, &numbers),
            Task::Commit => {
                thread.commit_is_due = false;
                self.write_next(node, thread)?;
            }
            Task::Flushed => self.flushed(node, thread)?,
            Task::WriteAgain(group) => self.submit(node, thread, group)?,
            Task::Round => self.round(node, thread),
            Task::SnapshotPiece => self.snapshot_piece(node, thread),
            Task::CarryStep => self.carry_step(node, thread),
            Task::Wire(wire) => self.serve_wire(node, thread, wire),
            Task::HandlerDeadline(id) => self.handler_is_due(node, thread, id),
            Task::PingServed(reply) => self.ping_served(node, thread, reply),
            Task::Step(stepper, step) => self.take_step(node, thread, stepper, step)?,
            Task::Adopt(adopted, from) => self.adopt(node, thread, adopted, from),
            Task::Learnt(batch) => self.has_learnt(node, thread, batch)?,
            Task::Link(owner, task) => self.on_link(node, thread, owner, due, task),
        }
        Ok(())
    }

    /// Has what the engine has written since brought to the disk.
    pub(crate) fn commit_soon(&mut self, node: usize, thread: &mut Thread) {
        let is_idle = matches!(thread.writing, Writing::Idle);
        if thread.engine.is_pending() && is_idle && !thread.commit_is_due {
            thread.commit_is_due = true;
            self.later(node, thread.shard, 10, Task::Commit);
        }
    }

    fn write_next(&mut self, node: usize, thread: &mut Thread) -> Judged {
        if !matches!(thread.writing, Writing::Idle) {
            return Ok(());
        }
        if let Some(clocks) = self.clocks(node) {
            thread.engine.set_clocks(clocks);
        }
        match thread.engine.seal(Vec::new()) {
            Some(group) => self.submit(node, thread, group),
            None => Ok(()),
        }
    }

    fn submit(&mut self, node: usize, thread: &mut Thread, group: Group) -> Judged {
        let was_full = matches!(thread.writing, Writing::Full);
        match thread.write(&group) {
            Ok(()) => {
                thread.writing = Writing::Frame;
                let latency = self.disk_latency();
                self.later(node, thread.shard, latency, Task::Flushed);
            }
            Err(_) if self.has_stopped(node) => {}
            Err(error) if error.is_full() => {
                thread.writing = Writing::Full;
                if !was_full {
                    self.tell(node, &[], || format!("shard {}: disk full", thread.shard));
                    self.refuse(node, thread, Refusal::JournalFull)?;
                }
                self.later(node, thread.shard, FULL_RETRY_US, Task::WriteAgain(group));
            }
            Err(_) => self.journal_failed(node, thread)?,
        }
        Ok(())
    }

    fn disk_latency(&mut self) -> u64 {
        if self.faults.strikes(Kind::SlowDisk) {
            return self.faults.stream(Kind::SlowDisk).between(MS, 3_000 * MS);
        }
        self.chance.between(60, 600)
    }

    fn flushed(&mut self, node: usize, thread: &mut Thread) -> Judged {
        match thread.journal.frames().flush() {
            Ok(()) => {
                thread.writing = Writing::Idle;
                self.stored(node, thread)?;
                self.write_next(node, thread)
            }
            Err(_) if self.has_stopped(node) => Ok(()),
            Err(_) => self.journal_failed(node, thread),
        }
    }

    fn journal_failed(&mut self, node: usize, thread: &mut Thread) -> Judged {
        self.tell(node, &[], || format!("shard {}: the journal failed", thread.shard));
        thread.writing = Writing::Failed;
        self.refuse(node, thread, Refusal::JournalFailed)?;
        let life = self.nodes[node].life;
        let patience = self.chance.between(500 * MS, 8_000 * MS);
        self.queue.add(self.now + patience, Event::Restart(node, life));
        Ok(())
    }

    /// A group is durable: answers that waited for it leave.
    fn stored(&mut self, node: usize, thread: &mut Thread) -> Judged {
        let group = thread.journal.next_n() - 1;
        if thread.engine.refusal() == Some(Refusal::JournalFull) {
            thread.engine.refuse(None);
        }
        thread.refusal = None;
        thread.durable = group;
        self.batches_wake(node, thread)?;
        while let Some(promised) = thread.promised.pop_front_if(|p| p.group <= group) {
            self.deliver(node, thread, promised);
        }
        self.adopted(node, thread, None);
        self.keeping_wakes(node, thread);
        Ok(())
    }

    /// The journal takes nothing: rows become overflow, those that wait too.
    fn refuse(&mut self, node: usize, thread: &mut Thread, why: Refusal) -> Judged {
        thread.engine.refuse(Some(why));
        thread.refusal = Some(why);
        self.batches_wake(node, thread)?;
        while let Some(mut promised) = thread.promised.pop_front() {
            self.withdraw(node, thread, &unanswered(&promised.answer));
            for outcome in &mut promised.answer.outcomes {
                if matches!(outcome, Outcome::Allocated { .. } | Outcome::Kept { .. }) {
                    *outcome = Outcome::Refused(why);
                }
            }
            self.deliver(node, thread, promised);
        }
        self.adopted(node, thread, Some(why));
        self.keeping_wakes(node, thread);
        Ok(())
    }

    /// Everybody of this thread who waits looks whether the wait is over.
    fn batches_wake(&mut self, node: usize, thread: &mut Thread) -> Judged {
        let Some(running) = self.running(node) else { return Ok(()) };
        let own = running.batches.iter().filter(|(_, batch)| batch.thread == thread.shard);
        let own: Vec<u64> = own.map(|(id, _)| *id).collect();
        own.into_iter().try_for_each(|batch| self.try_finish(node, thread, batch))
    }

    /// Serves rows of a batch that another shard took in.
    fn serve_peer(&mut self, node: usize, thread: &mut Thread, ask: &PeerRows) -> Judged {
        let is_late = self.now > ask.deadline && self.bug != Some(Bug::DeadlineIgnored);
        if is_late || self.is_closed(node, ask.reply) {
            return Ok(());
        }
        let at = thread.engine.at(self.shard_time(node));
        let mut outcomes = vec![Outcome::Refused(Refusal::Late); ask.rows.len()];
        for (row, outcome) in ask.rows.iter().zip(&mut outcomes) {
            self.allocate(node, thread, at, ask, row, outcome)?;
        }
        let answer = PeerAnswer { at, outcomes };
        let group = thread.engine.newest_group();
        let is_repeatable = ask.retry.is_some();
        let has_promise = answer.outcomes.iter().any(|o| is_promise(o, is_repeatable));
        let promised = Promised { group, answer, reply: ask.reply };
        let waits = thread.durable < group && self.bug != Some(Bug::ReplyBeforeFlush);
        if has_promise && waits {
            thread.promised.push_back(promised);
        } else {
            self.deliver(node, thread, promised);
        }
        self.commit_soon(node, thread);
        Ok(())
    }

    /// One row goes through the engine; the model hears of it.
    pub(crate) fn allocate(
        &mut self,
        node: usize,
        thread: &mut Thread,
        at: Millis,
        ask: &PeerRows,
        row: &PeerRow,
        outcome: &mut Outcome,
    ) -> Judged {
        let retry = ask.retry.filter(|_| self.bug != Some(Bug::RetryForgotten));
        let retry = retry.map(|batch| RowKey { batch, row: row.row });
        let params = [row.params.as_slice(), b""];
        let id = row.id;
        let wanted = Ask { pool: row.pool, id, params, visitor: row.visitor, retry };
        let before = thread.engine.counts().allocated;
        thread.engine.allocate(at, &wanted, outcome);
        let is_fresh = thread.engine.counts().allocated > before;
        let pool = id.0;
        let repeat = self.clients.retry(ask.batch).map(|first| (first, row.row));
        let told = *outcome;
        let slot = told_number(told).and_then(|number| thread.engine.shard().newest(number));
        let until = slot.map_or(0, |slot| slot.locked_until.0);
        let how = if is_fresh { "new" } else { "kept" };
        self.tell_outcome(node, thread.shard, (ask.batch, row.row), told, || {
            format!(
                "{how} for {} ms, visitor {:?}",
                until.saturating_sub(at.0),
                row.visitor.map(|v| plain(v.0))
            )
        });
        match *outcome {
            Outcome::Allocated { number } | Outcome::Kept { number } => {
                let slot = thread.engine.shard().newest(number);
                let until_ms = slot.map_or(0, |slot| slot.locked_until.0);
                self.model.granted(Grant::new(
                    (ask.batch, row.row),
                    repeat,
                    row.visitor.map(|VisitorId(id)| plain(id)),
                    (thread.shard, pool, number.to_code()),
                    (self.now, at.0, until_ms),
                    thread.engine.newest_group(),
                    is_fresh,
                    String::from_utf8_lossy(&row.params).into_owned(),
                    ask.deadline,
                ))
            }
            Outcome::Exhausted { .. } => self.model.exhausted(thread.shard, pool, at.0, repeat),
            Outcome::Refused(_) => Ok(()),
        }
    }

    fn tell_outcome(
        &mut self,
        node: usize,
        shard: u16,
        (batch, row): (u64, u16),
        told: Outcome,
        how: impl FnOnce() -> String,
    ) {
        if let Some(number) = told_number(told) {
            self.tell(node, &[number.to_code()], || {
                format!("shard {shard} gives {number} to batch {batch} row {row}, {}", how())
            });
        }
    }

    /// Sends an answer; if nobody waits any more, its numbers are released.
    fn deliver(&mut self, node: usize, thread: &mut Thread, promised: Promised) {
        if let Err(answer) = self.reply(node, promised.reply, promised.answer) {
            self.withdraw(node, thread, &unanswered(&answer));
        }
    }

    /// Undoes allocations that no client has seen.
    pub(crate) fn withdraw(
        &mut self,
        node: usize,
        thread: &mut Thread,
        numbers: &[(PromoNumber, Millis)],
    ) {
        let now = thread.engine.at(self.shard_time(node));
        for (number, allocated_at) in numbers {
            let is_kept = self.bug == Some(Bug::UnseenCounts);
            let is_undone = if is_kept {
                thread.engine.release(now, *number, Some(*allocated_at))
            } else {
                thread.engine.withdraw(now, *number, *allocated_at)
            };
            if is_undone {
                let (number, times) = (number.to_code(), (allocated_at.0, now.0));
                self.model.withdrawn(thread.shard, number, times, thread.engine.newest_group());
                self.tell(node, &[number], || {
                    format!("shard {} takes {number} back, which nobody saw", thread.shard)
                });
            }
        }
        self.commit_soon(node, thread);
    }

    /// A client gives a number back.
    fn release(&mut self, node: usize, thread: &mut Thread, number: PromoNumber, at: Millis) {
        let now = thread.engine.at(self.shard_time(node));
        if thread.engine.release(now, number, Some(at)) {
            self.model.released(thread.shard, number.to_code(), now.0);
            self.tell(node, &[number.to_code()], || {
                format!("shard {} ends the lockout of {number}", thread.shard)
            });
        }
        self.commit_soon(node, thread);
    }
}

/// Keys are numbers here.
pub(crate) fn plain(key: [u8; 16]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&key[..8]);
    u64::from_le_bytes(first)
}

pub(crate) fn key(plain: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&plain.to_le_bytes());
    key
}
