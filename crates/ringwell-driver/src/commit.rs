//! The durable groups of a shard's journal, and the tasks that wait for groups to become durable.
//!
//! Used only on the shard's thread. A waiting task is woken when its group is durable or when the
//! journal refuses records. After a refusal, the task's rows overflow, even if the group is stored
//! later. While the journal refuses records, no task waits.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use ringwell_engine::Refusal;

/// The progress of one shard's journal.
#[derive(Debug, Default)]
pub struct Commit {
    /// All groups up to this one are durable. With `durability = "memory"`, every group counts as
    /// durable at once.
    durable: Cell<u64>,
    /// The number of refusals so far, and the reason if the journal still refuses records.
    refusals: Cell<(u64, Option<Refusal>)>,
    waiters: RefCell<Vec<(u64, Waker)>>,
}

impl Commit {
    /// Creates the state of a journal whose last durable group is `durable`.
    #[must_use]
    pub fn new(durable: u64) -> Self {
        Self { durable: Cell::new(durable), ..Self::default() }
    }

    /// Returns the last durable group.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.get()
    }

    /// Records that everything up to `group` is durable.
    pub fn advance(&self, group: u64) {
        self.refusals.set((self.refusals.get().0, None));
        self.durable.set(self.durable.get().max(group));
        let durable = self.durable.get();
        for (_, waker) in self.waiters.borrow_mut().extract_if(.., |(group, _)| *group <= durable) {
            waker.wake();
        }
    }

    /// Turns away all waiting tasks, and every new one until [`Self::advance`] is called.
    pub fn refuse(&self, why: Refusal) {
        self.refusals.set((self.refusals.get().0 + 1, Some(why)));
        for (_, waker) in self.waiters.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Waits until `group` is durable.
    ///
    /// # Errors
    /// The reason why the journal accepts no records.
    pub async fn wait(&self, group: u64) -> Result<(), Refusal> {
        let mut registered = None;
        poll_fn(|cx| {
            if self.durable.get() >= group {
                return Poll::Ready(Ok(()));
            }
            let (count, refusal) = self.refusals.get();
            if let Some(why) = refusal {
                return Poll::Ready(Err(why));
            }
            // A task keeps its waker while it waits here, so it usually registers only once. It
            // registers again if a refusal emptied the list of waiters and was over before this
            // task ran.
            if registered != Some(count) {
                self.waiters.borrow_mut().push((group, cx.waker().clone()));
                registered = Some(count);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests;
