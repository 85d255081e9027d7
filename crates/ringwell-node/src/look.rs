//! What a shard knows of its pools, for whoever manages them.
//!
//! Owns the questions and how a shard's thread answers them. Each is short: what concerns many
//! pools is asked in parts, so that rows pass between them.

use ringwell_core::{Millis, NumberRange, PoolCounts, PoolId, PromoNumber};
use ringwell_engine::{Engine, lifetime};
use tokio::sync::oneshot;

use crate::live::{PoolAsked, PoolState};
use crate::shard::ShardThread;
use crate::stats::Reason;

/// Where a pool is in its shard, and which it was when that was looked up.
pub(crate) type Place = (u32, PoolId);

/// A question about pools. Those that the shard does not have (any more) are left out.
#[derive(Debug)]
pub(crate) enum Look {
    /// What it is doing now: takes a look at each of its numbers.
    State { place: Place, reply: oneshot::Sender<Option<PoolState>> },
    /// What was asked of pools so far: cheap.
    Asked { places: Vec<Place>, reply: oneshot::Sender<Vec<PoolAsked>> },
    /// Which numbers of it nobody has held since a moment.
    Unused { place: Place, since: Millis, reply: oneshot::Sender<Vec<NumberRange>> },
    /// Why rows for it that this thread took in had no number, though the pool was not exhausted.
    Refused { pool: PoolId, reply: oneshot::Sender<[u64; Reason::ALL.len()]> },
    /// The same counts of the pools that have most of them, at most so many pools.
    MostRefused { pools: usize, reply: oneshot::Sender<Vec<(PoolId, u64)>> },
}

/// Answers on the shard's thread.
pub(crate) fn answer(thread: &ShardThread, look: Look) {
    // Whoever asked may have gone.
    match look {
        Look::State { place, reply } => {
            // The time is the engine's too.
            let now = thread.now();
            let state = state(&thread.engine.borrow(), now, thread.id, place);
            let _ = reply.send(state);
        }
        Look::Asked { places, reply } => {
            let engine = thread.engine.borrow();
            let _ = reply.send(places.into_iter().filter_map(|at| asked(&engine, at)).collect());
        }
        Look::Unused { place, since, reply } => {
            let _ = reply.send(unused(&thread.engine.borrow(), place, since));
        }
        Look::Refused { pool, reply } => {
            let _ = reply.send(thread.stats.refused_of(pool));
        }
        Look::MostRefused { pools, reply } => {
            let _ = reply.send(thread.stats.most_refused(pools));
        }
    }
}

fn state(engine: &Engine, now: Millis, shard: u16, (index, pool): Place) -> Option<PoolState> {
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

fn asked(engine: &Engine, (index, pool): Place) -> Option<PoolAsked> {
    let rules = engine.shard();
    if !rules.is_pool(index, pool) {
        return None;
    }
    let PoolCounts { allocated, exhausted } = rules.counts(index);
    let lifetime = lifetime(rules.lifetime(index));
    let numbers = small(rules.pool_slots(index).len());
    Some(PoolAsked { pool, numbers, lifetime, allocated, exhausted })
}

/// Numbers in a row make one range.
fn unused(engine: &Engine, (index, pool): Place, since: Millis) -> Vec<NumberRange> {
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
                    if first.to_u64() + u64::from(*count) == slot.number.to_u64() =>
                {
                    *count += 1;
                }
                _ => ranges.push((slot.number, 1)),
            }
        }
    }
    ranges.into_iter().filter_map(|(first, count)| NumberRange::new(first, count)).collect()
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
