//! One shard's thread: the engine and all that is done around it on that thread.
//!
//! Everything here is single-threaded; `RefCell`s are borrowed for a few lines and never across
//! an `await`.

use std::any::Any;
use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_engine::{Ask, Engine, Outcome, Refusal, RowKey};
use ringwell_journal::Group;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::commit::Commit;
use crate::conn::Connections;
use crate::gather::Job;
use crate::handover;
use crate::link::Link;
use crate::mesh::{PeerAnswer, PeerRow, PeerRows, Peers, Unanswered};
use crate::node::{JournalState, Node};
use crate::rows::is_promise;
use crate::stats::Stats;

/// Idle room for batches that a shard keeps; more than are ever in flight at once on most days.
const JOBS_KEPT_MAX: usize = 1024;

/// Whoever refuses rows as moved is asked for its map this often at most.
const LEARN_EVERY: Duration = Duration::from_millis(20);

/// With `durability = "memory"` groups are sealed when they have this size.
const MEMORY_GROUP_BYTES: usize = 256 * 1024;

/// What the tasks of a shard's thread share.
#[derive(Debug)]
pub(crate) struct ShardThread {
    pub(crate) id: u16,
    pub(crate) node: Arc<Node>,
    directory: RefCell<Arc<Directory>>,
    pub(crate) clock: Clock,
    pub(crate) engine: RefCell<Engine>,
    pub(crate) commit: Commit,
    pub(crate) peers: Peers,
    /// To the shards of other nodes.
    pub(crate) links: Vec<Rc<Link>>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) stats: Stats,
    /// Told when records wait to be written.
    pub(crate) pending: Notify,
    /// Held while a snapshot is taken: two at once would share a file.
    pub(crate) snapshots: tokio::sync::Mutex<()>,
    /// Told when a full group has been sealed and another gathers.
    pub(crate) room: Notify,
    /// When another node was asked last who owns what.
    learnt_at: Cell<Option<Instant>>,
    jobs: RefCell<Vec<Job>>,
    /// Answers to other shards that wait for a group, oldest first.
    promised: RefCell<VecDeque<Promised>>,
}

/// An answer to another shard that waits for a group to be durable.
#[derive(Debug)]
struct Promised {
    group: u64,
    answer: PeerAnswer,
    reply: oneshot::Sender<PeerAnswer>,
}

impl ShardThread {
    pub(crate) fn new(
        id: u16,
        node: Arc<Node>,
        engine: Engine,
        clock: Clock,
        peers: Peers,
        links: Vec<Rc<Link>>,
    ) -> Self {
        // With durability "memory" nothing is waited for.
        let durable = if node.answers_wait() { engine.group() - 1 } else { u64::MAX };
        Self {
            id,
            directory: RefCell::new(node.directory()),
            node,
            clock,
            engine: RefCell::new(engine),
            commit: Commit::new(durable),
            peers,
            links,
            connections: Rc::default(),
            stats: Stats::default(),
            pending: Notify::new(),
            snapshots: tokio::sync::Mutex::default(),
            room: Notify::new(),
            learnt_at: Cell::default(),
            jobs: RefCell::default(),
            promised: RefCell::default(),
        }
    }

