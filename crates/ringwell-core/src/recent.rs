//! The allocations that a shard's newest allocations replaced. They are kept so that an allocation
//! that no visitor has seen can be undone.
//!
//! Owns a ring of the last [`RECENT_MAX`] allocations, in the order of their records. Does not
//! depend on the numbers: an allocation is identified by the position of its record, because no two
//! records share a position. Source: docs/decisions/020-allocations-no-one-saw.md.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use crate::{Millis, Position, Slot};

/// The maximum number of allocations that can be undone. From the arrival of a batch until one
/// second after its deadline, a shard makes fewer allocations than this. If an answer over a link
/// arrives even later, it may be too late to undo the allocation. The ring takes 3 MiB per shard
/// once it is full.
pub const RECENT_MAX: usize = 1 << 17;

/// A number's newest allocation before another one replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The time of the allocation; zero if the number had never been handed out.
    pub allocated_at: Millis,
    /// The time of the allocation, by this node's clock. Differs from `allocated_at` if the
    /// allocation has the time of another node's clock.
    pub local_at: Millis,
    /// The end of the allocation's lockout.
    pub locked_until: Millis,
    /// The position of the number's newest record before the replacement.
    pub position: Position,
}

/// The position of an allocation's record; for the allocation that it replaced, the position of the
/// newest record, and the [`Times`]. The values are plain integers, so that an empty ring is zeroed
/// memory, which costs nothing until it is written. A batch writes one entry per row, and the ring
/// does not fit into a core's cache. With 32-byte entries, a batch of 40 rows caused five more
/// cache misses.
type Entry = [u64; 3];

/// The time of a replaced allocation and the end of its lockout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    allocated_at: Millis,
    locked_until: Millis,
}

impl Times {
    /// The times of a number that has never been handed out.
    const NEVER: Self = Self { allocated_at: Millis::ZERO, locked_until: Millis::ZERO };
    const NEVER_CODE: u64 = u64::MAX;
    /// Marks times that are kept in [`Recent::apart`].
    const APART_CODE: u64 = u64::MAX - 1;
    /// Marks an allocation that cannot be undone.
    const GONE_CODE: u64 = u64::MAX - 2;

    /// Packs the length of the lockout and the time from its end to `now` into 32 bits each, which
    /// is enough for 49 days.
    #[inline]
    fn code(self, now: Millis) -> u64 {
        let lockout = self.locked_until.0.wrapping_sub(self.allocated_at.0);
        let since = now.0.wrapping_sub(self.locked_until.0);
        if lockout | since < u64::from(u32::MAX) {
            return lockout << 32 | since;
        }
        if self == Self::NEVER { Self::NEVER_CODE } else { Self::APART_CODE }
    }

    /// Unpacks the times, or returns `None` if they are kept in [`Recent::apart`].
    fn read(code: u64, now: Millis) -> Option<Self> {
        match code {
            Self::NEVER_CODE => Some(Self::NEVER),
            Self::APART_CODE => None,
            _ => {
                let locked_until = now.0.wrapping_sub(code & u64::from(u32::MAX));
                let allocated_at = locked_until.wrapping_sub(code >> 32);
                let [allocated_at, locked_until] = [allocated_at, locked_until].map(Millis);
                Some(Self { allocated_at, locked_until })
            }
        }
    }
}

/// The latest allocations, each with the state that preceded it.
#[derive(Debug)]
pub(crate) struct Recent {
    /// A ring, in which entries that were never written are zero. The ring is an array, so that
    /// indexing it needs no bounds check.
    entries: Box<[Entry; RECENT_MAX]>,
    /// The index of the next entry. At the end of the ring it wraps to the start.
    next: usize,
    /// Times that do not fit into an entry. The key is the position of the replacing allocation.
    apart: BTreeMap<Position, Times>,
    /// The times, by this node's clock, of replaced allocations that were dated by another node's
    /// clock. The key is the position of the replacing allocation.
    foreign_times: BTreeMap<Position, Millis>,
}

impl Default for Recent {
    fn default() -> Self {
        let entries = vec![[0; 3]; RECENT_MAX].into_boxed_slice();
        let Ok(entries) = entries.try_into() else {
            unreachable!("the vector has RECENT_MAX entries")
        };
        let (apart, foreign_times) = (BTreeMap::new(), BTreeMap::new());
        Self { entries, next: 0, apart, foreign_times }
    }
}

impl Recent {
    /// Records that the allocation made at `now`, whose record is at `position`, replaces `before`.
    #[inline]
    pub(crate) fn push(&mut self, position: Position, now: Millis, before: &Slot) {
        let Slot { allocated_at, locked_until, position: previous, .. } = *before;
        let times = Times { allocated_at, locked_until };
        let code = times.code(now);
        if code == Times::APART_CODE {
            self.keep_apart(position, times);
        }
        let next = self.next % RECENT_MAX;
        self.entries[next] = [position.0, previous.0, code];
        self.next = next + 1;
    }

    #[cold]
    fn keep_apart(&mut self, position: Position, times: Times) {
        if self.apart.len() == RECENT_MAX {
            self.apart.pop_first();
        }
        self.apart.insert(position, times);
    }

    /// Records that a replaced allocation was made at `local_at` by this node's clock. The record
    /// of the replacing allocation is at `position`.
    pub(crate) fn foreign_time(&mut self, position: Position, local_at: Millis) {
        if self.foreign_times.len() == RECENT_MAX {
            self.foreign_times.pop_first();
        }
        self.foreign_times.insert(position, local_at);
    }

    /// Ensures that the allocation whose record is at `position` cannot be undone. Must be called
    /// when its number leaves the pool: another shard may then have the allocation, and would not
    /// be notified that it was undone.
    pub(crate) fn settle(&mut self, position: Position) {
        if let Some(place) = self.place(position) {
            self.entries[place][2] = Times::GONE_CODE;
        }
    }

    /// Whether [`Self::settle`] was called for the allocation whose record is at `position`.
    pub(crate) fn is_settled(&self, position: Position) -> bool {
        self.place(position).is_some_and(|place| self.entries[place][2] == Times::GONE_CODE)
    }

    /// Returns the index of the entry for the allocation recorded at `position`.
    fn place(&self, position: Position) -> Option<usize> {
        // The ring has a newer and an older part, and positions increase within each. The older
        // part is all zeros until the ring has been filled once.
        let (newer, older) = self.entries.split_at(self.next);
        let is_unused = older.first().is_some_and(|oldest| oldest[0] == 0);
        let older = if is_unused { &[] } else { older };
        let find =
            |entries: &[Entry]| entries.binary_search_by_key(&position.0, |entry| entry[0]).ok();
        find(newer).or_else(|| find(older).map(|place| self.next + place))
    }

    /// Returns the state before the allocation that was made at `at` and recorded at `position`.
    /// Returns `None` if that state is no longer known or the allocation can no longer be undone.
    pub(crate) fn before(&self, position: Position, at: Millis) -> Option<Before> {
        let [_, previous, code] = self.entries[self.place(position)?];
        if code == Times::GONE_CODE {
            return None;
        }
        let times = Times::read(code, at).or_else(|| self.apart.get(&position).copied())?;
        let Times { allocated_at, locked_until } = times;
        let local_at = self.foreign_times.get(&position).copied().unwrap_or(allocated_at);
        Some(Before { allocated_at, local_at, locked_until, position: Position(previous) })
    }
}

#[cfg(test)]
mod tests;
