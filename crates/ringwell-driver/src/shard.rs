//! One shard: the engine, and all the work around it on the shard's thread.
//!
//! Everything here is single-threaded. `RefCell`s are borrowed for a few lines, and never across an
//! `await`.

use std::any::Any;
use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringwell_config::Replicated;
use ringwell_core::{Millis, NumberRange, PoolId, Slot};
use ringwell_directory::Directory;
use ringwell_engine::{Ask, Clocks, Engine, Outcome, Refusal, RowKey};
use ringwell_journal::Group;
use tokio::sync::{Notify, oneshot, watch};

use crate::batch::Job;
use crate::canary::{Bug, planted};
use crate::clock::Clock;
use crate::commit::Commit;
use crate::message::{Message, PeerAnswer, PeerRow, PeerRows, Unanswered};
use crate::node::{JournalState, Node};
use crate::platform::{Moment, Platform};
use crate::queue::Peers;
use crate::rows::is_promise;
use crate::stats::Stats;
use crate::watch::{Served, Watch};

/// The maximum number of unused memory blocks that a shard keeps for later batches. Usually, fewer
/// batches than this are in flight at once.
const JOBS_KEPT_MAX: usize = 1024;

/// The minimum interval between two requests for the buckets' owners. These requests are sent to a
/// node that refuses rows as moved.
const LEARN_EVERY: Duration = Duration::from_millis(20);

/// With `durability = "memory"`, a group is sealed when it reaches this size.
const MEMORY_GROUP_BYTES: usize = 256 * 1024;

/// A source of ring pools that are missing from the directory.
pub trait PoolSource: fmt::Debug {
    /// Requests `pool`. The sender of the returned receiver is dropped once there is an answer. If
    /// the pool exists, it is in the directory by then. Returns `None` if no answer can be expected
    /// now.
    fn ask(&self, pool: PoolId) -> Option<watch::Receiver<()>>;
}

/// The state that the tasks of a shard share.
#[derive(Debug)]
pub struct Shard<P> {
    /// The shard's index in the cluster or, without a cluster, in the process.
    pub id: u16,
    /// The state that this shard shares with the other shards of the process.
    pub node: Arc<Node>,
    /// The machine.
    pub platform: P,
    directory: RefCell<Arc<Directory>>,
    clock: Clock,
    /// The allocation rules, and the open group.
    pub engine: RefCell<Engine>,
    /// The durable groups.
    pub commit: Commit,
    /// The queues of the other shards and this one.
    pub peers: Peers,
    /// The source of pools that are missing from the directory, if there is one.
    pub source: Option<Rc<dyn PoolSource>>,
    /// Counts.
    pub stats: Stats,
    /// Notified when records are waiting to be written.
    pub pending: Notify,
    /// Locked while a snapshot is taken, because two snapshots at the same time could use the same
    /// temporary file.
    pub snapshots: tokio::sync::Mutex<()>,
    /// Notified when a full group has been sealed and the next one accepts records.
    pub room: Notify,
    /// Notified when the shard should immediately retry storing a group that did not fit on the
    /// disk.
    pub retry: Notify,
    /// The last failure after which the shard could continue, as text.
    last_failure: RefCell<Option<String>>,
    /// The time when this shard last asked another node for the buckets' owners.
    learnt_at: Cell<Option<Moment>>,
    #[expect(clippy::vec_box, reason = "a job is removed and put back without copying it")]
    jobs: RefCell<Vec<Box<Job>>>,
    /// The count of finished answers that wait while other requests are processed.
    pub(crate) held_answers: Cell<usize>,
    /// Answers to other shards, oldest first. Each waits until its group is durable.
    promised: RefCell<VecDeque<Promised>>,
}

/// An answer that is sent to another shard once `group` is durable.
#[derive(Debug)]
struct Promised {
    group: u64,
    answer: PeerAnswer,
    reply: oneshot::Sender<PeerAnswer>,
}

impl<P: Platform> Shard<P> {
    /// Creates the state of a shard that has been opened.
    pub fn new(
        id: u16,
        node: Arc<Node>,
        platform: P,
        engine: Engine,
        clock: Clock,
        peers: Peers,
    ) -> Self {
        // With durability `memory`, no answer waits for its group to be stored.
        let durable = if node.answers_wait() { engine.group() - 1 } else { u64::MAX };
        node.use_clock(&clock);
        Self {
            id,
            directory: RefCell::new(node.directory()),
            node,
            platform,
            clock,
            engine: RefCell::new(engine),
            commit: Commit::new(durable),
            peers,
            source: None,
            stats: Stats::default(),
            pending: Notify::new(),
            snapshots: tokio::sync::Mutex::default(),
            room: Notify::new(),
            retry: Notify::new(),
            last_failure: RefCell::default(),
            learnt_at: Cell::default(),
            jobs: RefCell::default(),
            held_answers: Cell::default(),
            promised: RefCell::default(),
        }
    }

