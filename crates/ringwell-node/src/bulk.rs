//! `POST /api/<date>/bulk.json`: takes a batch of rows, and returns a number for each in the same
//! order.

use std::rc::Rc;

use bytes::Bytes;
use ringwell_driver::batch::{self, Answered, Terms};
use ringwell_driver::stats::Kind;
use ringwell_wire::RequestError;

use crate::shard::ShardThread;

/// Answers a batch.
///
/// # Errors
/// [`RequestError`] if the body is not a batch.
pub(crate) async fn answer(
    thread: &Rc<ShardThread>,
    body: Bytes,
    terms: &Terms,
) -> Result<Vec<u8>, RequestError> {
    let read = |batch: &mut ringwell_wire::Batch| batch.parse(body, &thread.node.wire_limits);
    batch::answer(thread, Kind::Bulk, terms, read, |answered: &Answered<'_>| answered.bulk()).await
}

#[cfg(test)]
mod tests;
