//! The simulated machine on which a shard runs, in virtual time. It implements the driver's
//! platform.
//!
//! Owns the state that all processes share and that production code accesses during a poll: time,
//! clocks, files, the reference model, and the frames to be sent. `World` decides when each task is
//! polled.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use ringwell_core::{Millis, PromoNumber};
use ringwell_driver::local::{Executor, turn};
use ringwell_driver::platform::{CLOCK_DIFFERENCE_MIN_MS, NetStats};
use ringwell_driver::watch::Served;
use ringwell_driver::{Moment, Net, Path, Platform, Trouble, Watch};
use ringwell_engine::{Engine, Outcome};
use tokio::sync::oneshot;

use crate::fault::{Faults, Kind};
use crate::files::{SimFiles, lock};
use crate::message::{Caller, Mark, Replied, Sent};
use crate::model::{Grant, Judged, Model, Violation};
use crate::pace::{MS, ORIGIN_US};
use crate::random::{Random, mix};
use crate::story::Story;

/// The state that all processes of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The true time since the run began, in microseconds.
    pub(crate) now: Cell<u64>,
    pub(crate) clocks: Vec<MachineClock>,
    /// The faults that happen in disk calls. They are drawn in the same way as the faults that
    /// `World` injects, but no kind of fault is drawn in both places.
    pub(crate) call_faults: Arc<Mutex<Faults>>,
    pub(crate) model: RefCell<Model>,
    /// Effects of processes that the world has not handled yet.
    pub(crate) outbox: RefCell<Vec<Sent>>,
    /// Callers that wait for an answer from another process.
    pub(crate) calls: RefCell<BTreeMap<u64, Caller>>,
    /// Shards whose pools, holds or lockouts have changed for a reason other than a row.
    pub(crate) changed: RefCell<BTreeSet<u16>>,
    /// Shards that could not store the answers to batches from other shards.
    pub(crate) answers_lost: RefCell<BTreeSet<u16>>,
    pub(crate) broken: RefCell<Option<Violation>>,
    pub(crate) story: RefCell<Story>,
    pub(crate) hash: Cell<u64>,
    chance: RefCell<Random>,
    next_call: Cell<u64>,
}

/// The clocks of one machine, and whether its disk is slow.
#[derive(Debug, Default)]
pub(crate) struct MachineClock {
    /// The difference between the wall clock and true time, in microseconds.
    pub(crate) skew_us: Cell<i64>,
    /// The true time of the machine's last boot.
    pub(crate) booted_at: Cell<u64>,
    /// The true time until which the machine's disk is slow.
    pub(crate) slow_until: Cell<u64>,
}

impl Shared {
    pub(crate) fn new(seed: u64, nodes: usize, call_faults: Faults, keeps_tale: bool) -> Self {
        Self {
            now: Cell::new(0),
            clocks: (0..nodes).map(|_| MachineClock::default()).collect(),
            call_faults: Arc::new(Mutex::new(call_faults)),
            model: RefCell::default(),
            outbox: RefCell::default(),
            calls: RefCell::default(),
            changed: RefCell::default(),
            answers_lost: RefCell::default(),
            broken: RefCell::default(),
            story: RefCell::new(Story::new(keeps_tale)),
            hash: Cell::new(seed),
            chance: RefCell::new(Random::new(seed, 6)),
            next_call: Cell::new(0),
        }
    }

    /// Returns the true time since the machine was booted, in microseconds.
    pub(crate) fn since_boot_us(&self, node: usize) -> u64 {
        self.now.get() - self.clocks[node].booted_at.get()
    }

    /// Returns the time according to a machine's wall clock.
    pub(crate) fn wall_us(&self, node: usize) -> u64 {
        (ORIGIN_US + self.now.get()).saturating_add_signed(self.clocks[node].skew_us.get())
    }

    /// Returns how long the disk takes for an operation that is awaited.
    fn disk_latency_us(&self, node: usize) -> u64 {
        if self.clocks[node].slow_until.get() > self.now.get() {
            return self.chance.borrow_mut().between(20 * MS, 800 * MS);
        }
        let mut faults = lock(&self.call_faults);
        if faults.strikes(Kind::SlowDisk) {
            return faults.stream(Kind::SlowDisk).between(MS, 3_000 * MS);
        }
        self.chance.borrow_mut().between(60, 600)
    }

