//! Tasks and timers on the thread that polls them, without a runtime. Used by the embedded engine,
//! the simulator and tests.
//!
//! Owns its tasks. Reads no clock; the caller passes the time. Invariant: tasks run in the order in
//! which they were woken, unless the caller selects a different task. The same calls in the same
//! order result in the same run.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use crate::locks::lock;
use crate::platform::Moment;

/// Tasks and timers. Clones share one set of tasks and timers.
#[derive(Clone, Default)]
pub struct Executor(Rc<Inner>);

#[derive(Default)]
struct Inner {
    tasks: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    spawned: Cell<u64>,
    ready: Arc<Ready>,
    timers: RefCell<BTreeMap<(Moment, u64), Waker>>,
    timers_made: Cell<u64>,
    /// Wakes the future that [`Executor::run`] polls.
    work: OnceCell<(Arc<Signal>, Waker)>,
    now: Cell<Moment>,
    is_ended: Cell<bool>,
}

/// A slot in the table of tasks.
struct Slot {
    /// `None` while the task is being polled and after it has ended.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    signal: Arc<Signal>,
    /// Created only once, so that a task always registers the same waker.
    waker: Waker,
}

/// Ready tasks, in the order in which they were woken.
#[derive(Default)]
struct Ready(Mutex<VecDeque<Arc<Signal>>>);

impl Ready {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Signal>>> {
        lock(&self.0)
    }
}

/// Wakes one task.
struct Signal {
    slot: usize,
    /// The number of the task for which this signal was created. The slot alone does not identify
    /// the task, because slots are reused.
    task: u64,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.ready.queue().push_back(Arc::clone(self));
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("now", &self.0.now.get()).finish_non_exhaustive()
    }
}

impl Executor {
    /// Creates an executor without tasks. Its time is 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time of the last [`Self::advance`].
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.now.get()
    }

    /// Adds a task, which is ready at once. After [`Self::end`], the task is dropped instead.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.add(Box::pin(task));
    }

    fn add(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        if self.0.is_ended.get() {
            return;
        }
        let number = self.0.spawned.replace(self.0.spawned.get() + 1);
        let mut tasks = self.0.tasks.borrow_mut();
        let slot = self.0.free.borrow_mut().pop().unwrap_or(tasks.len());
        let ready = Arc::clone(&self.0.ready);
        let signal =
            Arc::new(Signal { slot, task: number, is_queued: AtomicBool::new(false), ready });
        let waker = Waker::from(Arc::clone(&signal));
        let made = Slot { future: Some(task), signal: Arc::clone(&signal), waker };
        match tasks.get_mut(slot) {
            Some(free) => *free = made,
            None => tasks.push(made),
        }
        drop(tasks);
        signal.wake();
    }

    /// Completes when the time reaches `at`.
    #[must_use]
    pub fn sleep_until(&self, at: Moment) -> Sleep {
        Sleep { inner: Rc::downgrade(&self.0), at, key: None }
    }

    /// Returns the number of ready tasks.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.0.ready.queue().len()
    }

    /// Returns the time when the next timer is due.
    #[must_use]
    pub fn next_timer(&self) -> Option<Moment> {
        self.0.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// Advances the time to `now`, and wakes the tasks whose timers are due, in the order in which
    /// they are due. Time never goes back: if `now` is earlier than the current time, the call
    /// changes nothing.
    pub fn advance(&self, now: Moment) {
        self.0.now.set(self.0.now.get().max(now));
        loop {
            let mut timers = self.0.timers.borrow_mut();
            let first = timers.first_entry().filter(|timer| timer.key().0 <= self.0.now.get());
            let Some(waker) = first.map(OccupiedEntry::remove) else { return };
            drop(timers);
            waker.wake();
        }
    }

    /// Polls the task that was woken first. Returns `false` if no task is ready.
    #[must_use]
    pub fn poll_next(&self) -> bool {
        self.poll_drawn(|_| 0)
    }

    /// Polls the ready task that `draw` selects: `draw` receives the number of ready tasks and
    /// returns the index of one. Index 0 is the task that was woken first. Returns `false` if no
    /// task is ready.
    #[must_use]
    pub fn poll_drawn(&self, draw: impl FnOnce(usize) -> usize) -> bool {
        let mut queue = self.0.ready.queue();
        if queue.is_empty() {
            return false;
        }
        let place = draw(queue.len()).min(queue.len() - 1);
        let Some(signal) = queue.remove(place) else { return false };
        drop(queue);
        self.poll(&signal);
        true
    }

    /// Alternates between `work` and the ready tasks until `work` completes. Returns `None` if
    /// `work` has not completed and no task is ready. Progress then depends on a timer or another
    /// thread.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let (signal, waker) = self.0.work.get_or_init(|| {
            let (is_queued, ready) = (AtomicBool::new(false), Arc::clone(&self.0.ready));
            let signal = Arc::new(Signal { slot: usize::MAX, task: u64::MAX, is_queued, ready });
            (Arc::clone(&signal), signal.into())
        });
        let mut next = Some(Arc::clone(signal));
        while let Some(woken) = next {
            if Arc::ptr_eq(&woken, signal) {
                signal.is_queued.store(false, Ordering::Release);
                if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(waker)) {
                    return Some(output);
                }
            } else {
                self.poll(&woken);
            }
            next = self.0.ready.queue().pop_front();
        }
        None
    }

    /// Drops all tasks. Tasks that are spawned later, even by destructors, are dropped too.
    pub fn end(&self) {
        self.0.is_ended.set(true);
        loop {
            let task = self.0.tasks.borrow_mut().iter_mut().find_map(|slot| slot.future.take());
            // The task is dropped while nothing is borrowed, because destructors send messages and
            // wake tasks.
            let Some(task) = task else { break };
            drop(task);
        }
        self.0.ready.queue().clear();
        let timers = std::mem::take(&mut *self.0.timers.borrow_mut());
        drop(timers);
    }

    fn poll(&self, signal: &Arc<Signal>) {
        let taken = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = tasks.get_mut(signal.slot).filter(|slot| slot.signal.task == signal.task);
            slot.and_then(|slot| Some((slot.future.take()?, slot.waker.clone())))
        };
        let Some((mut future, waker)) = taken else { return };
        signal.is_queued.store(false, Ordering::Release);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(future);
            self.0.free.borrow_mut().push(signal.slot);
            return;
        }
        if !self.0.is_ended.get() {
            self.0.tasks.borrow_mut()[signal.slot].future = Some(future);
        }
    }
}

/// Completes after all tasks that are ready now have been polled.
pub async fn turn() {
    let mut is_over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A timer; see [`Executor::sleep_until`].
pub struct Sleep {
    inner: Weak<Inner>,
    at: Moment,
    key: Option<(Moment, u64)>,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(inner) = self.inner.upgrade() else { return Poll::Pending };
        if inner.now.get() >= self.at {
            return Poll::Ready(());
        }
        let key = match self.key {
            Some(key) => key,
            None => (self.at, inner.timers_made.replace(inner.timers_made.get() + 1)),
        };
        self.key = Some(key);
        inner.timers.borrow_mut().insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (Some(key), Some(inner)) = (self.key, self.inner.upgrade()) {
            inner.timers.borrow_mut().remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