    /// Returns the directory in which rows are looked up. The reference must not be held across an
    /// `await`.
    #[inline]
    pub fn directory(&self) -> Ref<'_, Directory> {
        Ref::map(self.directory.borrow(), |directory| &**directory)
    }

    /// Makes `next` the directory in which rows are looked up.
    pub fn use_directory(&self, next: Arc<Directory>) {
        *self.directory.borrow_mut() = next;
    }

    /// Asks `shard`'s node for the buckets' owners, because that shard refused a row as not its
    /// own. The rate of these requests is limited, because that shard may simply not have received
    /// its buckets yet.
    pub(crate) async fn learn_owners(&self, shard: u16) {
        let now = self.platform.moment();
        let is_too_soon = self.learnt_at.get().is_some_and(|at| now.since(at) < LEARN_EVERY);
        if !is_too_soon && !self.node.is_own(shard) {
            self.learnt_at.set(Some(now));
            let (reply, learnt) = oneshot::channel();
            if self.peers.send(self.id, Message::LearnOwners { of: shard, reply }) {
                let _ = learnt.await;
            }
        }
    }

    pub(crate) fn take_job(&self) -> Box<Job> {
        self.jobs.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_job(&self, job: Box<Job>) {
        let mut jobs = self.jobs.borrow_mut();
        if jobs.len() < JOBS_KEPT_MAX {
            jobs.push(job);
        }
    }

    /// Notifies the writer if there are enough records for a group.
    pub fn commit_soon(&self) {
        if self.has_group() {
            self.pending.notify_one();
        }
    }

    /// Waits while the open group is full, but not past `deadline`.
    pub(crate) async fn wait_for_room(&self, deadline: Moment) {
        let is_full = || {
            let engine = self.engine.borrow();
            engine.is_full() && engine.refusal().is_none()
        };
        while is_full() {
            self.pending.notify_one();
            let sealed = self.room.notified();
            if self.platform.by(deadline, sealed).await.is_none() {
                return;
            }
        }
    }

    /// Whether enough records for a group are waiting.
    pub fn has_group(&self) -> bool {
        let enough = if self.node.answers_wait() { 1 } else { MEMORY_GROUP_BYTES };
        self.engine.borrow().pending_bytes() >= enough
    }

    /// Seals the open group with the current clock readings.
    pub fn seal(&self, spare: Vec<u8>) -> Option<Group> {
        let mut engine = self.engine.borrow_mut();
        engine.set_clocks(self.clocks());
        engine.seal(spare)
    }

    /// Serves rows of a batch that another shard received.
    pub async fn serve_peer(&self, ask: PeerRows) {
        self.wait_for_room(ask.deadline).await;
        let is_late = self.platform.moment() > ask.deadline && !planted(Bug::DeadlineIgnored);
        if is_late || ask.reply.is_closed() {
            self.stats.peer_rows_late.add(ask.rows.len() as u64);
            return;
        }
        let allocated = catch_unwind(AssertUnwindSafe(|| self.allocate_for_peer(&ask)));
        let answer = match allocated {
            Ok(answer) => answer,
            Err(panic) => {
                // Without an answer, the rows overflow at the batch's deadline.
                self.report_panic(&*panic);
                return;
            }
        };
        let group = self.engine.borrow().newest_group() - u64::from(planted(Bug::PeerGroupOff));
        let is_promise = |outcome| is_promise(outcome, ask.retry.is_some());
        let has_promise = answer.outcomes.iter().any(is_promise);
        let promised = Promised { group, answer, reply: ask.reply };
        if has_promise && self.waits_for(group) {
            self.promised.borrow_mut().push_back(promised);
        } else {
            self.deliver(promised);
        }
        self.commit_soon();
    }

    fn allocate_for_peer(&self, ask: &PeerRows) -> PeerAnswer {
        self.node.owner_fault_drill(&ask.text);
        let mut engine = self.engine.borrow_mut();
        let at = engine.at(self.clock.now(self.platform.boot_time()));
        let answer = allocate(&mut engine, at, ask);
        if let Some(watch) = self.platform.watch() {
            show(watch, self.id, &engine, ask, &answer);
        }
        answer
    }

    /// Sends an answer. If the requesting shard no longer waits, releases the numbers in the
    /// answer.
    fn deliver(&self, promised: Promised) {
        if let Err(answer) = promised.reply.send(promised.answer) {
            self.withdraw(&unanswered(&answer));
        }
    }

    /// Undoes allocations that no client has seen.
    pub fn withdraw(&self, numbers: &[Unanswered]) {
        if numbers.is_empty() {
            return;
        }
        let mut engine = self.engine.borrow_mut();
        let now = engine.at(self.clock.now(self.platform.boot_time()));
        let mut undone = 0;
        for Unanswered { number, allocated_at, .. } in numbers {
            let is_undone = if planted(Bug::UnseenCounts) {
                engine.release(now, *number, Some(*allocated_at))
            } else {
                engine.withdraw(now, *number, *allocated_at)
            };
            undone += u64::from(is_undone);
            if let Some(watch) = self.platform.watch().filter(|_| is_undone) {
                watch.withdrawn(self.id, &engine, *number, [*allocated_at, now]);
            }
        }
        drop(engine);
        self.changed();
        self.stats.unanswered.add(undone);
        self.commit_soon();
    }

    /// Reports to the observer a change to pools, holds or lockouts that was not caused by a row.
    #[inline]
    pub(crate) fn changed(&self) {
        if let Some(watch) = self.platform.watch() {
            watch.changed(self.id);
        }
    }

    /// Records that all groups up to `group` are durable.
    pub fn stored(&self, group: u64) {
        let refusal = self.engine.borrow().refusal();
        let was_held_up = matches!(refusal, Some(Refusal::JournalFull | Refusal::JournalWaits));
        let group = group + u64::from(planted(Bug::CommitTooFar));
        if was_held_up && !planted(Bug::FullForEver) {
            self.engine.borrow_mut().refuse(None);
            self.node.set_journal(self.id, JournalState::Writing);
            let what =
                if refusal == Some(Refusal::JournalFull) { "has room" } else { "stores records" };
            tracing::info!(shard = self.id, "the journal {what} again: numbers are handed out");
        }
        if self.node.config.journal.replicated.is_some() {
            self.node.set_stored(self.id, group);
        }
        self.commit.advance(group);
        while let Some(promised) = self.next_promised(group) {
            self.deliver(promised);
        }
    }

    fn next_promised(&self, group: u64) -> Option<Promised> {
        self.promised.borrow_mut().pop_front_if(|promised| promised.group <= group)
    }

    /// Refuses rows with `why`, because the journal accepts no records, and logs `reason` once.
    /// Rows overflow until [`Self::stored`] is called or, if the journal cannot continue, until a
    /// restart.
    pub(crate) fn hold_up(&self, state: JournalState, why: Refusal, reason: &str) {
        if self.engine.borrow().refusal() == Some(why) {
            return;
        }
        let what = match state {
            JournalState::Writing => "",
            JournalState::Full => {
                "the disk is full, the journal's stream is full, or no more files can be opened: \
                this shard's rows get overflow numbers until its journal stores records again"
            }
            JournalState::Failed => {
                "the journal failed: this shard's rows get overflow numbers until a restart"
            }
            JournalState::Waiting => {
                "the journal is slow to store records: this shard's rows get overflow numbers \
                 until the records are stored. Check the journal's servers: two of three must \
                 run; `ringwell doctor` shows which one does not"
            }
            JournalState::Taken => {
                "another process serves this shard: in this process, the shard's rows get \
                overflow numbers until a restart. Stop this process. If the other process was \
                started by mistake, stop that process instead, and restart this one"
            }
        };
        let journal = self.node.config.journal.replicated.as_ref();
        let servers = journal.map(Replicated::shown_servers);
        tracing::error!(shard = self.id, servers = servers.as_deref(), reason, "{what}");
        self.node.set_trouble(self.id, state, reason, self.platform.moment());
        self.refuse(why);
    }

    /// Records that nothing will be stored until a restart.
    pub fn journal_failed(&self, reason: &str) {
        self.hold_up(JournalState::Failed, Refusal::JournalFailed, reason);
    }

    /// Records a failure after which the shard can continue.
    pub(crate) fn note_failure(&self, failure: String) {
        *self.last_failure.borrow_mut() = Some(failure);
    }

    /// Returns the last failure after which the shard could continue, if there was one.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.borrow().clone()
    }

    /// Whether an answer that depends on `group` must wait, because the group is not durable yet.
    pub(crate) fn waits_for(&self, group: u64) -> bool {
        self.commit.durable() < group && !planted(Bug::ReplyBeforeFlush)
    }

    /// Whether all records are stored.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.commit.durable() >= self.engine.borrow().newest_group()
    }

    /// Makes all rows overflow, including those that are waiting, because the journal accepts no
    /// records.
    pub fn refuse(&self, why: Refusal) {
        self.engine.borrow_mut().refuse(Some(why));
        self.commit.refuse(why);
        self.room.notify_waiters();
        while let Some(mut promised) = self.next_promised(u64::MAX) {
            self.withdraw(&unanswered(&promised.answer));
            for outcome in &mut promised.answer.outcomes {
                if outcome.number().is_some() {
                    *outcome = Outcome::Refused(why);
                }
            }
            self.deliver(promised);
        }
    }

    /// Reports an internal panic. The returned handle appears in the answer and in the log.
    pub fn report_panic(&self, panic: &(dyn Any + Send)) -> u64 {
        self.stats.panics.add(1);
        // The handle is unique enough to be found in a log. It is an integer because the API
        // requires one.
        let handle =
            self.clock.now(self.platform.boot_time()).0 * 1000 + self.stats.panics.get() % 1000;
        let message = panic_text(panic);
        tracing::error!(
            shard = self.id,
            handle,
            message,
            "a request failed because of an internal error"
        );
        self.note_failure(format!("error handle {handle}: {message}"));
        handle
    }

    /// Shard time now.
    pub fn now(&self) -> Millis {
        self.engine.borrow_mut().at(self.clock.now(self.platform.boot_time()))
    }

    /// Returns the newest allocation of each number in `range` that is locked. Takes time in
    /// proportion to the length of `range`.
    pub(crate) fn locked_in(&self, range: NumberRange) -> Vec<Slot> {
        let (now, engine) = (self.now(), self.engine.borrow());
        let newest = range.iter().filter_map(|number| engine.shard().newest(number));
        newest.filter(|slot| !slot.is_free(now)).collect()
    }

    /// Returns shard time without advancing the engine, for observers.
    pub fn clock_now(&self) -> Millis {
        self.clock.now(self.platform.boot_time())
    }

    /// Returns the current readings of all clocks, including the wall clock.
    pub fn clocks(&self) -> Clocks {
        self.clock.clocks(self.platform.boot_time(), self.platform.wall())
    }
}