    pub(crate) fn mix(&self, with: u64) {
        self.hash.set(mix(self.hash.get() ^ with));
    }

    /// Records a broken promise. Only the first broken promise of a run is kept.
    pub(crate) fn judge(&self, judged: Judged) {
        if let Err(violation) = judged {
            self.broken.borrow_mut().get_or_insert(violation);
        }
    }

    /// Adds a line to the story, if the story is recorded.
    pub(crate) fn tell(&self, node: usize, about: &[u64], text: impl FnOnce() -> String) {
        self.story.borrow_mut().add(self.now.get(), node, about, text);
    }
}

/// One life of a process.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) node: usize,
    pub(crate) number: u32,
    /// Whether this life has ended. Destructors have no effect after that.
    pub(crate) is_dead: Cell<bool>,
    /// Whether the list of pools is being changed. A pool that is added during the change comes
    /// from the list, so no earlier answers arrive with it.
    pub(crate) is_listing: Cell<bool>,
    /// The number of pool lists that have reached the process, and the newest shard request that
    /// the newest list answers.
    pub(crate) newest_list: Cell<(u64, u64)>,
    /// One shard of each node that could not be queried about journals at startup.
    pub(crate) away: RefCell<Vec<u16>>,
}

/// The platform of one shard, in one life of its process.
#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) shared: Rc<Shared>,
    pub(crate) executor: Executor,
    pub(crate) files: SimFiles,
    pub(crate) life: Rc<Life>,
    /// Observes decisions, in place of the model.
    pub(crate) watcher: Option<Rc<dyn Watch>>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Sim {
    pub(crate) fn send(&self, sent: Sent) {
        if !self.life.is_dead.get() {
            self.shared.outbox.borrow_mut().push(sent);
        }
    }

    pub(crate) fn machine(&self) -> usize {
        self.life.node
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.shared.now.get()
    }

    pub(crate) fn after_us(&self, takes: u64) -> impl Future<Output = ()> + 'static {
        self.executor.sleep_until(self.moment() + Duration::from_micros(takes))
    }

    /// Waits for as long as the disk takes for one operation.
    pub(crate) fn disk(&self) -> impl Future<Output = ()> + 'static {
        self.after_us(self.shared.disk_latency_us(self.life.node))
    }

    fn tell(&self, number: PromoNumber, text: impl FnOnce() -> String) {
        self.shared.tell(self.life.node, &[number.to_code()], text);
    }
}

impl Platform for Sim {
    const TURNS_TO_READ: usize = 1;

    /// This is so small that even a snapshot of the simulator's few numbers consists of many
    /// pieces.
    const SNAPSHOT_ENTRIES: u32 = 8;

    type Files = SimFiles;
    type Net = Wire;

    fn files(&self) -> SimFiles {
        self.files.clone()
    }

    fn watch(&self) -> Option<&dyn Watch> {
        if self.life.is_dead.get() {
            return None;
        }
        if let Some(watcher) = &self.watcher {
            return Some(&**watcher);
        }
        (!self.files.disk().has_stopped).then_some(self)
    }

    fn moment(&self) -> Moment {
        Moment(Duration::from_micros(self.shared.now.get()))
    }

    fn boot_time(&self) -> Duration {
        Duration::from_micros(self.shared.since_boot_us(self.life.node))
    }

    fn wall(&self) -> Duration {
        Duration::from_micros(self.shared.wall_us(self.life.node))
    }

    fn sleep_until(&self, at: Moment) -> impl Future<Output = ()> + 'static {
        self.executor.sleep_until(at)
    }

    fn turn(&self) -> impl Future<Output = ()> + 'static {
        turn()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }

    fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        // The work is done immediately but reported later, so the disk may change before the caller
        // gets the result.
        let done = work();
        let known = self.disk();
        async move {
            known.await;
            Some(done)
        }
    }
}

