//! The rows of one batch in progress: from the plan, through the owners, to the outcomes.
//!
//! The shard that received the batch asks the other owners first, so that they work concurrently.
//! It then serves its own rows, and waits for the journal and the other owners, but not beyond the
//! batch's deadline. Rows that are unanswered at the deadline overflow; the batch never fails as a
//! whole. Invariant: if the answer that contains an allocation is not sent, the allocation is
//! undone, unless another visitor may have seen its number since.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use ringwell_core::{Millis, PoolId};
use ringwell_directory::Directory;
use ringwell_engine::{Engine, Outcome, Refusal};
use ringwell_wire::{Ask as WireAsk, Row};
use tokio::sync::oneshot;

use super::job::{Job, Remote};
use crate::canary::{Bug, planted};
use crate::message::{Message, PeerAnswer, PeerRow, PeerRows, Unanswered};
use crate::platform::{Moment, Platform, Traced};
use crate::queue::Peers;
use crate::rows::{self, Owner, Planned, RowPlan, is_promise, visitor_id};
use crate::shard::Shard;
use crate::watch::{Served, Watch};

/// A batch that waits for unknown pools keeps 1/`LEFT_FOR_OTHERS` of its remaining time in reserve.
/// During the reserved time, the rows whose pools have arrived are sent to the owners, and the
/// batch is answered.
const LEFT_FOR_OTHERS: u32 = 8;

/// A batch that is being answered. If dropped before [`InFlight::answered`] is called, it releases
/// its numbers.
pub(super) struct InFlight<P: Platform> {
    shard: Rc<Shard<P>>,
    /// Boxed, so that moving it is cheap.
    job: Option<Box<Job>>,
    /// The time when this shard served its rows.
    now: Millis,
    is_answered: bool,
}

/// The terms under which a batch is answered.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The digest of a repeatable batch; see [`rows::batch_digest`].
    pub retry: Option<[u8; 16]>,
    /// The deadline; rows that miss it overflow.
    pub deadline: Moment,
    /// The trace that requests to other nodes belong to.
    pub traced: Option<Traced>,
}

impl<P: Platform> InFlight<P> {
    pub(super) fn new(shard: &Rc<Shard<P>>) -> Self {
        let job = shard.take_job();
        let shard = Rc::clone(shard);
        Self { shard, job: Some(job), now: Millis::ZERO, is_answered: false }
    }

    /// The rows. The job is present from `new` until `drop`.
    #[expect(clippy::expect_used, reason = "the job is present until `drop`")]
    pub(super) fn job(&mut self) -> &mut Job {
        self.job.as_mut().expect("a batch in flight has a job")
    }

    /// Sends the other owners their rows, and serves this shard's rows.
    pub(super) fn start(&mut self, terms: &Terms) {
        let shard = Rc::clone(&self.shard);
        let job = self.job();
        job.outcomes.resize(job.plans.len(), Outcome::Refused(Refusal::Late));
        if P::STARTS_LATE && shard.platform.moment() > terms.deadline {
            return;
        }
        if shard.peers.are_several() {
            let shards = shard.directory().shards();
            job.ask_others(&shard.peers, shard.id, shards, terms);
        }
        // Set before any number is handed out. If serving fails, the numbers are released with this
        // allocation time.
        self.now = shard.now();
        let now = self.now;
        self.job().serve_own(&mut shard.engine.borrow_mut(), shard.id, now, terms);
        if let Some(watch) = shard.platform.watch() {
            self.job().show_own(watch, &shard.engine.borrow(), shard.id, now, terms);
        }
        shard.commit_soon();
    }

    /// Waits until all rows are answered and durable or the deadline has passed. Returns whether it
    /// had to wait. If the deadline is missed by more than [`rows::LATE_MAX`], all rows overflow.
    /// Without this check, an answer that is ready when it is polled would count as in time,
    /// however late the poll is.
    pub(super) async fn finish(&mut self, terms: &Terms) -> bool {
        let has_waited = self.wait(terms).await;
        let is_late = self.shard.platform.moment() > terms.deadline + rows::LATE_MAX;
        if is_late && !planted(Bug::ReadyBeatsDeadline) {
            self.give_up_all();
        }
        has_waited
    }

