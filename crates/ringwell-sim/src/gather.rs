//! The rows of one batch on their way: as `ringwell-node/src/gather.rs`.

use ringwell_core::{Millis, PoolId, PromoNumber, VisitorId};
use ringwell_engine::{Outcome, Refusal};

use std::collections::BTreeMap;

use crate::bug::Bug;
use crate::clients::RowAsk;
use crate::event::Task;
use crate::model::{Judged, Model, Row, Told};
use crate::thread::{PeerAnswer, PeerRow, PeerRows, Reply, Thread, is_promise, key, unanswered};
use crate::world::{MS, World};

/// The longest that an answer may be late without a stall of its own thread, and a number in any
/// case.
const LATE_MAX_US: u64 = 5 * MS;

/// The plan for a row of a pool that the directory does not have: it fails.
const NO_POOL: (u16, u32) = (u16::MAX, 0);

/// A batch that is being answered.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) thread: u16,
    /// Owner and index within it, row for row.
    plans: Vec<(u16, u32)>,
    outcomes: Vec<Outcome>,
    remote: Vec<Remote>,
    now: Millis,
    group: u64,
    journal: Waits,
    deadline: u64,
    redirect: Redirect,
}

/// Whether rows that were refused as moved are asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redirect {
    NotYet,
    /// Until it is known who owns what.
    Learning,
    Over,
}

/// Rows that another shard was asked for.
#[derive(Debug)]
struct Remote {
    shard: u16,
    rows: Vec<u16>,
    answered_at: Option<Millis>,
    arrived: Option<PeerAnswer>,
    is_open: bool,
}

/// How it is with the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    Yes,
    No,
    Refused(Refusal),
}

impl World {
    /// Takes a batch in: asks the other owners, then serves its own rows.
    pub(crate) fn take_in(&mut self, node: usize, thread: &mut Thread, id: u64) -> Judged {
        if !thread.is_ready {
            self.clients.unsent(id);
            return Ok(());
        }
        let directory = std::sync::Arc::clone(&thread.directory);
        let asked = self.clients.rows(id);
        let plan = |row: &RowAsk| {
            let entry = directory.lookup(PoolId(row.pool));
            entry.map_or(NO_POOL, |entry| (entry.shard(), entry.index()))
        };
        let plans: Vec<(u16, u32)> = asked.iter().map(plan).collect();
        let retry = self.clients.digest(id, self.bug);
        let deadline = self.now + self.clients.deadline_us(id);
        let mut all = Vec::new();
        for (row, (asked, (_, pool))) in (0..).zip(asked.iter().zip(&plans)) {
            all.push(peer_row(*pool, row, asked));
        }
        let mut batch = InFlight {
            thread: thread.shard,
            outcomes: vec![Outcome::Refused(Refusal::Late); plans.len()],
            plans,
            remote: Vec::new(),
            now: Millis::ZERO,
            group: 0,
            journal: Waits::No,
            deadline,
            redirect: Redirect::NotYet,
        };
        let mut sends = Vec::new();
        for shard in 0..u16::try_from(self.cluster.homes.len()).unwrap_or(0) {
            let of = |row: &&PeerRow| batch.plans[usize::from(row.row)].0 == shard;
            let rows: Vec<PeerRow> = all.iter().filter(of).cloned().collect();
            if shard == thread.shard || rows.is_empty() {
                continue;
            }
            let reply = Reply::Batch { batch: id, remote: batch.remote.len() };
            let numbers = rows.iter().map(|row| row.row).collect();
            batch.remote.push(Remote::new(shard, numbers));
            sends.push((shard, PeerRows { batch: id, rows, retry, deadline, reply }));
        }
        let reply = Reply::Batch { batch: id, remote: usize::MAX };
        let own = PeerRows { batch: id, rows: Vec::new(), retry, deadline, reply };
        batch.now = thread.engine.at(self.shard_time(node));
        for row in &all {
            let index = usize::from(row.row);
            if batch.plans[index].0 == thread.shard {
                let at = batch.now;
                self.allocate(node, thread, at, &own, row, &mut batch.outcomes[index])?;
            }
        }
        self.commit_soon(node, thread);
        batch.group = thread.engine.newest_group();
        let is_own = |(plan, _): &(&(u16, u32), &Outcome)| plan.0 == thread.shard;
        let own_outcomes = batch.plans.iter().zip(&batch.outcomes).filter(is_own);
        let has_promise = { own_outcomes }.any(|(_, outcome)| is_promise(outcome, retry.is_some()));
        let waits = thread.durable < batch.group && self.bug != Some(Bug::ReplyBeforeFlush);
        if has_promise && waits {
            batch.journal = Waits::Yes;
        }
        if let Some(running) = self.running(node) {
            running.batches.insert(id, batch);
        }
        for (shard, rows) in sends {
            self.ask_other(node, thread, shard, rows);
        }
        self.later(node, thread.shard, deadline - self.now, Task::Deadline(id));
        self.try_finish(node, thread, id)
    }

