//! Queries about a shard's pools, for management.
//!
//! Defines the queries, and answers them on the shard's thread. Each query takes little time. A
//! query about many pools is sent in parts, so that the shard can serve rows between the parts.

use ringwell_core::{Millis, NumberRange, PoolCounts, PoolId, PromoNumber};
use ringwell_engine::{Engine, lifetime};
use tokio::sync::oneshot;

use crate::node::Begun;
use crate::stats::{Reason, Stats};

/// A pool's index in its shard, and the pool's id at the time when the index was looked up.
pub type PoolSlot = (u32, PoolId);

/// A query about pools. Pools that the shard does not have, or no longer has, are omitted from the
/// answer.
#[derive(Debug)]
pub enum PoolQuery {
    /// Asks for the pool's current state. The shard reads every number of the pool.
    State {
        /// The pool.
        place: PoolSlot,
        /// Receives `None` if the shard does not have the pool.
        reply: oneshot::Sender<Option<PoolState>>,
    },
    /// Asks how many requests each pool has received so far. Cheap.
    Asked {
        /// The pools.
        places: Vec<PoolSlot>,
        /// Receives the counts of those pools that the shard has.
        reply: oneshot::Sender<Vec<PoolAsked>>,
    },
    /// Asks which of a pool's numbers no visitor has held since a given time.
    Unused {
        /// The pool.
        place: PoolSlot,
        /// The moment.
        since: Millis,
        /// Receives the numbers; consecutive numbers form one range. `None` if it is not known
        /// which numbers visitors have held since that time.
        reply: oneshot::Sender<Option<Vec<NumberRange>>>,
    },
    /// Asks how long the pool's numbers have rested, that is, how long no visitor has held them.
    /// The shard reads every number of the pool.
    Rested {
        /// The pool.
        place: PoolSlot,
        /// Receives `None` if the shard does not have the pool.
        reply: oneshot::Sender<Option<Rested>>,
    },
    /// Asks why rows for a pool got an overflow number or no number although the pool was not
    /// exhausted. Covers the rows that this thread received.
    Refused {
        /// The pool.
        pool: PoolId,
        /// Receives the counts, in the order of [`Reason::ALL`].
        reply: oneshot::Sender<[u64; Reason::ALL.len()]>,
    },
    /// Asks for the pools with the most rows that [`Self::Refused`] counts.
    MostRefused {
        /// The maximum number of pools in the answer.
        pools: usize,
        /// Receives these pools, each with its count of such rows.
        reply: oneshot::Sender<Vec<(PoolId, u64)>>,
    },
}

/// The bounds between the counts in [`Rested::rested`], as multiples of the pool's lifetime.
pub const REST_BOUNDS: [u64; 5] = [1, 2, 5, 10, 50];

/// A pool's numbers, counted by the time since a visitor last held them. The longer numbers rest,
/// the fewer calls from earlier visitors are attributed to later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rested {
    /// The count of numbers that are locked out now.
    pub held: u32,
    /// The count of numbers that no visitor has ever held, according to the shard's records.
    pub never: u32,
    /// The counts of all other numbers. The first entry counts numbers that have rested for less
    /// than the first bound. The last entry counts numbers that have rested for at least the last
    /// bound.
    pub rested: [u32; REST_BOUNDS.len() + 1],
}

/// The current state of a pool in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The pool.
    pub pool: PoolId,
    /// The shard that owns the pool.
    pub shard: u16,
    /// Numbers in rotation.
    pub numbers: u32,
    /// The count of numbers in rotation that are locked.
    pub locked: u32,
    /// The time when the next number can be handed out, after its lockout and the pool's hold;
    /// `None` if a number can be handed out now.
    pub next_free: Option<Millis>,
    /// The count of numbers handed out since the pool came to this process, modulo 2^32.
    pub allocated: u32,
    /// The count of rows for which every number was locked, also modulo 2^32.
    pub exhausted: u32,
}

/// The requests to a pool so far. Counts are modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAsked {
    /// The pool.
    pub pool: PoolId,
    /// Numbers in rotation.
    pub numbers: u32,
    /// The guaranteed lifetime of an allocation.
    pub lifetime: Millis,
    /// The count of numbers handed out since the pool came to this process.
    pub allocated: u32,
    /// The count of rows for which every number was locked.
    pub exhausted: u32,
    /// The count of keep-alives.
    pub kept: u32,
    /// The milliseconds by which keep-alives have lengthened lockouts, minus those by which
    /// releases have shortened lockouts. Not modulo 2^32.
    pub lengthened: i64,
    /// Whether the pool is held. If so, every row is counted in `exhausted`.
    pub is_held: bool,
}