impl Watch for Sim {
    fn served(&self, shard: u16, engine: &Engine, row: &Served<'_>) {
        let text = String::from_utf8_lossy(&row.params.concat()).into_owned();
        let Some(mark) = Mark::read(&text) else { return };
        let (pool, at_ms) = (row.pool.0, row.at.0);
        let retry = mark.is_repeatable.then_some((mark.batch, mark.row));
        let mut model = self.shared.model.borrow_mut();
        let judged = match row.outcome {
            Outcome::Allocated { number } | Outcome::Kept { number } => {
                let slot = engine.shard().newest(number);
                let until_ms = slot.map_or(0, |slot| slot.locked_until.0);
                let is_new = slot.is_some_and(|slot| slot.allocated_at == row.at);
                let code = number.to_code();
                let is_fresh = is_new && !model.is_known_since(shard, code, at_ms);
                self.tell(number, || {
                    let how = if is_fresh { "new" } else { "kept" };
                    let (batch, row) = (mark.batch, mark.row);
                    let left = until_ms.saturating_sub(at_ms);
                    let whose =
                        mark.visitor.map_or_else(String::new, |of| format!(" of visitor {of}"));
                    format!(
                        "shard {shard} gives {number} to batch {batch} row {row}{whose}: {how}, \
                        locked out for {left} ms"
                    )
                });
                model.granted(Grant::new(
                    (mark.batch, mark.row),
                    retry,
                    mark.visitor,
                    (shard, pool, code),
                    (self.shared.now.get(), at_ms, until_ms),
                    engine.newest_group(),
                    is_fresh,
                    text,
                    micros(row.deadline),
                ))
            }
            Outcome::Exhausted { .. } => model.exhausted(shard, pool, at_ms, retry),
            Outcome::Refused(_) => Ok(()),
        };
        drop(model);
        self.shared.judge(judged);
    }

    fn withdrawn(&self, shard: u16, engine: &Engine, number: PromoNumber, at: [Millis; 2]) {
        self.tell(number, || format!("shard {shard} takes back {number}, which reached no client"));
        let times = (at[0].0, at[1].0);
        let mut model = self.shared.model.borrow_mut();
        model.withdrawn(shard, number.to_code(), times, engine.newest_group());
    }

    fn released(&self, shard: u16, number: PromoNumber, now: Millis) {
        self.tell(number, || format!("shard {shard} ends the lockout of {number}"));
        self.shared.model.borrow_mut().released(shard, number.to_code(), now.0);
    }

    fn changed(&self, shard: u16) {
        self.shared.changed.borrow_mut().insert(shard);
    }

    fn answers_lost(&self, shard: u16) {
        self.shared.answers_lost.borrow_mut().insert(shard);
    }
}

/// Returns a time in microseconds since the run began.
pub(crate) fn micros(moment: Moment) -> u64 {
    u64::try_from(moment.0.as_micros()).unwrap_or(u64::MAX)
}

/// A connection to one shard of another node.
#[derive(Debug)]
pub(crate) struct Wire {
    sim: Sim,
    /// The shard whose thread uses the link.
    thread: u16,
    shard: u16,
    to: usize,
}

impl Wire {
    pub(crate) fn new(sim: &Sim, thread: u16, shard: u16, to: usize) -> Self {
        Self { sim: sim.clone(), thread, shard, to }
    }
}

impl Net for Wire {
    fn call(&self, path: Path, body: Bytes) -> impl Future<Output = Replied> + 'static {
        let (reply, answer) = oneshot::channel();
        let Sim { shared, life, .. } = &self.sim;
        let call = shared.next_call.replace(shared.next_call.get() + 1);
        let caller = Caller { node: life.node, life: life.number, to: self.to, reply };
        shared.calls.borrow_mut().insert(call, caller);
        let (from, thread, shard) = (life.node, self.thread, self.shard);
        self.sim.send(Sent::Call { call, from, thread, shard, path, body });
        async move { answer.await.unwrap_or(Err(Trouble::Lost("it broke".to_owned()))) }
    }

    fn clock_ahead_ms(&self) -> i64 {
        let Sim { shared, life, .. } = &self.sim;
        let [theirs, own] = [self.to, life.node].map(|node| shared.wall_us(node) / 1_000);
        let ahead_ms = theirs.cast_signed() - own.cast_signed();
        if ahead_ms.unsigned_abs() < CLOCK_DIFFERENCE_MIN_MS { 0 } else { ahead_ms }
    }

    fn close(&self) {}

    fn stats(&self) -> NetStats {
        let latency = Histogram::new(2);
        let latency = latency.unwrap_or_else(|_| unreachable!("2 is a valid count of digits"));
        NetStats { connections: 0, connects: 0, latency, clock_ahead_ms: 0 }
    }
}