    fn ask_other(&mut self, node: usize, thread: &mut Thread, shard: u16, rows: PeerRows) {
        if self.cluster.home(shard) == node {
            let hop = self.chance.between(5, 60);
            self.later(node, shard, hop, Task::Rows(rows));
        } else {
            self.link_take(node, thread, shard, rows);
        }
    }

    /// Whether nobody waits for an answer any more.
    pub(crate) fn is_closed(&mut self, node: usize, reply: Reply) -> bool {
        let Some(running) = self.running(node) else { return true };
        match reply {
            Reply::Batch { batch, remote } => {
                let batch = running.batches.get(&batch);
                let remote = batch.and_then(|batch| batch.remote.get(remote));
                remote.is_none_or(|remote| !remote.is_open)
            }
            Reply::Handler(id) => !running.handlers.contains_key(&id),
            Reply::Call { .. } => false,
        }
    }

    /// Hands an answer to whoever waits; gives it back if nobody does.
    pub(crate) fn reply(
        &mut self,
        node: usize,
        reply: Reply,
        answer: PeerAnswer,
    ) -> Result<(), PeerAnswer> {
        if self.is_closed(node, reply) {
            return Err(answer);
        }
        match reply {
            Reply::Batch { batch: id, remote } => {
                let batch = self.running(node).and_then(|running| running.batches.get_mut(&id));
                let Some(batch) = batch else { return Err(answer) };
                let thread = batch.thread;
                batch.remote[remote].arrived = Some(answer);
                batch.remote[remote].is_open = false;
                self.later(node, thread, 5, Task::Wake(id));
                Ok(())
            }
            Reply::Handler(id) => {
                self.handler_answers(node, id, &answer);
                Ok(())
            }
            Reply::Call { .. } => Ok(()),
        }
    }

    /// Lets the batch go if nothing is missing.
    pub(crate) fn try_finish(&mut self, node: usize, thread: &mut Thread, id: u64) -> Judged {
        let mix = self.bug == Some(Bug::RowsMixed);
        let Some(batch) = self.running(node).and_then(|r| r.batches.get_mut(&id)) else {
            return Ok(());
        };
        batch.take_arrived(mix);
        if batch.journal == Waits::Yes {
            match thread.refusal {
                _ if thread.durable >= batch.group => batch.journal = Waits::No,
                Some(why) => batch.journal = Waits::Refused(why),
                None => return Ok(()),
            }
        }
        if batch.redirect == Redirect::Learning || batch.remote.iter().any(|r| r.is_open) {
            return Ok(());
        }
        if batch.redirect == Redirect::NotYet
            && let Some(refused) = batch.first_moved()
        {
            batch.redirect = Redirect::Over;
            if !self.ask_again(node, thread, id)
                && self.learn_owners(node, thread, refused, id)
                && let Some(batch) = self.running(node).and_then(|r| r.batches.get_mut(&id))
            {
                batch.redirect = Redirect::Learning;
            }
            return self.try_finish(node, thread, id);
        }
        self.leave(node, thread, id)
    }

    /// Who owns what has been learnt, or cannot be: rows that were refused are asked for again.
    pub(crate) fn has_learnt(&mut self, node: usize, thread: &mut Thread, id: u64) -> Judged {
        let Some(batch) = self.running(node).and_then(|r| r.batches.get_mut(&id)) else {
            return Ok(());
        };
        batch.redirect = Redirect::Over;
        self.ask_again(node, thread, id);
        self.try_finish(node, thread, id)
    }

