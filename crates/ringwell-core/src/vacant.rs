//! Runs of slots that no pool has: where a pool that grows finds room.
//!
//! Slots are never moved on their own account: a pool that changes its numbers takes another run
//! and leaves the old one here. Invariant: runs do not touch or overlap.

use alloc::collections::BTreeMap;

/// Lengths of free runs by their first slot.
#[derive(Debug, Default)]
pub(crate) struct Vacant(BTreeMap<u32, u32>);

impl Vacant {
    /// `count` slots in a row, if there are any: the first run that is long enough.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let (&base, &length) = self.0.iter().find(|(_, length)| **length >= count)?;
        self.0.remove(&base);
        if length > count {
            self.0.insert(base + count, length - count);
        }
        Some(base)
    }

    /// How many slots are free.
    pub(crate) fn count(&self) -> usize {
        self.0.values().map(|length| *length as usize).sum()
    }

    /// The run from `base` on is free now. Joined with its neighbours.
    pub(crate) fn give(&mut self, mut base: u32, mut count: u32) {
        if let Some((&before, &length)) = self.0.range(..base).next_back()
            && before + length == base
        {
            self.0.remove(&before);
            (base, count) = (before, count + length);
        }
        if let Some(length) = self.0.remove(&(base + count)) {
            count += length;
        }
        self.0.insert(base, count);
    }
}

#[cfg(test)]
mod tests;
