//! Tracks which groups still contain the newest record of a number, so that the other groups can be
//! dropped without being read.
//!
//! For each of the newest groups, counts the records that are still needed. Older groups, and
//! groups from before this startup, have no count and must be read. A count may be too high, but is
//! never too low.

use std::collections::VecDeque;

use ringwell_core::Position;
use ringwell_journal::position_parts;

/// The maximum count of groups that are tracked, at four bytes each.
const GROUPS_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct LiveRecords {
    /// The group to which the first count belongs.
    first: u64,
    counts: VecDeque<u32>,
}

impl LiveRecords {
    /// Begins counting at the open group.
    pub(crate) fn new(gathering: u64) -> Self {
        Self { first: gathering, counts: VecDeque::new() }
    }

    /// Records that a number's newest record is now at `newest`. If `is_replaced` is true, the
    /// previous record is no longer needed. After a keep-alive or release, the record of the
    /// allocation is still needed.
    #[inline]
    pub(crate) fn moved(&mut self, previous: Position, newest: Position, is_replaced: bool) {
        if is_replaced && let Some(count) = self.count(position_parts(previous).0) {
            assert!(*count > 0, "the group's count of needed records is already zero");
            *count -= 1;
        }
        let (group, _) = position_parts(newest);
        while self.first + self.counts.len() as u64 <= group {
            if self.counts.len() == GROUPS_MAX {
                self.counts.pop_front();
                self.first += 1;
            }
            self.counts.push_back(0);
            assert!(
                self.counts.len() <= GROUPS_MAX,
                "more groups are counted than the limit allows"
            );
        }
        if let Some(count) = self.count(group) {
            *count += 1;
        }
    }

    /// Records that the record at `position` is a number's newest one again, or is needed in
    /// addition to the newest one.
    pub(crate) fn again(&mut self, position: Position) {
        if let Some(count) = self.count(position_parts(position).0) {
            *count += 1;
        }
    }

    /// Whether the newest record of any number may be in `group`.
    pub(crate) fn may_hold_any(&self, group: u64) -> bool {
        let index = group.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.counts.get(index)).is_none_or(|count| *count > 0)
    }

    #[inline]
    fn count(&mut self, group: u64) -> Option<&mut u32> {
        let index = usize::try_from(group.checked_sub(self.first)?).ok()?;
        self.counts.get_mut(index)
    }
}
