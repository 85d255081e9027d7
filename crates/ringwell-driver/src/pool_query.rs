//! Queries about a shard's pools, for management.
//!
//! Owns the queries and how a shard's thread answers them. Each query is short: those about many
//! pools are sent in parts, so that rows are served in between.

use ringwell_core::{Millis, NumberRange, PoolCounts, PoolId, PromoNumber};
use ringwell_engine::{Engine, lifetime};
use tokio::sync::oneshot;

use crate::stats::{Reason, Stats};

/// A pool's index in its shard, and its generation at the time of the look-up.
pub type PoolSlot = (u32, PoolId);

/// A query about pools. Pools that the shard does not have (any more) are omitted.
#[derive(Debug)]
pub enum PoolQuery {
    /// The pool's present state; reads each of its numbers.
    State {
        /// The pool.
        place: PoolSlot,
        /// `None` if the shard does not have it.
        reply: oneshot::Sender<Option<PoolState>>,
    },
    /// The count of requests to pools so far; cheap.
    Asked {
        /// The pools.
        places: Vec<PoolSlot>,
        /// The requested pools that the shard has.
        reply: oneshot::Sender<Vec<PoolAsked>>,
    },
    /// The numbers of a pool that have not been held since a given time.
    Unused {
        /// The pool.
        place: PoolSlot,
        /// The moment.
        since: Millis,
        /// Consecutive numbers make one range.
        reply: oneshot::Sender<Vec<NumberRange>>,
    },
    /// The time for which its numbers have rested; reads each of them.
    Rested {
        /// The pool.
        place: PoolSlot,
        /// `None` if the shard does not have it.
        reply: oneshot::Sender<Option<Rested>>,
    },
    /// The reasons why rows that this thread received for a pool got no number, although the pool
    /// was not exhausted.
    Refused {
        /// The pool.
        pool: PoolId,
        /// Counts by [`Reason::ALL`].
        reply: oneshot::Sender<[u64; Reason::ALL.len()]>,
    },
    /// The same counts for the pools with the most of them.
    MostRefused {
        /// The maximum count of pools.
        pools: usize,
        /// Each pool with the sum of its counts.
        reply: oneshot::Sender<Vec<(PoolId, u64)>>,
    },
}

/// Bounds between the counts of [`Rested`], in lifetimes of the pool.
pub const REST_BOUNDS: [u64; 5] = [1, 2, 5, 10, 50];

/// A pool's numbers by the time since a visitor held them. The longer they rest, the fewer late
/// calls are attributed to the next visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rested {
    /// Numbers that are locked out now.
    pub held: u32,
    /// Numbers that no visitor has held, by the shard's records.
    pub never: u32,
    /// All others: the first count is of those that rested less than the first bound, the last one
    /// of those that rested at least the last bound.
    pub rested: [u32; REST_BOUNDS.len() + 1],
}

/// The present state of a pool in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The pool.
    pub pool: PoolId,
    /// The shard that owns it.
    pub shard: u16,
    /// Numbers in rotation.
    pub numbers: u32,
    /// The count of locked numbers among them.
    pub locked: u32,
    /// The time when the next number becomes free, if none is free, or when the pool's hold ends.
    pub next_free: Option<Millis>,
    /// Numbers handed out since the pool came to this process; counted modulo 2^32.
    pub allocated: u32,
    /// Rows that found every number locked, counted in the same way.
    pub exhausted: u32,
}

/// The count of requests to a pool so far. Counts are modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAsked {
    /// The pool.
    pub pool: PoolId,
    /// Numbers in rotation.
    pub numbers: u32,
    /// The guaranteed lifetime of an allocation.
    pub lifetime: Millis,
    /// Numbers handed out since the pool came to this process.
    pub allocated: u32,
    /// Rows that found every number locked.
    pub exhausted: u32,
}

/// Answers on the shard's thread; `now` is the engine's time.
pub fn answer(shard: u16, engine: &Engine, now: Millis, stats: &Stats, query: PoolQuery) {
    // The requesting task may have ended.
    match query {
        PoolQuery::State { place, reply } => {
            let _ = reply.send(state(engine, now, shard, place));
        }
        PoolQuery::Asked { places, reply } => {
            let _ = reply.send(places.into_iter().filter_map(|at| asked(engine, at)).collect());
        }
        PoolQuery::Unused { place, since, reply } => {
            let _ = reply.send(unused(engine, place, since));
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
    let PoolCounts { allocated, exhausted } = rules.counts(index);
    let numbers = rules.pool_slots(index).len();
    let next_free = rules.next_free(index, now);
    let locked = rules.locked(index, now);
    let (numbers, locked) = (small(numbers), small(locked));
    Some(PoolState { pool, shard, numbers, locked, next_free, allocated, exhausted })
}

fn asked(engine: &Engine, (index, pool): PoolSlot) -> Option<PoolAsked> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let PoolCounts { allocated, exhausted } = rules.counts(index);
    let lifetime = lifetime(rules.lifetime(index));
    let numbers = small(rules.pool_slots(index).len());
    Some(PoolAsked { pool, numbers, lifetime, allocated, exhausted })
}

/// Consecutive numbers make one range.
fn unused(engine: &Engine, (index, pool): PoolSlot, since: Millis) -> Vec<NumberRange> {
    let rules = engine.shard();
    let mut ranges: Vec<(PromoNumber, u32)> = Vec::new();
    if rules.is_pool(index, pool) {
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
    ranges.into_iter().filter_map(|(first, count)| NumberRange::new(first, count)).collect()
}

fn rested(engine: &Engine, now: Millis, (index, pool): PoolSlot) -> Option<Rested> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let lifetime = lifetime(rules.lifetime(index)).0.max(1);
    let run = rules.pool_slots(index);
    let mut counts = Rested::default();
    for slot in rules.slots().get(run.start as usize..run.end as usize).unwrap_or_default() {
        if slot.locked_until > now {
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
