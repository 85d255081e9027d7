//! A sorted set of small values. After a change, the new set shares nearly all of its memory with
//! the old one.
//!
//! Values are stored in chunks. A clone shares the chunks, and a change copies only the chunk that
//! it touches. The cost of a change, and of dropping an old set, grows roughly with the square root
//! of the count of values. Invariants: values are in ascending order, without duplicates, across
//! all chunks; no chunk is empty.

use std::sync::Arc;

/// The smallest target size of a chunk, in values. A chunk contains at most twice as many values as
/// its target size.
const CHUNK_MIN: usize = 256;

/// The approximate count of chunks in large sets; a clone increments a reference count for each
/// chunk.
const CHUNKS: usize = 2048;

#[derive(Clone, Debug)]
pub(crate) struct Sorted<T> {
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Copy + Ord> Sorted<T> {
    /// The set of `values`.
    pub(crate) fn new(mut values: Vec<T>) -> Self {
        values.sort_unstable();
        values.dedup();
        let chunks = values.chunks(chunk(values.len())).map(|chunk| Arc::new(chunk.to_vec()));
        Self { chunks: chunks.collect(), len: values.len() }
    }

    /// The count of values.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The least value.
    pub(crate) fn first(&self) -> Option<T> {
        self.chunks.first().map(|chunk| chunk[0])
    }

    /// The greatest value in the set that is at most `value`.
    pub(crate) fn up_to(&self, value: T) -> Option<T> {
        let chunk = &self.chunks[self.chunk_of(value)?];
        let after = chunk.partition_point(|other| *other <= value);
        after.checked_sub(1).map(|place| chunk[place])
    }

    /// The values from `value` on, in ascending order.
    pub(crate) fn from(&self, value: T) -> impl Iterator<Item = T> {
        let mut chunks = self.chunks[self.chunk_of(value).unwrap_or_default()..].iter();
        let first = chunks.next().map_or(&[][..], |chunk| chunk.as_slice());
        let from = first.partition_point(|other| *other < value);
        first[from..].iter().chain(chunks.flat_map(|chunk| chunk.iter())).copied()
    }

    /// Adds `value`, unless it is present.
    pub(crate) fn insert(&mut self, value: T) {
        let target = chunk(self.len);
        let Some(at) = self.chunk_of(value).or((self.len > 0).then_some(0)) else {
            self.chunks.push(Arc::new(vec![value]));
            self.len = 1;
            return;
        };
        let Err(place) = self.chunks[at].binary_search(&value) else { return };
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        chunk.insert(place, value);
        self.len += 1;
        if chunk.len() > 2 * target {
            let rest = chunk.split_off(target);
            self.chunks.insert(at + 1, Arc::new(rest));
        }
    }

    /// Removes `value`, if it is present.
    pub(crate) fn remove(&mut self, value: T) {
        let Some(at) = self.chunk_of(value) else { return };
        let Ok(place) = self.chunks[at].binary_search(&value) else { return };
        self.len -= 1;
        if self.chunks[at].len() == 1 {
            self.chunks.remove(at);
        } else {
            Arc::make_mut(&mut self.chunks[at]).remove(place);
        }
    }

    /// The last chunk whose first value is at most `value`.
    fn chunk_of(&self, value: T) -> Option<usize> {
        self.chunks.partition_point(|chunk| chunk[0] <= value).checked_sub(1)
    }
}

/// The target chunk size, in values, for a set of `len` values.
fn chunk(len: usize) -> usize {
    (len / CHUNKS).next_power_of_two().max(CHUNK_MIN)
}

#[cfg(test)]
mod tests;
