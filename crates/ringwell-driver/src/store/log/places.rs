//! The places of groups in a log, as far as they are known.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::canary::{Bug, planted};
use crate::locks::lock;

/// The places of groups, shared by all readers and writers of one log.
#[derive(Clone, Debug, Default)]
pub struct Places(pub(super) Arc<Mutex<Known>>);

/// The known foreign messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The count of foreign messages before the first message that the log still has.
    pub(super) before: u64,
    /// For each later foreign message, in order: the number of the group that follows it.
    pub(super) next: Vec<u64>,
}

impl Known {
    pub(super) fn place(&self, n: u64) -> u64 {
        n + self.before + self.next.partition_point(|next| *next <= n) as u64
    }

    /// Returns the first group whose place is at or after `place`.
    pub(super) fn group_from(&self, place: u64) -> u64 {
        let most = place.saturating_sub(self.before);
        let (mut low, mut high) = (most.saturating_sub(self.next.len() as u64), most);
        while low < high {
            let middle = low.midpoint(high);
            if self.place(middle) < place {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Determines the foreign messages of a log. `groups` contains the place and the number of each
    /// known group, in order; `leading` and `trailing` are the counts of foreign messages before
    /// and after these groups. If the exact places of foreign messages between two known groups are
    /// unknown, they are assumed to be directly before the second group.
    pub(super) fn of(
        groups: &[(u64, u64)],
        (leading, trailing): (u64, u64),
        ends: &Range<u64>,
    ) -> Self {
        let (Some(first), Some(last)) = (groups.first(), groups.last()) else {
            return Self::default();
        };
        let before = first.0.saturating_sub(first.1).saturating_sub(leading);
        let mut next: Vec<u64> = (0..leading).map(|_| first.1).collect();
        for (from, to) in groups.iter().zip(&groups[1..]) {
            next.extend((to.1 - from.1..to.0 - from.0).map(|_| to.1));
        }
        let end_n = last.1 + (ends.end - last.0) - trailing;
        next.extend((0..trailing).map(|_| end_n));
        Self { before, next }
    }

    /// Records that group `n` was found `places` places after the place where it was expected.
    /// While some groups cannot be read, a survey counts the foreign messages correctly, but may
    /// place them too late in the log.
    pub(super) fn found_later(&mut self, n: u64, places: u64) {
        for _ in 0..places {
            let at = self.next.partition_point(|next| *next <= n);
            match self.next.get_mut(at).filter(|_| !planted(Bug::ForeignCountedTwice)) {
                Some(next) => *next = n,
                None => self.next.insert(at, n),
            }
        }
    }
}

impl Places {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Returns the place of group `n`, as far as the foreign messages are known.
    #[must_use]
    pub fn place(&self, n: u64) -> u64 {
        self.known().place(n)
    }

    /// Returns the count of foreign messages directly before group `n`.
    #[must_use]
    pub fn foreign_before(&self, n: u64) -> u64 {
        self.known().next.iter().rev().filter(|next| **next == n).count() as u64
    }
}
