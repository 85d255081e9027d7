//! Groups that are kept in memory only: nothing survives, look-ups work.

use std::collections::VecDeque;

use ringwell_journal::Group;

use super::index::{ReadError, SegmentRef};

/// The newest groups.
#[derive(Debug)]
pub(super) struct Memory {
    groups: VecDeque<Group>,
    first_n: u64,
    bytes: u64,
    /// The oldest groups may be dropped above this, and are above twice this.
    bytes_max: u64,
    spare: Vec<u8>,
}

impl Memory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { groups: VecDeque::new(), first_n: 1, bytes: 0, bytes_max, spare: Vec::new() }
    }

    pub(super) fn next_n(&self) -> u64 {
        self.first_n + self.groups.len() as u64
    }

    /// Keeps a group; returns a body to be used again, or an empty one.
    pub(super) fn store(&mut self, group: Group) -> Vec<u8> {
        self.bytes += group.body.len() as u64;
        self.groups.push_back(group);
        while self.bytes > self.bytes_max.saturating_mul(2) && self.groups.len() > 1 {
            self.drop_oldest();
        }
        std::mem::take(&mut self.spare)
    }

    pub(super) fn read(&self, n: u64) -> Result<Group, ReadError> {
        if n >= self.next_n() {
            return Err(ReadError::NotYet(n));
        }
        let index = n.checked_sub(self.first_n).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.groups.get(index)).cloned().ok_or(ReadError::Gone(n))
    }

    /// The oldest eighth, if there is more than there should be.
    pub(super) fn oldest(&self) -> Option<SegmentRef> {
        if self.bytes <= self.bytes_max {
            return None;
        }
        let mut bytes = 0;
        let enough = |group: &&Group| {
            bytes += group.body.len() as u64;
            bytes >= self.bytes_max / 8
        };
        let last = self.groups.iter().find(enough).or(self.groups.back())?;
        Some(SegmentRef {
            segno: 0,
            first_n: self.first_n,
            next_n: last.header.n + 1,
            bytes,
            last_at: last.header.last_at,
        })
    }

    pub(super) fn drop_before(&mut self, n: u64) {
        while self.first_n < n && !self.groups.is_empty() {
            self.drop_oldest();
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn drop_oldest(&mut self) {
        if let Some(group) = self.groups.pop_front() {
            self.first_n += 1;
            self.bytes -= group.body.len() as u64;
            self.spare = group.body;
        }
    }
}
