//! Maps numbers in rotation and overflow numbers to their pools.
//!
//! When pools change, checks that their numbers do not clash with those of other pools; `check.rs`
//! checks a complete list of pools. A clone shares nearly all of its memory with the original.
//! Invariants: if [`Rotation::put`] found no clash, ranges in rotation do not overlap, and none of
//! them contains an overflow number.

use std::sync::Arc;

use ringwell_core::{NumberRange, PoolId, PromoNumber};

use crate::RingPool;
use crate::check::Clash;
use crate::sorted::Sorted;

#[derive(Clone, Debug, Default)]
pub(crate) struct Rotation {
    /// The ranges in rotation.
    runs: Sorted<Run>,
    /// Overflow numbers, each with its pool.
    overflow: Sorted<(PromoNumber, PoolId)>,
    /// Numbers in rotation.
    count: u64,
}

/// A run of consecutive numbers, and their pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u64,
    last: u64,
    pool: PoolId,
}

impl Run {
    const fn new(range: NumberRange, pool: PoolId) -> Self {
        Self { first: range.first().to_e164(), last: range.last().to_e164(), pool }
    }

    /// A value that sorts before every run that begins with `number`.
    const fn before(number: PromoNumber) -> Self {
        Self { first: number.to_e164(), last: 0, pool: PoolId(0) }
    }

    /// A value that sorts after every run that begins with `number`.
    const fn behind(number: PromoNumber) -> Self {
        Self { first: number.to_e164(), last: u64::MAX, pool: PoolId(0) }
    }
}

impl Rotation {
    /// Builds the rotation of `pools`, which must have been checked against each other.
    pub(crate) fn new(pools: &[Arc<RingPool>]) -> Self {
        let runs = |pool: &Arc<RingPool>| {
            let id = pool.id();
            pool.numbers().iter().map(|range| Run::new(*range, id)).collect::<Vec<_>>()
        };
        let overflow = pools.iter().filter_map(|pool| Some((pool.overflow()?, pool.id())));
        Self {
            runs: Sorted::new(pools.iter().flat_map(runs).collect()),
            overflow: Sorted::new(overflow.collect()),
            count: pools.iter().map(|pool| pool.number_count()).sum(),
        }
    }

    /// The count of numbers in rotation.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The pool that has `number` in its rotation.
    pub(crate) fn pool(&self, number: PromoNumber) -> Option<PoolId> {
        let run = self.runs.up_to(Run::behind(number))?;
        (number.to_e164() <= run.last).then_some(run.pool)
    }

    /// The pools that have numbers from `range` in their rotation, ordered by these numbers.
    pub(crate) fn pools(&self, range: NumberRange) -> impl Iterator<Item = PoolId> {
        let first = self.pool(range.first());
        let last = range.last().to_e164();
        let after = self.runs.from(Run::behind(range.first()));
        first.into_iter().chain(after.take_while(move |run| run.first <= last).map(|run| run.pool))
    }

    /// The pools whose overflow number is `number`, in the order of their ids.
    pub(crate) fn overflow_pools(&self, number: PromoNumber) -> impl Iterator<Item = PoolId> {
        let of = self.overflow.from((number, PoolId(0)));
        of.take_while(move |(other, _)| *other == number).map(|(_, pool)| pool)
    }

    /// Removes all numbers of `pool`.
    pub(crate) fn remove(&mut self, pool: &RingPool) {
        for range in pool.numbers() {
            self.runs.remove(Run::new(*range, pool.id()));
        }
        if let Some(number) = pool.overflow() {
            self.overflow.remove((number, pool.id()));
        }
        self.count -= pool.number_count();
    }

    /// Adds the numbers of `pools`, which must not have been added yet. Returns every broken rule.
    /// If any rule is broken, this value must not be used afterwards.
    pub(crate) fn put(&mut self, pools: &[Arc<RingPool>]) -> Vec<Clash> {
        let mut found = Vec::new();
        for (place, pool) in pools.iter().enumerate() {
            for range in pool.numbers() {
                if let Some((number, other)) = self.shared(*range) {
                    found.push(Clash {
                        pool: place,
                        field: "numbers",
                        message: format!("{number} is in ring pool {other} too"),
                        hint: "a number can be in one pool only",
                    });
                } else {
                    self.runs.insert(Run::new(*range, pool.id()));
                }
            }
            if let Some(number) = pool.overflow() {
                self.overflow.insert((number, pool.id()));
            }
            self.count += pool.number_count();
        }
        for (place, pool) in pools.iter().enumerate() {
            self.overflow_in_rotation(place, pool, &mut found);
        }
        found.sort_by_key(|clash| clash.pool);
        found
    }

    /// The first number of `range` that is already in rotation, and its pool.
    fn shared(&self, range: NumberRange) -> Option<(PromoNumber, PoolId)> {
        if let Some(pool) = self.pool(range.first()) {
            return Some((range.first(), pool));
        }
        let next = self.runs.from(Run::before(range.first())).next()?;
        let first = PromoNumber::from_e164(next.first)?;
        (first <= range.last()).then_some((first, next.pool))
    }

    /// Adds clashes to `found`: the overflow number of `pool` in another pool's rotation, or
    /// another pool's overflow number in the rotation of `pool`.
    fn overflow_in_rotation(&self, place: usize, pool: &RingPool, found: &mut Vec<Clash>) {
        let clash = |field, message| Clash {
            pool: place,
            field,
            message,
            hint: "many visitors share an overflow number: take it out of rotation",
        };
        if let Some(number) = pool.overflow()
            && let Some(other) = self.pool(number)
        {
            let message = format!("{number} is in the rotation of ring pool {other}");
            found.push(clash("overflow_number", message));
        }
        for range in pool.numbers() {
            let from = self.overflow.from((range.first(), PoolId(0))).next();
            if let Some((number, other)) = from.filter(|(number, _)| *number <= range.last()) {
                let message = format!("{number} is the overflow number of ring pool {other}");
                found.push(clash("numbers", message));
            }
        }
    }
}

#[cfg(test)]
mod tests;