    async fn wait(&mut self, terms: &Terms) -> bool {
        let shard = Rc::clone(&self.shard);
        let group = shard.engine.borrow().newest_group();
        let waits_for_journal = self.has_own_promise(terms) && shard.waits_for(group);
        let has_unknown = !self.job().unknown.is_empty();
        let has_others = !self.job().remote.is_empty() || self.job().has_moved;
        if !waits_for_journal && !has_others && !has_unknown {
            return false;
        }
        let mut journal = if waits_for_journal { Err(Refusal::Late) } else { Ok(()) };
        let stored = async {
            if waits_for_journal {
                journal = shard.commit.wait(group).await;
            }
        };
        let in_time = if has_others || has_unknown {
            // Boxed, because otherwise every connection, even an idle one, would reserve the memory
            // for this future.
            let gathered = shard.platform.by(terms.deadline, async {
                stored.await;
                if has_unknown {
                    self.learn_unknown(terms).await;
                }
                self.collect().await;
                self.redirect(terms).await;
            });
            Box::pin(gathered).await
        } else {
            shard.platform.by(terms.deadline, stored).await
        };
        if in_time.is_none() {
            shard.stats.deadlines_missed.add(1);
            self.job().take_arrived();
        }
        if let Err(refusal) = journal {
            self.give_up_own(refusal);
        }
        true
    }

    /// The time when this shard served its rows.
    pub(super) fn served_at(&self) -> Millis {
        self.now
    }

    /// Must be called just before the answer is sent: the numbers then belong to the clients.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }

    fn has_own_promise(&mut self, terms: &Terms) -> bool {
        self.job().outcomes.iter().any(|outcome| is_promise(outcome, terms.retry.is_some()))
    }

    /// Processes the other owners' answers.
    async fn collect(&mut self) {
        let job = self.job();
        for remote in &mut job.remote {
            let Some(reply) = remote.reply.as_mut() else { continue };
            let answer = reply.await;
            remote.reply = None;
            if let Ok(answer) = answer {
                remote.take(answer, &mut job.outcomes);
            }
        }
    }

    /// Asks the shard's source for the pools that are missing from the directory. If the source
    /// finds a pool, the pool's rows are then sent to its owner.
    async fn learn_unknown(&mut self, terms: &Terms) {
        let shard = Rc::clone(&self.shard);
        let Some(source) = &shard.source else { return };
        let mut pools: Vec<PoolId> = self.job().unknown_pools().collect();
        pools.sort_unstable();
        pools.dedup();
        let answers = pools.into_iter().filter_map(|pool| source.ask(pool));
        let answers = answers.collect::<Vec<_>>();
        let arrived = async {
            for mut answer in answers {
                // Each wait ends when the sender is dropped; the sender never sends a value.
                while answer.changed().await.is_ok() {}
            }
        };
        // The other rows must not become late only because some pools do not arrive.
        let left = terms.deadline.since(shard.platform.moment());
        let _ = shard.platform.by(terms.deadline - left / LEFT_FOR_OTHERS, arrived).await;
        self.job().ask_unknown(&shard.directory(), &shard.peers, terms);
    }

    /// Sends the rows of moved pools again, to the pools' owners according to the newest map.
    async fn redirect(&mut self, terms: &Terms) {
        let Some(refused) = self.job().first_moved() else { return };
        let shard = Rc::clone(&self.shard);
        if !self.job().ask_again(&shard.directory(), &shard.peers, terms) {
            shard.learn_owners(refused).await;
            self.job().ask_again(&shard.directory(), &shard.peers, terms);
        }
        self.collect().await;
    }

    /// Makes this shard's rows overflow, because the journal did not accept their records in time.
    fn give_up_own(&mut self, refusal: Refusal) {
        let shard = Rc::clone(&self.shard);
        let allocated_at = self.now;
        let unanswered = self.job().refuse_own(shard.id, refusal, allocated_at);
        shard.withdraw(&unanswered);
    }

