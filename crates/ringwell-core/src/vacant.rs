//! Runs of vacant slots, which growing pools take.
//!
//! Slots never move: a pool whose numbers change takes another run and returns its old run. Each
//! operation takes a few lookups, regardless of the number of runs. Invariants: runs neither touch
//! nor overlap, and the indexes by first slot and by length contain the same runs.

use alloc::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Vacant {
    /// The length of each vacant run, by its first slot.
    lengths: BTreeMap<u32, u32>,
    /// The vacant runs, as pairs of length and first slot.
    by_length: BTreeSet<(u32, u32)>,
    /// The count of vacant slots.
    count: usize,
}

impl Vacant {
    /// Takes `count` consecutive slots from the shortest run that is long enough, if there is one.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let &(length, base) = self.by_length.range((count, 0)..).next()?;
        assert!(self.remove(base) == Some(length), "the two indexes of vacant runs differ");
        if length > count {
            self.insert(base + count, length - count);
        }
        Some(base)
    }

    /// Returns the count of consecutive vacant slots before `end`.
    pub(crate) fn before(&self, end: u32) -> u32 {
        let last = self.lengths.range(..end).next_back();
        last.filter(|(base, length)| *base + *length == end).map_or(0, |(_, length)| *length)
    }

    /// Whether there are `count` consecutive vacant slots.
    pub(crate) fn has(&self, count: u32) -> bool {
        self.by_length.last().is_some_and(|(length, _)| *length >= count)
    }

    /// The count of vacant slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Marks the `count` slots from `base` onward as vacant, and merges them with adjacent vacant
    /// runs.
    pub(crate) fn give(&mut self, mut base: u32, mut count: u32) {
        let next = self.lengths.range(base..).next();
        assert!(next.is_none_or(|(next, _)| *next >= base + count), "slots were returned twice");
        if let Some((&before, &length)) = self.lengths.range(..base).next_back() {
            assert!(before + length <= base, "slots were returned twice");
            if before + length == base {
                self.remove(before);
                (base, count) = (before, count + length);
            }
        }
        if let Some(length) = self.remove(base + count) {
            count += length;
        }
        self.insert(base, count);
    }

    fn insert(&mut self, base: u32, length: u32) {
        assert!(length > 0, "a run must contain at least one slot");
        let is_new = self.lengths.insert(base, length).is_none();
        assert!(self.by_length.insert((length, base)) && is_new, "a vacant run was inserted twice");
        assert!(
            self.lengths.len() == self.by_length.len(),
            "the two indexes of vacant runs differ"
        );
        self.count += length as usize;
    }

    /// Removes the run that begins at `base` and returns its length, if there is such a run.
    fn remove(&mut self, base: u32) -> Option<u32> {
        let length = self.lengths.remove(&base)?;
        assert!(self.by_length.remove(&(length, base)), "the two indexes of vacant runs differ");
        self.count -= length as usize;
        Some(length)
    }
}

#[cfg(test)]
mod tests;
