//! The durable groups of a shard's journal, and the tasks that wait for them.
//!
//! Lives on the shard's thread. Waiters are woken when their group is durable, or when the journal
//! refuses: their rows then overflow, even if the group is stored later. While the journal refuses,
//! no task waits.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use ringwell_engine::Refusal;

/// The progress of one shard's journal.
#[derive(Debug, Default)]
pub struct Commit {
    /// Groups up to this one are durable. With `durability = "memory"`, all are durable at once.
    durable: Cell<u64>,
    /// The count of waiters turned away, and the reason, while the journal still refuses.
    refusals: Cell<(u64, Option<Refusal>)>,
    waiters: RefCell<Vec<(u64, Waker)>>,
}

impl Commit {
    /// A journal whose last durable group is `durable`.
    #[must_use]
    pub fn new(durable: u64) -> Self {
        Self { durable: Cell::new(durable), ..Self::default() }
    }

    /// The last durable group.
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

    /// Turns away all waiters, until [`Self::advance`].
    pub fn refuse(&self, why: Refusal) {
        self.refusals.set((self.refusals.get().0 + 1, Some(why)));
        for (_, waker) in self.waiters.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Waits until `group` is durable.
    ///
    /// # Errors
    /// The reason why the journal accepts nothing.
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
            // A task keeps its waker while it waits here, so registering once is enough, unless the
            // list is emptied by a refusal that ends before this task runs.
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
