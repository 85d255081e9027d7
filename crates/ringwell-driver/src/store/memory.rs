//! Groups that are kept in memory only: nothing survives, look-ups work.

use std::collections::VecDeque;

use ringwell_journal::Group;

use super::index::ReadError;

/// The newest groups.
#[derive(Debug)]
pub(super) struct Memory {
    groups: VecDeque<Group>,
    first_n: u64,
    bytes: u64,
    /// Above this the oldest group may be taken out.
    bytes_max: u64,
}

impl Memory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { groups: VecDeque::new(), first_n: 1, bytes: 0, bytes_max }
    }

    pub(super) fn next_n(&self) -> u64 {
        self.first_n + self.groups.len() as u64
    }

    pub(super) fn store(&mut self, group: Group) {
        self.bytes += group.body.len() as u64;
        self.groups.push_back(group);
    }

    pub(super) fn read(&self, n: u64) -> Result<Group, ReadError> {
        if n >= self.next_n() {
            return Err(ReadError::NotYet(n));
        }
        let index = n.checked_sub(self.first_n).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.groups.get(index)).cloned().ok_or(ReadError::Gone(n))
    }

    /// Takes the oldest group out, if there is more than there should be.
    pub(super) fn take_oldest(&mut self) -> Option<Group> {
        if self.bytes <= self.bytes_max {
            return None;
        }
        let group = self.groups.pop_front()?;
        self.first_n += 1;
        self.bytes -= group.body.len() as u64;
        Some(group)
    }

    /// Moves the bound: most of what was taken out had to be kept.
    pub(super) fn keep_more(&mut self, bytes: u64) {
        self.bytes_max += bytes;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