    /// Asks the owners that the directory has now for rows that were refused as moved; `false` if
    /// they are those that were asked.
    fn ask_again(&mut self, node: usize, thread: &mut Thread, id: u64) -> bool {
        let asked = self.clients.rows(id);
        let retry = self.clients.digest(id, self.bug);
        let Some(batch) = self.running(node).and_then(|r| r.batches.get_mut(&id)) else {
            return false;
        };
        let mut by_shard: BTreeMap<u16, Vec<PeerRow>> = BTreeMap::new();
        let rows = (0..).zip(&asked).zip(&mut batch.plans).zip(&batch.outcomes);
        for (((row, asked), plan), outcome) in rows {
            let Some(entry) = thread.directory.lookup(PoolId(asked.pool)) else { continue };
            let newest = (entry.shard(), entry.index());
            if *outcome == Outcome::Refused(Refusal::Moved) && *plan != newest {
                *plan = newest;
                by_shard.entry(newest.0).or_default().push(peer_row(newest.1, row, asked));
            }
        }
        let mut sends = Vec::new();
        for (shard, rows) in by_shard {
            let reply = Reply::Batch { batch: id, remote: batch.remote.len() };
            let numbers = rows.iter().map(|row| row.row).collect();
            batch.remote.push(Remote::new(shard, numbers));
            let deadline = batch.deadline;
            sends.push((shard, PeerRows { batch: id, rows, retry, deadline, reply }));
        }
        let is_any = !sends.is_empty();
        for (shard, rows) in sends {
            self.ask_other(node, thread, shard, rows);
        }
        is_any
    }

    pub(crate) fn batch_is_due(&mut self, node: usize, thread: &mut Thread, id: u64) -> Judged {
        let mix = self.bug == Some(Bug::RowsMixed);
        let Some(batch) = self.running(node).and_then(|r| r.batches.get_mut(&id)) else {
            return Ok(());
        };
        batch.take_arrived(mix);
        batch.remote.iter_mut().for_each(|remote| remote.is_open = false);
        if batch.journal == Waits::Yes {
            batch.journal = Waits::Refused(Refusal::Late);
        }
        self.leave(node, thread, id)
    }

    /// The answer leaves: the numbers are the client's now.
    fn leave(&mut self, node: usize, thread: &mut Thread, id: u64) -> Judged {
        let Some(mut batch) = self.running(node).and_then(|r| r.batches.remove(&id)) else {
            return Ok(());
        };
        if let Waits::Refused(why) = batch.journal {
            let unseen = batch.give_up(thread.shard, why);
            self.withdraw(node, thread, &unseen);
        }
        let is_late = self.now > batch.deadline + LATE_MAX_US;
        if is_late && self.bug != Some(Bug::ReadyBeatsDeadline) {
            self.release_all(node, thread, &mut batch);
            batch.give_up_all();
        }
        let late = self.now.saturating_sub(batch.deadline + LATE_MAX_US + self.lag);
        Model::answered_late(id, thread.shard, late)?;
        let retry = self.clients.retry(id);
        for (row, outcome) in (0..).zip(&batch.outcomes) {
            let told = match *outcome {
                Outcome::Allocated { number } | Outcome::Kept { number } => {
                    Told::Number(number.to_code())
                }
                Outcome::Exhausted { .. } => Told::Exhausted,
                Outcome::Refused(why) => Told::Refused(name(why)),
            };
            let pool = self.clients.rows(id)[usize::from(row)].pool;
            let retry = retry.map(|first| (first, row));
            if let Told::Number(number) = told {
                let of = id;
                self.tell(node, &[number], || format!("batch {of} row {row} leaves with {number}"));
                self.hash = crate::random::mix(self.hash ^ number);
            }
            let (deadline_us, now_us) = (batch.deadline + LATE_MAX_US, self.now);
            let row = Row { batch: id, row, retry, pool, told, deadline_us, now_us };
            self.model.answered(&row)?;
        }
        self.answer_arrives(id, &batch.allocations());
        if self.bug == Some(Bug::ReleaseAnswered) && self.clients.aborts(id) {
            self.release_all(node, thread, &mut batch);
        }
        Ok(())
    }

    /// The client has gone.
    pub(crate) fn abort(&mut self, node: usize, thread: &mut Thread, id: u64) {
        let Some(mut batch) = self.running(node).and_then(|r| r.batches.remove(&id)) else {
            return;
        };
        self.clients.unsent(id);
        self.release_all(node, thread, &mut batch);
    }

