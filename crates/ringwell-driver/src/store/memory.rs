//! Groups that are kept only in memory. Nothing survives a restart, but look-ups work.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringwell_core::Millis;
use ringwell_journal::{Clocks, Group, Noted};

use super::files::FileError;
use super::interface::{Appended, Draft, Part, Reader, Store};
use super::read_error::ReadError;
use super::stats::{Counters, Stats};
use crate::locks::lock;

/// A store without files.
#[derive(Debug)]
pub struct Memory {
    id: [u8; 16],
    groups: Arc<Mutex<Groups>>,
    counters: Counters,
}

/// Reads groups that are kept in memory.
#[derive(Clone, Debug)]
pub struct MemoryReader(Arc<Mutex<Groups>>);

/// The newest groups.
#[derive(Debug)]
struct Groups {
    queue: VecDeque<Group>,
    first_n: u64,
    bytes: u64,
    /// The size above which the oldest group may be removed, in bytes.
    bytes_max: u64,
}

impl Memory {
    /// Creates an empty store that keeps about `bytes_max` bytes.
    #[must_use]
    pub fn new(id: [u8; 16], bytes_max: u64) -> Self {
        let groups = Groups { queue: VecDeque::new(), first_n: 1, bytes: 0, bytes_max };
        Self { id, groups: Arc::new(Mutex::new(groups)), counters: Counters::new() }
    }

    /// Stores a group.
    pub fn store(&self, group: Group) {
        self.counters.stored(group.body.len(), 0, Duration::ZERO);
        let mut kept = lock(&self.groups);
        kept.bytes += group.body.len() as u64;
        kept.queue.push_back(group);
    }
}

impl Store for Memory {
    type Reader = MemoryReader;
    type Draft = Infallible;

    fn append(&self, group: Group) -> impl Future<Output = Appended> {
        self.store(group);
        ready(Appended::Stored { spare: Vec::new() })
    }

    fn reader(&self) -> MemoryReader {
        MemoryReader(Arc::clone(&self.groups))
    }

    fn expired(&self, _: Millis, _: Clocks) -> Option<Part> {
        None
    }

    fn waits_for_snapshot(&self) -> bool {
        false
    }

    fn drop_part(&self, _: Part) -> impl Future<Output = Result<(), FileError>> {
        ready(Ok(()))
    }

    fn take_oldest(&self) -> Option<Group> {
        let mut kept = lock(&self.groups);
        if kept.bytes <= kept.bytes_max {
            return None;
        }
        let group = kept.queue.pop_front()?;
        kept.first_n += 1;
        kept.bytes -= group.body.len() as u64;
        Some(group)
    }

    fn keep_more(&self, bytes: u64) {
        lock(&self.groups).bytes_max += bytes;
    }

    fn draft(&self, _: u64) -> Result<Infallible, FileError> {
        let refused = io::Error::from(io::ErrorKind::Unsupported);
        Err(FileError::new("take a snapshot of a journal in", Path::new("memory"), refused))
    }

    fn identity(&self) -> [u8; 16] {
        self.id
    }

    fn stats(&self) -> Stats {
        Stats { segment_bytes: lock(&self.groups).bytes, ..self.counters.read() }
    }
}

impl Reader for MemoryReader {
    fn read(&self, n: u64) -> Result<Group, ReadError> {
        let kept = lock(&self.0);
        if n >= kept.first_n + kept.queue.len() as u64 {
            return Err(ReadError::NotYet(n));
        }
        let index = n.checked_sub(kept.first_n).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| kept.queue.get(index)).cloned().ok_or(ReadError::Gone(n))
    }

    fn noted(&self) -> Vec<Noted> {
        Vec::new()
    }
}

impl Draft for Infallible {
    fn write(&mut self, _: &[u8]) -> Result<(), FileError> {
        match *self {}
    }

    fn publish(self, _: u64) -> Result<(), FileError> {
        match self {}
    }

    fn stored(&self) -> u64 {
        match *self {}
    }
}

#[cfg(test)]
mod tests;