    /// Makes all rows overflow. Used if this thread was delayed and the answer would be late: by
    /// then, a short lockout may be over.
    fn give_up_all(&mut self) {
        self.release_all();
        self.job().refuse_all(Refusal::Late);
    }

    /// Releases every number that was handed out for this batch.
    fn release_all(&mut self) {
        let shard = Rc::clone(&self.shard);
        if planted(Bug::HoldUnanswered) {
            return;
        }
        let (now, own) = (self.now, shard.id);
        let own = self.job().release(&shard.peers, own, now);
        shard.withdraw(&own);
    }
}

impl Remote {
    fn take(&mut self, answer: PeerAnswer, outcomes: &mut [Outcome]) {
        self.answered_at = Some(answer.at);
        if planted(Bug::RowsMixed) {
            self.rows.reverse();
        }
        for (row, outcome) in self.rows.iter().zip(answer.outcomes) {
            outcomes[usize::from(*row)] = outcome;
        }
    }
}

// Not generic over the platform, so that loops over rows are compiled only once.
impl Job {
    /// Returns the time at which a row's number was handed out, according to the owner's clock, or
    /// `None` if no owner answered. `own` is this shard, which served its rows at `now`.
    pub(super) fn allocated_at(&self, row: usize, own: u16, now: Millis) -> Option<Millis> {
        match self.plans[row] {
            RowPlan::Fail(_) => None,
            RowPlan::Allocate(owner) => {
                let of = |remote: &&Remote| remote.rows.iter().any(|of| usize::from(*of) == row);
                // A row that was refused as moved was sent again, possibly to this shard.
                match self.remote.iter().rfind(of) {
                    Some(remote) => remote.answered_at,
                    None => (owner.shard == own).then_some(now),
                }
            }
        }
    }

    /// Refuses the rows that got numbers from `own` at `now`, and returns these numbers.
    fn refuse_own(&mut self, own: u16, why: Refusal, now: Millis) -> Vec<Unanswered> {
        let mut numbers = Vec::new();
        for outcome in self.outcomes_of(own).filter(|outcome| outcome.number().is_some()) {
            numbers.extend(Unanswered::new(outcome, now));
            *outcome = Outcome::Refused(why);
        }
        numbers
    }

