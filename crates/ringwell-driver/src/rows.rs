//! Processes the rows of a batch without threads, sockets or clocks: plans each row, serves it on
//! the owning shard, and builds its answer.
//!
//! This module never waits. The caller may send a batch's answers once the promises among them
//! ([`is_promise`]) are durable. The module does not depend on the platform, so it is compiled only
//! once.

use std::time::Duration;

use ringwell_config::Config;
use ringwell_core::{Millis, PoolId, PoolSpec, PromoNumber, VisitorId};
use ringwell_directory::{Directory, RingPool};
use ringwell_engine::{Ask, Engine, Outcome, Refusal, RowKey, lockout};
use ringwell_wire::{Limits, RequestError, ResponseRow, Row, RowError, Tracking};

use crate::canary::{Bug, planted};

/// The time after a batch's deadline during which numbers may still be sent. If the batch is
/// answered later, all its rows overflow.
pub const LATE_MAX: Duration = Duration::from_millis(5);

/// The maximum length of an idempotency key.
pub const RETRY_KEY_BYTES_MAX: usize = 256;

/// Distinguishes the digests of single allocations from batch digests.
const SINGLE: &str = "ringwell 2026-11-22 idempotency key of a single allocation";

/// The plan for a row.
#[derive(Clone, Copy, Debug)]
pub enum RowPlan {
    /// Answer the row with this error.
    Fail(RowError),
    /// Ask the owner for a number for the row.
    Allocate(Owner),
}

/// The directory's data on a row's pool.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The shard that owns the pool.
    pub shard: u16,
    /// The pool's index within its shard.
    pub index: u32,
    /// The number that is sent if no other number is available.
    pub overflow: Option<PromoNumber>,
    /// Whether answers to the pool's rows contain a tracking URL.
    pub is_tracked: bool,
}

/// The reason why a row did not get a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Every number is locked out until this time.
    Exhausted(Millis),
    /// The shard did not hand out a number, for this reason.
    Refused(Refusal),
}

/// Returns the configured limits of a batch.
#[must_use]
pub fn limits(config: &Config) -> Limits {
    Limits {
        rows_max: config.limits.rows,
        suffix_bytes_max: config.limits.suffix_bytes,
        request_id_bytes_max: config.limits.request_id_bytes,
        strict_params: config.api.strict_params,
    }
}

/// Converts a pool to the form that its shard uses. Its lifetime is rounded up, because shard time
/// is rounded down.
#[must_use]
pub fn spec(pool: &RingPool) -> PoolSpec {
    let lifetime = pool.lifetime();
    let lockout = if planted(Bug::NoRounding) { lifetime } else { lockout(lifetime) };
    PoolSpec { lockout, ..pool.spec() }
}

/// Returns the digest that identifies a repeatable batch, computed from its idempotency key and its
/// whole body. Returns `None` if the key is empty, which is equivalent to no key.
///
/// # Errors
/// [`RequestError::KeyTooLong`].
pub fn batch_digest(key: &[u8], body: &[u8]) -> Result<Option<[u8; 16]>, RequestError> {
    digest(blake3::Hasher::new(), key, &[body])
}

/// Returns the digest that identifies a repeatable single allocation, computed from its idempotency
/// key, path and query. Such a digest never equals a batch's digest.
///
/// # Errors
/// [`RequestError::KeyTooLong`].
pub fn single_digest(
    key: &[u8],
    path: &str,
    query: &str,
) -> Result<Option<[u8; 16]>, RequestError> {
    // A path contains no `?`.
    let request = [path.as_bytes(), b"?", query.as_bytes()];
    digest(blake3::Hasher::new_derive_key(SINGLE), key, &request)
}

fn digest(
    mut hasher: blake3::Hasher,
    key: &[u8],
    request: &[&[u8]],
) -> Result<Option<[u8; 16]>, RequestError> {
    if key.len() > RETRY_KEY_BYTES_MAX {
        return Err(RequestError::KeyTooLong { limit: RETRY_KEY_BYTES_MAX });
    }
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    for part in request.iter().filter(|_| !planted(Bug::KeyAlone)) {
        hasher.update(part);
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Ok((!key.is_empty()).then_some(digest))
}

/// Converts a visitor's name to the form used in memory and in snapshots.
#[must_use]
pub fn visitor_id(name: &[u8]) -> VisitorId {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::hash(name).as_bytes()[..16]);
    VisitorId(id)
}

/// Returns the plan for one row. The row's spans refer to `text`.
#[expect(
    clippy::inline_always,
    reason = "without inlining, the result is stored field by field and loaded at once, which \
        causes a store-forwarding stall (measured)"
)]
#[inline(always)]
#[must_use]
pub fn plan(directory: &Directory, text: &[u8], row: &Row) -> RowPlan {
    let ask = match &row.ask {
        Ok(ask) => ask,
        Err(error) => return RowPlan::Fail(*error),
    };
    let entry = directory.lookup(ask.pool);
    let is_open = directory.check_key(entry, ask.key.of(text));
    match entry {
        Some(entry) if is_open => RowPlan::Allocate(Owner {
            shard: entry.shard(),
            index: entry.index(),
            overflow: entry.overflow(),
            is_tracked: entry.is_tracked(),
        }),
        // Clients without the key cannot see whether the pool exists.
        _ => RowPlan::Fail(RowError::InvalidKey { key: ask.key, pool: ask.pool_text }),
    }
}