fn allocate(engine: &mut Engine, at: Millis, ask: &PeerRows) -> PeerAnswer {
    let mut outcomes = vec![Outcome::Refused(Refusal::Late); ask.rows.len()];
    for (row, outcome) in ask.rows.iter().zip(&mut outcomes) {
        let params = row.params.map(|span| span.of(&ask.text));
        let retry = ask.retry.filter(|_| !planted(Bug::RetryForgotten));
        let retry = retry.map(|batch| RowKey { batch, row: row.row });
        let PeerRow { pool, id, visitor, .. } = *row;
        engine.allocate(at, &Ask { pool, id, params, visitor, retry }, outcome);
    }
    PeerAnswer { at, outcomes }
}

#[cold]
fn show(watch: &dyn Watch, shard: u16, engine: &Engine, ask: &PeerRows, answer: &PeerAnswer) {
    for (row, outcome) in ask.rows.iter().zip(&answer.outcomes) {
        let served = Served {
            pool: row.id,
            row: row.row,
            params: row.params.map(|span| span.of(&ask.text)),
            visitor: row.visitor,
            is_repeatable: ask.retry.is_some(),
            deadline: ask.deadline,
            at: answer.at,
            outcome: *outcome,
        };
        watch.served(shard, engine, &served);
    }
}

/// Returns the numbers in `answer` in the form in which unseen numbers are released.
#[must_use]
pub fn unanswered(answer: &PeerAnswer) -> Vec<Unanswered> {
    let allocated_at = answer.at;
    let numbers = answer.outcomes.iter();
    let numbers = numbers.filter_map(|outcome| Unanswered::new(outcome, allocated_at));
    numbers.collect()
}

/// Returns the message of a caught panic. Callers must pass `&*caught`, because `&caught` refers to
/// the box, not to the panic's value.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
