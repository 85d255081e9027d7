//! The locations of all numbers in rotation, stored as runs of consecutive numbers. Each run is
//! stored with its first slot and its pool.
//!
//! A pool's numbers are given as ranges, and the numbers in a range have consecutive slots. A range
//! of any length is therefore stored as a single run. Does not depend on the contents of the slots.
//! Invariant: no number is in two runs.

use alloc::collections::BTreeMap;

use crate::{NumberRange, PromoNumber};

#[derive(Clone, Copy, Debug)]
struct Run {
    range: NumberRange,
    /// The slot of the run's first number.
    slot: u32,
    /// The index of the run's pool.
    pool: u32,
}

/// All runs of a shard, ordered by their first numbers.
#[derive(Debug, Default)]
pub(crate) struct Runs(BTreeMap<PromoNumber, Run>);

/// The location of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunSlot {
    pub(crate) slot: u32,
    pub(crate) pool: u32,
}

impl Runs {
    /// Returns the location of `number`, or `None` if it is in no pool.
    pub(crate) fn find(&self, number: PromoNumber) -> Option<RunSlot> {
        let (_, run) = self.0.range(..=number).next_back()?;
        let offset = u32::try_from(number.to_e164() - run.range.first().to_e164()).ok()?;
        let is_here = offset < run.range.count();
        is_here.then(|| RunSlot { slot: run.slot + offset, pool: run.pool })
    }

    /// Returns the parts of runs that lie within `range`, each with the slot of its first number.
    pub(crate) fn overlaps(&self, range: NumberRange) -> impl Iterator<Item = (NumberRange, u32)> {
        let before = self.0.range(..range.first()).next_back();
        let within = self.0.range(range.first()..=range.last());
        before.into_iter().chain(within).filter_map(move |(_, run)| {
            let first = run.range.first().max(range.first());
            let last = run.range.last().min(range.last());
            let count = (last.to_e164() + 1).checked_sub(first.to_e164())?;
            let skipped = first.to_e164() - run.range.first().to_e164();
            let slot = run.slot + u32::try_from(skipped).ok()?;
            Some((NumberRange::new(first, u32::try_from(count).ok()?)?, slot))
        })
    }

    /// The run that begins with `first`.
    pub(crate) fn beginning(&self, first: PromoNumber) -> Option<NumberRange> {
        self.0.get(&first).map(|run| run.range)
    }

    /// The first number of `range` that belongs to a pool other than `pool`.
    pub(crate) fn taken(&self, range: NumberRange, pool: u32) -> Option<PromoNumber> {
        let before = self.0.range(..=range.first()).next_back();
        let within = self.0.range(range.first()..=range.last());
        let mut runs = before.into_iter().chain(within).map(|(_, run)| run);
        let run = runs.find(|run| run.pool != pool && run.range.last() >= range.first())?;
        let number = run.range.first().max(range.first());
        assert!(
            range.contains(number) && run.range.contains(number),
            "the number is not in both ranges"
        );
        Some(number)
    }

    /// Adds a run: the numbers of `range` have consecutive slots starting at `slot`, and belong to
    /// `pool`.
    ///
    /// # Panics
    /// Panics if one of the numbers is in a run already. The directory rules this out, and callers
    /// check it.
    pub(crate) fn insert(&mut self, range: NumberRange, slot: u32, pool: u32) {
        assert!(self.taken(range, u32::MAX).is_none(), "a number is in two pools");
        self.0.insert(range.first(), Run { range, slot, pool });
    }

    /// Removes the run that begins with `first`.
    pub(crate) fn remove(&mut self, first: PromoNumber) {
        assert!(self.0.remove(&first).is_some(), "a run was removed twice");
    }
}

#[cfg(test)]
mod tests;