/// Answers a query on the shard's thread; `now` is the engine's time, and `node` contains the facts
/// found at startup.
pub fn answer(
    shard: u16,
    engine: &Engine,
    now: Millis,
    (node, stats): (&Begun, &Stats),
    query: PoolQuery,
) {
    // If the requesting task has ended, the answer is dropped.
    match query {
        PoolQuery::State { place, reply } => {
            let _ = reply.send(state(engine, now, shard, place));
        }
        PoolQuery::Asked { places, reply } => {
            let _ =
                reply.send(places.into_iter().filter_map(|at| asked(engine, now, at)).collect());
        }
        PoolQuery::Unused { place, since, reply } => {
            let _ = reply.send(unused(engine, place, since, node.forgotten_until));
        }
        PoolQuery::Rested { place, reply } => {
            let _ = reply.send(rested(engine, now, place));
        }
        PoolQuery::Refused { pool, reply } => {
            let _ = reply.send(stats.refused_of(pool));
        }
        PoolQuery::MostRefused { pools, reply } => {
            let _ = reply.send(stats.most_refused(pools));
        }
    }
}

fn state(engine: &Engine, now: Millis, shard: u16, (index, pool): PoolSlot) -> Option<PoolState> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let PoolCounts { allocated, exhausted, .. } = rules.counts(index);
    let numbers = rules.pool_slots(index).len();
    let next_free = rules.next_free(index, now);
    let locked = rules.locked(index, now);
    let (numbers, locked) = (small(numbers), small(locked));
    Some(PoolState { pool, shard, numbers, locked, next_free, allocated, exhausted })
}

fn asked(engine: &Engine, now: Millis, (index, pool): PoolSlot) -> Option<PoolAsked> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let PoolCounts { allocated, exhausted, kept, lengthened } = rules.counts(index);
    let lifetime = lifetime(rules.lockout(index));
    let numbers = small(rules.pool_slots(index).len());
    let is_held = rules.held_until(index) > now;
    Some(PoolAsked { pool, numbers, lifetime, allocated, exhausted, kept, lengthened, is_held })
}

/// Returns the numbers that no visitor has held since `since`; consecutive numbers form one range.
/// Returns `None` if the shard's state may lack allocations that were made after `since`.
/// Allocations may be missing if they were made before `forgotten_until`, or if the pool was held
/// after `since`. A pool is held whenever allocations may be missing.
fn unused(
    engine: &Engine,
    (index, pool): PoolSlot,
    since: Millis,
    forgotten_until: Millis,
) -> Option<Vec<NumberRange>> {
    let rules = engine.shard();
    let mut ranges: Vec<(PromoNumber, u32)> = Vec::new();
    if rules.is_pool(index, pool) {
        if rules.held_until(index).max(forgotten_until) > since {
            return None;
        }
        let run = rules.pool_slots(index);
        for slot in rules.slots().get(run.start as usize..run.end as usize).unwrap_or_default() {
            if slot.locked_until > since {
                continue;
            }
            match ranges.last_mut() {
                Some((first, count))
                    if first.to_e164() + u64::from(*count) == slot.number.to_e164() =>
                {
                    *count += 1;
                }
                _ => ranges.push((slot.number, 1)),
            }
        }
    }
    Some(ranges.into_iter().filter_map(|(first, count)| NumberRange::new(first, count)).collect())
}

fn rested(engine: &Engine, now: Millis, (index, pool): PoolSlot) -> Option<Rested> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let lifetime = lifetime(rules.lockout(index)).0.max(1);
    let run = rules.pool_slots(index);
    let mut counts = Rested::default();
    for slot in rules.slots().get(run.start as usize..run.end as usize).unwrap_or_default() {
        if !slot.is_free(now) {
            counts.held += 1;
        } else if slot.locked_until == Millis::ZERO {
            counts.never += 1;
        } else {
            let lifetimes = now.since(slot.locked_until).0 / lifetime;
            counts.rested[REST_BOUNDS.partition_point(|bound| *bound <= lifetimes)] += 1;
        }
    }
    Some(counts)
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