    /// Takes back every number that was handed out for this batch.
    fn release_all(&mut self, node: usize, thread: &mut Thread, batch: &mut InFlight) {
        batch.take_arrived(false);
        for remote in &batch.remote {
            let Some(at) = remote.answered_at else { continue };
            let outcomes = remote.rows.iter().map(|row| batch.outcomes[usize::from(*row)]);
            let numbers = unanswered(&PeerAnswer { at, outcomes: outcomes.collect() });
            if self.cluster.home(remote.shard) == node {
                self.later(node, remote.shard, 20, Task::Unanswered(numbers));
            } else {
                self.give_back(node, remote.shard, &numbers);
            }
        }
        let own = batch.plans.iter().zip(&batch.outcomes);
        let own = own.filter(|(plan, _)| plan.0 == thread.shard).map(|(_, outcome)| *outcome);
        let own = unanswered(&PeerAnswer { at: batch.now, outcomes: own.collect() });
        self.withdraw(node, thread, &own);
    }
}

impl Remote {
    fn new(shard: u16, rows: Vec<u16>) -> Self {
        Self { shard, rows, answered_at: None, arrived: None, is_open: true }
    }
}

/// A row as its owner is asked for it.
fn peer_row(pool: u32, row: u16, asked: &RowAsk) -> PeerRow {
    let params = asked.params.clone().into_bytes();
    let visitor = asked.visitor.map(|visitor| VisitorId(key(visitor)));
    PeerRow { pool, id: PoolId(asked.pool), row, params, visitor }
}

impl InFlight {
    /// The shard that a row was asked of which does not own its pool.
    fn first_moved(&self) -> Option<u16> {
        let mut rows = self.plans.iter().zip(&self.outcomes);
        let moved = Outcome::Refused(Refusal::Moved);
        rows.find(|(_, outcome)| **outcome == moved).map(|(plan, _)| plan.0)
    }

    fn take_arrived(&mut self, mix: bool) {
        for remote in &mut self.remote {
            let Some(answer) = remote.arrived.take() else { continue };
            remote.answered_at = Some(answer.at);
            let mut outcomes = answer.outcomes;
            if mix {
                outcomes.reverse();
            }
            for (row, outcome) in remote.rows.iter().zip(outcomes) {
                self.outcomes[usize::from(*row)] = outcome;
            }
        }
    }

    /// Numbers that were handed out now, when, and by which shard.
    fn allocations(&self) -> Vec<(u64, u64, u16)> {
        let own = (0..).zip(&self.plans).filter(|(_, plan)| plan.0 == self.thread);
        let own = own.map(|(row, _)| (row, Some(self.now), self.thread));
        let remote = self.remote.iter().flat_map(|remote| {
            remote.rows.iter().map(|row| (*row, remote.answered_at, remote.shard))
        });
        let all = own.chain(remote).filter_map(|(row, at, shard)| {
            let Outcome::Allocated { number } = self.outcomes[usize::from(row)] else {
                return None;
            };
            Some((number.to_code(), at?.0, shard))
        });
        all.collect()
    }

    /// The answer leaves too late for any number.
    fn give_up_all(&mut self) {
        for outcome in &mut self.outcomes {
            if matches!(outcome, Outcome::Allocated { .. } | Outcome::Kept { .. }) {
                *outcome = Outcome::Refused(Refusal::Late);
            }
        }
    }

    /// The journal did not take this shard's rows: they become overflow.
    fn give_up(&mut self, own: u16, why: Refusal) -> Vec<(PromoNumber, Millis)> {
        let mut unseen = Vec::new();
        let now = self.now;
        for (plan, outcome) in self.plans.iter().zip(&mut self.outcomes) {
            if plan.0 != own {
                continue;
            }
            if let Outcome::Allocated { number } = *outcome {
                unseen.push((number, now));
            }
            if matches!(outcome, Outcome::Allocated { .. } | Outcome::Kept { .. }) {
                *outcome = Outcome::Refused(why);
            }
        }
        unseen
    }
}

fn name(why: Refusal) -> &'static str {
    match why {
        Refusal::JournalFull => "journal full",
        Refusal::JournalFailed => "journal failed",
        Refusal::JournalWaits => "journal waits",
        Refusal::Late => "late",
        Refusal::Busy => "busy",
        Refusal::Paced => "paced",
        Refusal::Unreachable => "unreachable",
        Refusal::Moved => "moved",
    }
}