    /// The state of the directory that rows are looked up in. Not to be held across an `await`.
    #[inline]
    pub(crate) fn directory(&self) -> Ref<'_, Directory> {
        Ref::map(self.directory.borrow(), |directory| &**directory)
    }

    pub(crate) fn use_directory(&self, next: Arc<Directory>) {
        *self.directory.borrow_mut() = next;
    }

    /// Asks the node of `shard`, which does not own what it was asked for, who does. Not more often
    /// than makes sense: it may just not have taken yet what is on its way to it.
    pub(crate) async fn learn_owners(&self, shard: u16) {
        let is_too_soon = self.learnt_at.get().is_some_and(|at| at.elapsed() < LEARN_EVERY);
        if !is_too_soon && !self.node.is_own(shard) {
            self.learnt_at.set(Some(Instant::now()));
            handover::learn_from(&self.node, &self.peers, shard).await;
        }
    }

    pub(crate) fn take_job(&self) -> Job {
        self.jobs.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_job(&self, job: Job) {
        let mut jobs = self.jobs.borrow_mut();
        if jobs.len() < JOBS_KEPT_MAX {
            jobs.push(job);
        }
    }

    /// Has what the engine has written since brought to the disk.
    pub(crate) fn commit_soon(&self) {
        if self.has_group() {
            self.pending.notify_one();
        }
    }

    /// Waits while the group that gathers is full, at most until `deadline`.
    pub(crate) async fn wait_for_room(&self, deadline: Instant) {
        let is_full = || {
            let engine = self.engine.borrow();
            engine.is_full() && engine.refusal().is_none()
        };
        while is_full() {
            self.pending.notify_one();
            let sealed = self.room.notified();
            if tokio::time::timeout_at(deadline.into(), sealed).await.is_err() {
                return;
            }
        }
    }

    /// Whether there is enough for a group.
    pub(crate) fn has_group(&self) -> bool {
        let enough = if self.node.answers_wait() { 1 } else { MEMORY_GROUP_BYTES };
        self.engine.borrow().pending_bytes() >= enough
    }

    /// Closes the group that gathers, with the clocks as they stand.
    pub(crate) fn seal(&self, spare: Vec<u8>) -> Option<Group> {
        let mut engine = self.engine.borrow_mut();
        engine.set_clocks(self.clock.clocks());
        engine.seal(spare)
    }

    /// Serves rows of a batch that another shard took in.
    pub(crate) async fn serve_peer(&self, ask: PeerRows) {
        self.wait_for_room(ask.deadline).await;
        if Instant::now() > ask.deadline || ask.reply.is_closed() {
            self.stats.peer_rows_late.add(ask.rows.len() as u64);
            return;
        }
        let allocated = catch_unwind(AssertUnwindSafe(|| self.allocate_for_peer(&ask)));
        let answer = match allocated {
            Ok(answer) => answer,
            Err(panic) => {
                // Nobody answers: the rows overflow at the batch's deadline.
                self.report_panic(&panic);
                return;
            }
        };
        let group = self.engine.borrow().newest_group();
        let is_promise = |outcome| is_promise(outcome, ask.retry.is_some());
        let has_promise = answer.outcomes.iter().any(is_promise);
        let promised = Promised { group, answer, reply: ask.reply };
        if has_promise && self.commit.durable() < group {
            self.promised.borrow_mut().push_back(promised);
        } else {
            self.deliver(promised);
        }
        self.commit_soon();
    }

    fn allocate_for_peer(&self, ask: &PeerRows) -> PeerAnswer {
        self.node.owner_fault_drill(&ask.text);
        let mut engine = self.engine.borrow_mut();
        let at = engine.at(self.clock.now());
        let mut outcomes = vec![Outcome::Refused(Refusal::Late); ask.rows.len()];
        for (row, outcome) in ask.rows.iter().zip(&mut outcomes) {
            let params = row.params.map(|span| span.of(&ask.text));
            let retry = ask.retry.map(|batch| RowKey { batch, row: row.row });
            let PeerRow { pool, id, visitor, .. } = *row;
            let ask = Ask { pool, id, params, visitor, retry };
            engine.allocate(at, &ask, outcome);
        }
        PeerAnswer { at, outcomes }
    }

    /// Sends an answer; if nobody waits any more, its numbers are released.
    fn deliver(&self, promised: Promised) {
        if let Err(answer) = promised.reply.send(promised.answer) {
            self.withdraw(&unanswered(&answer));
        }
    }

    /// Undoes allocations that no client has seen.
    pub(crate) fn withdraw(&self, numbers: &[Unanswered]) {
        if numbers.is_empty() {
            return;
        }
        let mut engine = self.engine.borrow_mut();
        let now = engine.at(self.clock.now());
        for number in numbers {
            engine.withdraw(now, number.number, number.allocated_at);
        }
        drop(engine);
        self.stats.unanswered.add(numbers.len() as u64);
        self.commit_soon();
    }

    /// Everything up to `group` is durable.
    pub(crate) fn stored(&self, group: u64) {
        if self.engine.borrow().refusal() == Some(Refusal::JournalFull) {
            self.engine.borrow_mut().refuse(None);
            self.node.set_journal(self.id, JournalState::Writing);
            tracing::info!(shard = self.id, "the journal has room again: numbers go out");
        }
        self.commit.advance(group);
        while let Some(promised) = self.next_promised(group) {
            self.deliver(promised);
        }
    }

    fn next_promised(&self, group: u64) -> Option<Promised> {
        self.promised.borrow_mut().pop_front_if(|promised| promised.group <= group)
    }

    /// The journal takes nothing: rows become overflow, those that wait too.
    pub(crate) fn refuse(&self, why: Refusal) {
        self.engine.borrow_mut().refuse(Some(why));
        self.commit.refuse(why);
        self.room.notify_waiters();
        while let Some(mut promised) = self.next_promised(u64::MAX) {
            self.withdraw(&unanswered(&promised.answer));
            for outcome in &mut promised.answer.outcomes {
                if matches!(outcome, Outcome::Allocated { .. } | Outcome::Kept { .. }) {
                    *outcome = Outcome::Refused(why);
                }
            }
            self.deliver(promised);
        }
    }

    /// Notes a panic of ours; the handle stands in the answer and in the log.
    pub(crate) fn report_panic(&self, panic: &(dyn Any + Send)) -> u64 {
        self.stats.panics.add(1);
        // Unique enough to be found in a log, and an integer as the API wants it.
        let handle = self.clock.now().0 * 1000 + self.stats.panics.get() % 1000;
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        tracing::error!(shard = self.id, handle, message, "a request failed by a fault of ours");
        handle
    }

    /// Shard time now.
    pub(crate) fn now(&self) -> Millis {
        self.engine.borrow_mut().at(self.clock.now())
    }
}

/// The numbers of an answer that may be taken back.
pub(crate) fn unanswered(answer: &PeerAnswer) -> Vec<Unanswered> {
    let allocated_at = answer.at;
    let numbers = answer.outcomes.iter().filter_map(|outcome| match *outcome {
        Outcome::Allocated { number } => Some(Unanswered { number, allocated_at }),
        Outcome::Kept { .. } | Outcome::Exhausted { .. } | Outcome::Refused(_) => None,
    });
    numbers.collect()
}
