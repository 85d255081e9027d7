//! The code path that all requests for numbers share: bulk requests, single requests, and requests
//! from web pages.
//!
//! These requests differ only in how their rows are read and how the answer is rendered.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ringwell_core::Millis;
use ringwell_directory::Directory;
use ringwell_engine::{Engine, Outcome};
use ringwell_wire::{Batch, BulkResponse, ResponseRow, Row, RowError};

use super::gather::{InFlight, Terms};
use super::job::Job;
use crate::platform::Platform;
use crate::rows::{self, RowPlan, Shortage};
use crate::shard::Shard;
use crate::stats::{Kind, Reason, Stats};

/// The approximate size of one row's answer in bytes, for reserving memory in advance.
const ROW_ANSWER_BYTES: usize = 160;

/// The maximum number of finished answers that may wait while other requests are processed. More
/// answers would not fit into a core's cache together with the connections.
const HELD_ANSWERS_MAX: usize = 24;

/// Answers a batch: `read` fills in its rows, and `render` turns their outcomes into the answer.
///
/// If this future is dropped before it completes, the batch's numbers are released. Once `render`
/// has returned, the numbers belong to the client.
///
/// # Errors
/// Returns the error of `read`. In that case, no row has been served.
pub async fn answer<P: Platform, T, E>(
    shard: &Rc<Shard<P>>,
    kind: Kind,
    terms: &Terms,
    read: impl FnOnce(&mut Batch) -> Result<(), E>,
    render: impl FnOnce(&Answered<'_>) -> T,
) -> Result<T, E> {
    let mut flight = InFlight::new(shard);
    read(&mut flight.job().batch)?;
    shard.wait_for_room(terms.deadline).await;
    let started = catch_unwind(AssertUnwindSafe(|| {
        shard.node.fault_drill(flight.job().batch.text());
        let has_source = shard.source.is_some();
        flight.job().plan(&shard.directory(), &shard.engine.borrow(), shard.id, has_source);
        flight.start(terms);
    }));
    let failed = started.err().map(|panic| shard.report_panic(&*panic));
    let has_waited = failed.is_none() && flight.finish(terms).await;
    let (own, served_at) = (shard.id, flight.served_at());
    let out = {
        let now = &|| shard.now();
        let (stats, directory) = (&shard.stats, &*shard.directory());
        let job = flight.job();
        let answered = Answered { job, directory, stats, now, own, served_at, failed };
        render(&answered)
    };
    if failed.is_some() {
        // The batch may have been partly served, so dropping `flight` releases its numbers.
        return Ok(out);
    }
    shard.stats.answered(kind, flight.job().batch.rows().len());
    flight.answered();
    // Makes the batch's memory, which is still in the cache, available to the next batch.
    drop(flight);
    if !has_waited && let Some(_held) = HeldAnswer::new(&shard.held_answers) {
        // First processes the other requests that have arrived, so that a waiting client is woken
        // once for many answers. Clients whose batches had to wait are woken together anyway.
        shard.platform.turn().await;
    }
    Ok(out)
}

/// Counts an answer that waits while other requests are processed.
struct HeldAnswer<'a>(&'a Cell<usize>);

impl<'a> HeldAnswer<'a> {
    /// Returns `None` if the maximum count of answers is already waiting.
    fn new(held: &'a Cell<usize>) -> Option<Self> {
        if held.get() >= HELD_ANSWERS_MAX {
            return None;
        }
        held.set(held.get() + 1);
        Some(Self(held))
    }
}

impl Drop for HeldAnswer<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A batch whose rows were answered, or that failed as a whole.
pub struct Answered<'a> {
    job: &'a Job,
    directory: &'a Directory,
    stats: &'a Stats,
    now: &'a dyn Fn() -> Millis,
    own: u16,
    served_at: Millis,
    failed: Option<u64>,
}

impl Answered<'_> {
    /// The text that the rows' spans refer to.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.job.batch.text()
    }

    /// Whether the batch failed because of an internal error.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns the answer to a row. Call this method only once per row: if there is no number, each
    /// call adds the reason to the metrics.
    ///
    /// # Panics
    /// If the row does not exist.
    #[must_use]
    pub fn row(&self, row: usize) -> ResponseRow<'_> {
        if let Some(handle) = self.failed {
            return ResponseRow::Error(RowError::InternalServiceError { handle });
        }
        let Job { batch, plans, outcomes, .. } = self.job;
        self.row_answer(&batch.rows()[row], &plans[row], outcomes[row])
    }

    /// Returns the number that a row got from its pool's rotation, with the allocation time by the
    /// owner's clock. The visitor may have held this number before.
    ///
    /// # Panics
    /// If the row does not exist.
    #[must_use]
    pub fn given_number(&self, row: usize) -> Option<(ringwell_core::PromoNumber, Millis)> {
        let number = self.job.outcomes[row].number()?;
        Some((number, self.job.allocated_at(row, self.own, self.served_at)?))
    }

    /// The body of a bulk answer.
    #[must_use]
    pub fn bulk(&self) -> Vec<u8> {
        let Job { batch, plans, outcomes, .. } = self.job;
        if self.is_failed() {
            return self.bulk_failed();
        }
        let mut out = Vec::with_capacity(32 + ROW_ANSWER_BYTES * plans.len());
        let mut writer = BulkResponse::new(&mut out, batch.text());
        for ((row, plan), outcome) in batch.rows().iter().zip(plans).zip(outcomes) {
            match (plan, outcome) {
                // Nearly every row takes this branch. Bypassing the general code saves 44 of 1,578
                // instructions per row.
                (RowPlan::Allocate(owner), Outcome::Allocated { number }) if !owner.is_tracked => {
                    writer.number(row.request_id, *number);
                }
                (plan, outcome) => {
                    writer.row(row.request_id, &self.row_answer(row, plan, *outcome));
                }
            }
        }
        writer.finish();
        out
    }

    #[cold]
    fn bulk_failed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BulkResponse::new(&mut out, self.text());
        for (place, row) in self.job.batch.rows().iter().enumerate() {
            writer.row(row.request_id, &self.row(place));
        }
        writer.finish();
        out
    }

    #[inline]
    fn row_answer(&self, row: &Row, plan: &RowPlan, outcome: Outcome) -> ResponseRow<'_> {
        let (answer, shortage) = rows::answer(self.directory, row, plan, outcome, self.now);
        match shortage {
            Some(Shortage::Exhausted(_)) => self.stats.overflow(Reason::Exhausted),
            Some(Shortage::Refused(refusal)) => {
                let pool = row.ask.as_ref().ok().map(|ask| ask.pool);
                self.stats.refused(pool, refusal.into());
            }
            None => {}
        }
        if matches!(answer, ResponseRow::Error(_)) {
            self.stats.row_errors.add(1);
        }
        answer
    }
}

impl Job {
    /// Plans each row. If there is a `source` for unknown pools, this also records the rows that
    /// name unknown pools.
    fn plan(&mut self, directory: &Directory, engine: &Engine, own: u16, source: bool) {
        let Self { batch, plans, .. } = self;
        plans.extend(rows::plans(directory, engine, own, batch.text(), batch.rows()));
        if source {
            self.find_unknown(directory);
        }
    }
}