/// Returns the plan for each row. For rows owned by `shard`, prefetches the memory that `engine`
/// reads first, so that [`serve`] waits less for it.
pub fn plans<'a>(
    directory: &'a Directory,
    engine: &'a Engine,
    shard: u16,
    text: &'a [u8],
    rows: &'a [Row],
) -> impl Iterator<Item = RowPlan> + 'a {
    rows.iter().map(move |row| {
        let plan = plan(directory, text, row);
        if let RowPlan::Allocate(owner) = plan
            && owner.shard == shard
        {
            fetch_next(engine, owner.index);
        }
        plan
    })
}

/// Prefetches the memory that a pool's next allocation reads first, if the processor has an
/// instruction for it.
#[inline]
fn fetch_next(engine: &Engine, pool: u32) {
    let Some(slot) = engine.shard().next_slot(pool) else { return };
    #[cfg(target_arch = "x86_64")]
    safe_arch::prefetch_t0(slot);
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(slot.locked_until);
}

/// Rows and their plans, in request order.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// The text that the rows' spans refer to.
    pub text: &'a [u8],
    /// The rows.
    pub rows: &'a [Row],
    /// One plan per row.
    pub plans: &'a [RowPlan],
    /// The batch's digest, if the batch is repeatable; see [`batch_digest`].
    pub retry: Option<[u8; 16]>,
}

/// Serves the rows that `shard` owns. `now` was returned by [`Engine::at`]. The outcomes of other
/// rows are not changed.
#[inline]
pub fn serve(
    engine: &mut Engine,
    shard: u16,
    now: Millis,
    planned: &Planned<'_>,
    outcomes: &mut [Outcome],
) {
    let Planned { text, rows, plans, retry } = *planned;
    let retry = retry.filter(|_| !planted(Bug::RetryForgotten));
    // All slices are traversed with one index. An iterator over a range would need additional
    // state.
    for (row, ((plan, asked), outcome)) in plans.iter().zip(rows).zip(outcomes).enumerate() {
        let (RowPlan::Allocate(owner), Ok(ask)) = (plan, &asked.ask) else { continue };
        if owner.shard != shard {
            continue;
        }
        let params = ask.params.map(|span| span.of(text));
        let mut wanted =
            Ask { pool: owner.index, id: ask.pool, params, visitor: None, retry: None };
        if ask.visitor.is_some() || retry.is_some() {
            wanted.visitor = ask.visitor.map(|span| visitor_id(span.of(text)));
            wanted.retry = retry.map(|batch| row_key(batch, row));
        }
        engine.allocate(now, &wanted, outcome);
        // Prefetching for the next allocation helps later batches: if there are few pools, the
        // memory is still cached when they need it.
        fetch_next(engine, owner.index);
    }
}

/// Identifies a row of a repeatable batch. A batch has fewer rows than there are 16-bit integers.
#[cold]
fn row_key(batch: [u8; 16], row: usize) -> RowKey {
    RowKey { batch, row: u16::try_from(row).unwrap_or(u16::MAX) }
}

/// Whether an answer is a promise that must not be forgotten: it contains a number or, in a
/// repeatable batch, reports that there was none.
#[must_use]
pub fn is_promise(outcome: &Outcome, is_repeatable: bool) -> bool {
    match outcome {
        Outcome::Kept { .. } if planted(Bug::KeptNotPromised) => false,
        Outcome::Allocated { .. } | Outcome::Kept { .. } => true,
        Outcome::Exhausted { .. } => is_repeatable,
        Outcome::Refused(_) => false,
    }
}

/// Returns the answer to a row. If an owner had no number for the row, also returns the reason.
/// `now` is called only if the answer contains the time to wait before another attempt.
#[inline]
#[must_use]
pub fn answer<'a>(
    directory: &'a Directory,
    row: &Row,
    plan: &RowPlan,
    outcome: Outcome,
    now: impl FnOnce() -> Millis,
) -> (ResponseRow<'a>, Option<Shortage>) {
    let (owner, pool) = match (plan, &row.ask) {
        (RowPlan::Allocate(owner), Ok(ask)) => (owner, ask.pool),
        (RowPlan::Fail(error), _) | (_, Err(error)) => return (ResponseRow::Error(*error), None),
    };
    let tracking = || {
        let entry = owner.is_tracked.then(|| directory.lookup(pool)).flatten()?;
        let of = entry.tracking()?;
        Some(Tracking { base: &of.base_url, destination: &of.destination_url })
    };
    let shortage = match outcome {
        Outcome::Allocated { number } | Outcome::Kept { number } => {
            return (ResponseRow::Number { number, overflow: false, tracking: tracking() }, None);
        }
        Outcome::Exhausted { until } => Shortage::Exhausted(until),
        Outcome::Refused(refusal) => Shortage::Refused(refusal),
    };
    let answer = match (owner.overflow, shortage) {
        (Some(number), _) => ResponseRow::Number { number, overflow: true, tracking: tracking() },
        (None, Shortage::Refused(_)) => ResponseRow::Error(RowError::Unavailable { pool }),
        (None, Shortage::Exhausted(_)) if is_empty(directory, pool) => {
            ResponseRow::Error(RowError::NoNumbers { pool })
        }
        (None, Shortage::Exhausted(until)) => {
            let wait_ms = until.since(now()).0;
            ResponseRow::Error(RowError::PoolExhausted { pool, wait_ms })
        }
    };
    (answer, Some(shortage))
}

/// Whether a pool has no numbers at all. If so, waiting for one is pointless.
#[cold]
fn is_empty(directory: &Directory, pool: PoolId) -> bool {
    directory.pool(pool).is_some_and(|pool| pool.numbers().is_empty())
}
