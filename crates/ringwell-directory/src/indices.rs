//! The indices that the pools of a shard use.
//!
//! Invariant: an index belongs to at most one pool at a time, and the lowest free index is used
//! first.

use crate::sorted::Sorted;

#[derive(Clone, Debug, Default)]
pub(crate) struct Indices {
    /// The free indices below `end`.
    free: Sorted<u32>,
    end: u32,
}

impl Indices {
    /// Takes the lowest free index.
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(index) = self.free.first() {
            self.free.remove(index);
            return index;
        }
        // Cannot overflow: a directory has fewer pools than there are indices.
        self.end += 1;
        self.end - 1
    }

    /// Frees `index`.
    pub(crate) fn give(&mut self, index: u32) {
        self.free.insert(index);
    }
}
