//! The answered rows of one pool, oldest first, in a queue that grows and shrinks one chunk at a
//! time.

use std::collections::VecDeque;

use ringwell_core::Millis;
use ringwell_journal::RowKey;

/// The rows per chunk. When the queue grows, at most one chunk (up to 32 KiB) is copied.
const CHUNK: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// All chunks but the last are full.
    chunks: VecDeque<Vec<(Millis, RowKey)>>,
    /// The count of rows that have been removed from the first chunk.
    taken: usize,
    /// The count of rows that have been removed since the queue was created.
    dropped: u64,
    len: usize,
}

impl Queue {
    pub(super) fn push(&mut self, at: Millis, row: RowKey) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push((at, row)),
            _ => self.chunks.push_back(vec![(at, row)]),
        }
        self.len += 1;
    }

    pub(super) fn first(&self) -> Option<(Millis, RowKey)> {
        self.chunks.front()?.get(self.taken).copied()
    }

    pub(super) fn pop(&mut self) -> Option<(Millis, RowKey)> {
        let first = self.first();
        assert!(first.is_some() == (self.len > 0), "the queue's recorded length is wrong");
        let first = first?;
        (self.taken, self.dropped, self.len) = (self.taken + 1, self.dropped + 1, self.len - 1);
        assert!(self.taken <= CHUNK, "more rows were taken from a chunk than it holds");
        if self.taken == CHUNK {
            self.chunks.pop_front();
            self.taken = 0;
        }
        Some(first)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the index of the oldest row and the index of the next row to be added. Indices count
    /// from the creation of the queue.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.dropped, self.dropped + self.len as u64)
    }

    /// Returns the rows from index `from` onward, or from the oldest row if the row at `from` has
    /// been removed.
    pub(super) fn iter(&self, from: u64) -> impl Iterator<Item = (Millis, RowKey)> {
        let skipped = usize::try_from(from.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let first = self.taken.saturating_add(skipped);
        let rest = self.chunks.iter().skip(first / CHUNK);
        rest.flatten().skip(first % CHUNK).copied()
    }
}
