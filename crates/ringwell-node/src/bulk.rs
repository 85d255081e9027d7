//! `POST /api/<date>/bulk.json`: a batch of rows in, a number for each out, in their order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use bytes::Bytes;
use ringwell_directory::Directory;
use ringwell_engine::Outcome;
use ringwell_wire::{Answer, BulkResponse, RequestError, Row, RowError, Tracking};

use crate::gather::{InFlight, Job, Owner, Plan, Terms};
use crate::shard::ShardThread;
use crate::stats::Reason;

/// Bytes that a row's answer takes, about: room is made for all at once.
const ROW_ANSWER_BYTES: usize = 160;

/// Answers a batch.
///
/// # Errors
/// [`RequestError`] if the body is no batch at all.
pub(crate) async fn answer(
    thread: &Rc<ShardThread>,
    body: Bytes,
    terms: &Terms,
) -> Result<Vec<u8>, RequestError> {
    let mut flight = InFlight::new(thread);
    flight.job().batch.parse(body, &thread.node.wire_limits)?;
    thread.wait_for_room(terms.deadline).await;
    let text = flight.job().batch.text().clone();
    let rows = flight.job().batch.rows().len() as u64;
    let started = catch_unwind(AssertUnwindSafe(|| {
        thread.node.fault_drill(&text);
        flight.job().plan(thread, &text);
        flight.start(&text, terms);
    }));
    if let Err(panic) = started {
        // The batch may be half applied: what it holds is released when `flight` is dropped.
        let handle = thread.report_panic(&panic);
        return Ok(flight.job().render_failed(handle));
    }
    flight.finish(terms).await;
    let out = flight.job().render(thread);
    flight.answered();
    thread.stats.batches.add(1);
    thread.stats.rows.add(rows);
    Ok(out)
}

/// What is to be done for one row.
#[inline]
pub(crate) fn plan_row(directory: &Directory, text: &[u8], row: &Row) -> Plan {
    let ask = match &row.ask {
        Ok(ask) => ask,
        Err(error) => return Plan::Fail(*error),
    };
    let entry = directory.lookup(ask.pool);
    let is_open = directory.check_key(entry, ask.key.of(text));
    match entry {
        Some(entry) if is_open => Plan::Allocate(Owner {
            shard: entry.shard(),
            index: entry.index(),
            overflow: entry.overflow(),
            is_tracked: entry.tracking().is_some(),
        }),
        // Nobody without the key learns whether the pool exists.
        _ => Plan::Fail(RowError::InvalidKey { key: ask.key, pool: ask.pool_text }),
    }
}

impl Job {
    /// Decides what is to be done for each row.
    pub(crate) fn plan(&mut self, thread: &ShardThread, text: &[u8]) {
        let Self { batch, plans, .. } = self;
        let directory = &*thread.directory();
        plans.extend(batch.rows().iter().map(|row| plan_row(directory, text, row)));
        if thread.node.application.is_some() {
            self.find_unknown(directory);
        }
    }

    fn render(&mut self, thread: &ShardThread) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + ROW_ANSWER_BYTES * self.plans.len());
        let mut writer = BulkResponse::new(&mut out, self.batch.text());
        let rows = self.batch.rows().iter().zip(&self.plans).zip(&self.outcomes);
        let directory = thread.directory();
        for ((row, plan), outcome) in rows {
            let answer = row_answer(thread, &directory, row, plan, *outcome);
            writer.row(row.request_id, &answer);
        }
        writer.finish();
        out
    }

    /// Every row failed by a fault of ours.
    fn render_failed(&mut self, handle: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BulkResponse::new(&mut out, self.batch.text());
        for row in self.batch.rows() {
            let error = RowError::InternalServiceError { handle };
            writer.row(row.request_id, &Answer::Error(error));
        }
        writer.finish();
        out
    }
}

/// What a row is answered with.
pub(crate) fn row_answer<'a>(
    thread: &ShardThread,
    directory: &'a Directory,
    row: &Row,
    plan: &Plan,
    outcome: Outcome,
) -> Answer<'a> {
    let (owner, pool) = match (plan, &row.ask) {
        (Plan::Allocate(owner), Ok(ask)) => (owner, ask.pool),
        (Plan::Fail(error), _) | (_, Err(error)) => {
            thread.stats.row_errors.add(1);
            return Answer::Error(*error);
        }
    };
    let tracking = || {
        let entry = owner.is_tracked.then(|| directory.lookup(pool)).flatten()?;
        let of = entry.tracking()?;
        Some(Tracking { base: &of.base_url, destination: &of.destination_url })
    };
    let (reason, until) = match outcome {
        Outcome::Allocated { number } | Outcome::Kept { number } => {
            return Answer::Number { number, overflow: false, tracking: tracking() };
        }
        Outcome::Exhausted { until } => (Reason::Exhausted, Some(until)),
        Outcome::Refused(refusal) => (refusal.into(), None),
    };
    thread.stats.overflow(reason);
    if let Some(number) = owner.overflow {
        return Answer::Number { number, overflow: true, tracking: tracking() };
    }
    thread.stats.row_errors.add(1);
    Answer::Error(match until {
        None => RowError::Unavailable { pool },
        Some(until) => {
            // Lockouts are a millisecond longer than the lifetime: nobody wants to read 1801 seconds.
            let wait_ms = until.since(thread.now()).0.saturating_sub(1);
            RowError::PoolExhausted { pool, wait_ms }
        }
    })
}

#[cfg(test)]
mod tests;