    fn refuse_all(&mut self, why: Refusal) {
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.number().is_some()) {
            *outcome = Outcome::Refused(why);
        }
    }

    /// Makes the other owners release this batch's numbers, and returns the numbers that `own`
    /// handed out at `now`.
    fn release(&mut self, peers: &Peers, own: u16, now: Millis) -> Vec<Unanswered> {
        self.take_arrived();
        for remote in &self.remote {
            let Some(allocated_at) = remote.answered_at else { continue };
            let outcomes = remote.rows.iter().map(|row| &self.outcomes[usize::from(*row)]);
            let numbers = outcomes.filter_map(|outcome| Unanswered::new(outcome, allocated_at));
            // If the owner's queue is full, the numbers stay locked until their lockouts end.
            let _ = peers.send(remote.shard, Message::Unanswered(numbers.collect()));
        }
        self.outcomes_of(own).filter_map(|outcome| Unanswered::new(outcome, now)).collect()
    }

    /// Processes the answers that have arrived but have not been read. An owner whose answer was
    /// delivered does not release the numbers itself.
    fn take_arrived(&mut self) {
        for remote in &mut self.remote {
            let Some(mut reply) = remote.reply.take() else { continue };
            // From now on, sending an answer fails, and the sender releases the numbers.
            reply.close();
            if let Ok(answer) = reply.try_recv() {
                remote.take(answer, &mut self.outcomes);
            }
        }
    }

    /// The outcomes of a shard's rows.
    fn outcomes_of(&mut self, shard: u16) -> impl Iterator<Item = &mut Outcome> {
        let rows = self.plans.iter().zip(&mut self.outcomes);
        rows.filter_map(move |(plan, outcome)| match plan {
            RowPlan::Fail(_) => None,
            RowPlan::Allocate(owner) => (owner.shard == shard).then_some(outcome),
        })
    }

    /// Records which rows name pools that are missing from `directory`.
    pub(super) fn find_unknown(&mut self, directory: &Directory) {
        let rows = (0..).zip(self.batch.rows());
        let is_unknown =
            |row: &Row| row.ask.as_ref().is_ok_and(|ask| directory.lookup(ask.pool).is_none());
        self.unknown.extend(rows.filter(|(_, row)| is_unknown(row)).map(|(row, _)| row));
    }

    fn unknown_pools(&self) -> impl Iterator<Item = PoolId> {
        let rows = self.unknown.iter().map(|row| &self.batch.rows()[usize::from(*row)]);
        rows.filter_map(|row| row.ask.as_ref().ok().map(|ask| ask.pool))
    }

    /// Looks up the unknown pools again. If a pool is found, its rows are sent to its owner.
    fn ask_unknown(&mut self, directory: &Directory, peers: &Peers, terms: &Terms) {
        let text = self.batch.text().clone();
        let mut by_shard: BTreeMap<u16, Vec<PeerRow>> = BTreeMap::new();
        for row in std::mem::take(&mut self.unknown) {
            let place = usize::from(row);
            let asked = &self.batch.rows()[place];
            let plan = rows::plan(directory, &text, asked);
            if let (RowPlan::Allocate(owner), Ok(ask)) = (plan, &asked.ask) {
                by_shard.entry(owner.shard).or_default().push(peer_row(row, &owner, ask, &text));
            }
            self.plans[place] = plan;
        }
        self.send_all(peers, by_shard, &text, terms);
    }

    /// Returns the rows that need a number: each with its index, its owner, its request and its
    /// outcome.
    fn wanted(&self) -> impl Iterator<Item = (u16, &Owner, &WireAsk, &Outcome)> {
        let rows = (0..).zip(self.batch.rows()).zip(&self.plans).zip(&self.outcomes);
        rows.filter_map(|(((row, asked), plan), outcome)| match (plan, &asked.ask) {
            (RowPlan::Allocate(owner), Ok(ask)) => Some((row, owner, ask, outcome)),
            _ => None,
        })
    }

    /// Returns a shard that was asked to serve a row but does not own the row's pool, if there is
    /// one.
    fn first_moved(&self) -> Option<u16> {
        let is_moved = |outcome: &Outcome| *outcome == Outcome::Refused(Refusal::Moved);
        self.wanted().find(|(.., outcome)| is_moved(outcome)).map(|(_, owner, ..)| owner.shard)
    }

    /// If rows were refused as moved, sends them to their current owners. Returns `false` if no row
    /// has a new owner.
    fn ask_again(&mut self, directory: &Directory, peers: &Peers, terms: &Terms) -> bool {
        let mut by_shard: BTreeMap<u16, Vec<PeerRow>> = BTreeMap::new();
        let rows = (0..).zip(self.batch.rows()).zip(&mut self.plans).zip(&self.outcomes);
        for (((row, asked), plan), outcome) in rows {
            let (RowPlan::Allocate(owner), Ok(ask)) = (plan, &asked.ask) else { continue };
            let Some(entry) = directory.lookup(ask.pool) else { continue };
            let is_moved = *outcome == Outcome::Refused(Refusal::Moved);
            if !is_moved || (owner.shard, owner.index) == (entry.shard(), entry.index()) {
                continue;
            }
            (owner.shard, owner.index) = (entry.shard(), entry.index());
            let asked = peer_row(row, owner, ask, self.batch.text());
            by_shard.entry(owner.shard).or_default().push(asked);
        }
        let text = self.batch.text().clone();
        let is_any = !by_shard.is_empty();
        let retry = terms.retry.filter(|_| !planted(Bug::RedirectForgetsRetry));
        self.send_all(peers, by_shard, &text, &Terms { retry, ..*terms });
        is_any
    }

    fn send_all(
        &mut self,
        peers: &Peers,
        by_shard: BTreeMap<u16, Vec<PeerRow>>,
        text: &Bytes,
        terms: &Terms,
    ) {
        for (shard, rows) in by_shard {
            self.send(peers, shard, rows, text, terms);
        }
    }

    /// Sends another owner its rows. If the owner's queue is full, these rows overflow as busy.
    fn send(&mut self, peers: &Peers, shard: u16, rows: Vec<PeerRow>, text: &Bytes, terms: &Terms) {
        let numbers: Vec<u16> = rows.iter().map(|row| row.row).collect();
        let (reply, receiver) = oneshot::channel();
        let Terms { retry, deadline, traced } = *terms;
        let message = PeerRows { text: text.clone(), rows, retry, deadline, traced, reply };
        if peers.send(shard, Message::Rows(message)) {
            let (answered_at, reply) = (None, Some(receiver));
            self.remote.push(Remote { shard, rows: numbers, answered_at, reply });
        } else {
            for row in numbers {
                self.outcomes[usize::from(row)] = Outcome::Refused(Refusal::Busy);
            }
        }
    }

    /// Sends each other owner its rows; `shards` is the total number of shards.
    fn ask_others(&mut self, peers: &Peers, own: u16, shards: u16, terms: &Terms) {
        let text = &self.batch.text().clone();
        let mut by_shard: Vec<Vec<PeerRow>> = Vec::new();
        by_shard.resize_with(usize::from(shards), Vec::new);
        for (row, owner, ask, _) in self.wanted().filter(|(_, owner, ..)| owner.shard != own) {
            if let Some(rows) = by_shard.get_mut(usize::from(owner.shard)) {
                rows.push(peer_row(row, owner, ask, text));
            }
        }
        for (shard, rows) in (0..).zip(by_shard).filter(|(_, rows)| !rows.is_empty()) {
            self.send(peers, shard, rows, text, terms);
        }
    }

    /// Serves this shard's rows.
    fn serve_own(&mut self, engine: &mut Engine, own: u16, now: Millis, terms: &Terms) {
        let Self { batch, plans, outcomes, .. } = self;
        let planned = Planned { text: batch.text(), rows: batch.rows(), plans, retry: terms.retry };
        let moved = engine.counts().moved;
        rows::serve(engine, own, now, &planned, outcomes);
        self.has_moved = engine.counts().moved > moved;
        engine.end_batch();
    }

    /// Passes this shard's row outcomes to `watch`.
    fn show_own(&self, watch: &dyn Watch, engine: &Engine, own: u16, at: Millis, terms: &Terms) {
        let text = self.batch.text();
        for (row, _, ask, outcome) in self.wanted().filter(|(_, owner, ..)| owner.shard == own) {
            let served = Served {
                pool: ask.pool,
                row,
                params: ask.params.map(|span| span.of(text)),
                visitor: ask.visitor.map(|span| visitor_id(span.of(text))),
                is_repeatable: terms.retry.is_some(),
                deadline: terms.deadline,
                at,
                outcome: *outcome,
            };
            watch.served(own, engine, &served);
        }
    }

    /// Clears the batch but keeps its memory.
    fn clear(&mut self) {
        self.batch.clear();
        self.plans.clear();
        self.outcomes.clear();
        self.remote.clear();
        self.unknown.clear();
        self.has_moved = false;
    }
}

impl<P: Platform> Drop for InFlight<P> {
    fn drop(&mut self) {
        if !self.is_answered || planted(Bug::ReleaseAnswered) {
            self.release_all();
        }
        if let Some(mut job) = self.job.take() {
            job.clear();
            self.shard.give_job(job);
        }
    }
}

/// Converts a row to the form in which it is sent to its owner.
fn peer_row(row: u16, owner: &Owner, ask: &WireAsk, text: &[u8]) -> PeerRow {
    let visitor = ask.visitor.map(|span| visitor_id(span.of(text)));
    PeerRow { pool: owner.index, id: ask.pool, row, params: ask.params, visitor }
}
