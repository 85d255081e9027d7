//! `POST /api/<date>/bulk.json`: receives a batch of rows, and returns a number for each row in the
//! same order.

use std::rc::Rc;

use bytes::Bytes;
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::stats::Kind;
use ringwell_wire::RequestError;

use crate::shard::ShardThread;

/// Answers a batch.
///
/// # Errors
/// Returns a [`RequestError`] if the body is not a batch.
pub(crate) fn answer<'a>(
    thread: &'a Rc<ShardThread>,
    body: Bytes,
    terms: &'a Terms,
) -> impl Future<Output = Result<Vec<u8>, RequestError>> + 'a {
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &thread.node.wire_limits);
    batch::answer(thread, Kind::Bulk, terms, read, |answered: &Answered<'_>| answered.bulk())
}

#[cfg(test)]
mod tests;
