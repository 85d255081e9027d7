//! The allocations that a shard's newest allocations replaced, so that one that no visitor has seen
//! can be undone.
//!
//! Owns a ring of the last [`RECENT_MAX`] allocations, in the order of their records. Knows nothing
//! of the numbers: an allocation is identified by the position of its record, which is unique.
//! Source: docs/decisions/020-allocations-no-one-saw.md.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use crate::{Millis, Position, Slot};

/// The maximum number of allocations that can be undone: more than a shard makes within a deadline
/// plus the second in which answers over a link may come too late. 4 MiB a shard once it has made
/// that many.
pub const RECENT_MAX: usize = 1 << 17;

/// A number's newest allocation before another took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The time when it was made; zero if the number had never been handed out.
    pub allocated_at: Millis,
    /// The time when that was by this node's clock. Differs if another node's clock reported it.
    pub local_at: Millis,
    /// The time when its lockout ended.
    pub locked_until: Millis,
    /// The number's newest record at that time.
    pub position: Position,
}

/// The position of an allocation's record, followed by the replaced allocation: its `allocated_at`,
/// its `locked_until` and the position of its newest record. Plain integers, so that an empty ring
/// is zeroed memory that costs nothing until it is written.
type Entry = [u64; 4];

/// The latest allocations, each with the state before it.
#[derive(Debug)]
pub(crate) struct Recent {
    /// A ring; entries that were never written are zero. An array, so that indexing it needs no
    /// bounds check.
    entries: Box<[Entry; RECENT_MAX]>,
    /// Index of the next entry; wraps to the start at the end of the ring.
    next: usize,
    /// By the position of the new allocation: the time of the previous one by this clock, if
    /// another node's clock had dated it.
    foreign_times: BTreeMap<Position, Millis>,
}

impl Default for Recent {
    fn default() -> Self {
        let entries = vec![[0; 4]; RECENT_MAX].into_boxed_slice();
        let Ok(entries) = entries.try_into() else { unreachable!("it has as many entries") };
        Self { entries, next: 0, foreign_times: BTreeMap::new() }
    }
}

impl Recent {
    /// Records that the allocation whose record is at `position` replaces `before`.
    #[inline]
    pub(crate) fn push(&mut self, position: Position, before: &Slot) {
        let Slot { allocated_at, locked_until, position: previous, .. } = *before;
        let next = self.next % RECENT_MAX;
        self.entries[next] = [position.0, allocated_at.0, locked_until.0, previous.0];
        self.next = next + 1;
    }

    /// Records that the allocation before the one at `position` was made at `local_at` by this
    /// clock.
    pub(crate) fn foreign_time(&mut self, position: Position, local_at: Millis) {
        if self.foreign_times.len() == RECENT_MAX {
            self.foreign_times.pop_first();
        }
        self.foreign_times.insert(position, local_at);
    }

    /// Returns the state before the allocation whose record is at `position`, if it is still known.
    pub(crate) fn before(&self, position: Position) -> Option<Before> {
        // Positions rise within each part; the second is all zeros until the ring has been filled.
        let (newer, older) = self.entries.split_at(self.next);
        let is_unused = older.first().is_some_and(|oldest| oldest[0] == 0);
        let older = if is_unused { &[] } else { older };
        let find = |entries: &[Entry]| {
            let place = entries.binary_search_by_key(&position.0, |entry| entry[0]).ok()?;
            entries.get(place).copied()
        };
        let [_, allocated_at, locked_until, previous] = find(newer).or_else(|| find(older))?;
        let (allocated_at, locked_until) = (Millis(allocated_at), Millis(locked_until));
        let previous = Position(previous);
        let local_at = self.foreign_times.get(&position).copied().unwrap_or(allocated_at);
        Some(Before { allocated_at, local_at, locked_until, position: previous })
    }
}

#[cfg(test)]
mod tests;
