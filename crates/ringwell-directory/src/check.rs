//! Checks ring pools for conflicts with each other.
//!
//! Owns the rules that apply across pools: ids and numbers are unique, and an overflow number is in
//! no pool's rotation. Independent of the source of the pools: a pool is identified by its index in
//! a list.

use std::borrow::Borrow;

use ringwell_core::{PoolId, PromoNumber};

use crate::RingPool;

/// A conflict between two pools: one of the rules is broken.
#[derive(Debug, PartialEq, Eq)]
pub struct Clash {
    /// The index of the later of the two pools in the checked list.
    pub pool: usize,
    /// The field that breaks the rule.
    pub field: &'static str,
    /// A description of the rule and of how it is broken.
    pub message: String,
    /// A suggested correction.
    pub hint: &'static str,
}

/// A run of consecutive numbers, and their pool.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: PromoNumber,
    last: PromoNumber,
    /// An index into the list of pools. Lists are shorter than 2^32: see `Directory::POOLS_MAX`.
    pool: u32,
}

/// All conflicts between `pools`, in the order of the pools.
#[must_use]
pub fn clashes<P: Borrow<RingPool>>(pools: &[P]) -> Vec<Clash> {
    let mut found = Vec::new();
    same_ids(pools, &mut found);
    let runs = runs(pools);
    shared_numbers(pools, &runs, &mut found);
    overflow_in_rotation(pools, &runs, &mut found);
    found.sort_by_key(|clash| clash.pool);
    found
}

/// The ranges of all pools, sorted by their first numbers.
fn runs<P: Borrow<RingPool>>(pools: &[P]) -> Vec<Run> {
    let mut runs: Vec<Run> = (0..)
        .zip(pools)
        .flat_map(|(pool, ring_pool)| {
            let run = move |range: &ringwell_core::NumberRange| Run {
                first: range.first(),
                last: range.last(),
                pool,
            };
            ring_pool.borrow().numbers().iter().map(run)
        })
        .collect();
    runs.sort_unstable_by_key(|run| (run.first, run.pool));
    runs
}

/// The pool that has `number` in its rotation, provided that `runs` do not overlap.
fn owner(runs: &[Run], number: PromoNumber) -> Option<u32> {
    let after = runs.partition_point(|run| run.first <= number);
    let run = runs[..after].last()?;
    (number <= run.last).then_some(run.pool)
}

fn same_ids<P: Borrow<RingPool>>(pools: &[P], found: &mut Vec<Clash>) {
    let mut ids: Vec<(PoolId, usize)> =
        pools.iter().enumerate().map(|(place, pool)| (pool.borrow().id(), place)).collect();
    ids.sort_unstable();
    let twice = ids.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    found.extend(twice.map(|pair| same_id(pair[1].1, pair[1].0)));
}

/// Reports that the pool at index `pool` has the same id as another pool.
pub(crate) fn same_id(pool: usize, id: PoolId) -> Clash {
    Clash {
        pool,
        field: "id",
        message: format!("another pool already has the id {id}"),
        hint: "give each pool a different id",
    }
}

fn shared_numbers<P: Borrow<RingPool>>(pools: &[P], runs: &[Run], found: &mut Vec<Clash>) {
    // The run with the greatest last number so far. A later run that starts before the end of this
    // one shares a number with it.
    let mut furthest: Option<Run> = None;
    for &run in runs {
        if let Some(other) = furthest.filter(|other| run.first <= other.last) {
            let later = run.pool.max(other.pool) as usize;
            let earlier = run.pool.min(other.pool) as usize;
            found.push(Clash {
                pool: later,
                field: "numbers",
                message: format!(
                    "{} is in ring pool {} too",
                    run.first,
                    pools[earlier].borrow().id()
                ),
                hint: "a number can be in one pool only",
            });
        }
        if furthest.is_none_or(|other| run.last > other.last) {
            furthest = Some(run);
        }
    }
}

fn overflow_in_rotation<P: Borrow<RingPool>>(pools: &[P], runs: &[Run], found: &mut Vec<Clash>) {
    for (place, pool) in pools.iter().enumerate() {
        let Some(overflow) = pool.borrow().overflow() else { continue };
        let Some(other) = owner(runs, overflow) else { continue };
        found.push(Clash {
            pool: place,
            field: "overflow_number",
            message: format!(
                "{overflow} is in the rotation of ring pool {}",
                pools[other as usize].borrow().id()
            ),
            hint: "many visitors share an overflow number: take it out of rotation",
        });
    }
}
