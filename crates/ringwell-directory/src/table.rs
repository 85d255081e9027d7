//! A table for looking up one bucket's pools by id.
//!
//! Each pool's entry, with the data that requests need, is in a cell of a hash table. A look-up
//! reads the `PoolTable` itself, which is usually in the CPU's cache, and then the entry. Entries
//! are in the order of their spread ids ([`crate::placement::spread`]), so neighbouring ids have
//! different cells. Invariant: a table never changes; the next state of the directory has a new
//! table for each changed bucket, and shares all other tables.

use std::sync::Arc;

use ringwell_core::PoolId;

use crate::RingPool;
use crate::entry::Entry;
use crate::placement::{BUCKET_BITS, bucket, spread};

/// The maximum number of cells: 32 bits select a cell.
const CELLS_MAX: usize = 1 << 31;

/// The table is aligned so that it does not share a cache line with its reference count, which
/// changes with each state of the directory.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct PoolTable {
    cells: Box<[Entry]>,
    /// Sorted by id.
    pools: Box<[Arc<RingPool>]>,
}

impl PoolTable {
    /// Builds the table of `pools`, which are all in one bucket and are sorted by id.
    pub(crate) fn new(pools: Vec<(Arc<RingPool>, Entry)>) -> Self {
        let Some((first, _)) = pools.first() else { return Self::default() };
        // Two thirds of the cells are in use. On average, a look-up then reads 1.0 cells if ids are
        // neighbouring, and 2 if they are random.
        let count = (pools.len() + pools.len() / 2 + 1).min(CELLS_MAX);
        let vacant = Entry::vacant(foreign(bucket(first.id())));
        let mut cells = vec![vacant; count].into_boxed_slice();
        let put = |(pool, entry): (Arc<RingPool>, Entry)| {
            let mut cell = home(spread(pool.id()), count);
            while !cells[cell].is_vacant() {
                cell = next(cell, count);
            }
            cells[cell] = entry;
            pool
        };
        let pools = pools.into_iter().map(put).collect();
        Self { cells, pools }
    }

    /// The entry of the pool with the id `id`; `spread` is the spread id.
    #[inline]
    pub(crate) fn get(&self, spread: u64, id: PoolId) -> Option<&Entry> {
        let home = home(spread, self.cells.len());
        let entry = self.cells.get(home)?;
        // A vacant cell contains an id from another bucket. Such an id is never looked up in this
        // table.
        if entry.id() == id { Some(entry) } else { self.get_behind(home, id) }
    }

    #[cold]
    fn get_behind(&self, home: usize, id: PoolId) -> Option<&Entry> {
        let mut cell = home;
        while !self.cells[cell].is_vacant() {
            cell = next(cell, self.cells.len());
            if self.cells[cell].id() == id {
                return Some(&self.cells[cell]);
            }
        }
        None
    }

    /// The pools, sorted by id.
    pub(crate) fn pools(&self) -> &[Arc<RingPool>] {
        &self.pools
    }

    /// The complete pool, not only its entry.
    pub(crate) fn pool(&self, id: PoolId) -> Option<&Arc<RingPool>> {
        let place = self.pools.binary_search_by_key(&id, |pool| pool.id()).ok()?;
        Some(&self.pools[place])
    }
}

/// The first cell that may contain a pool's entry.
#[inline]
fn home(spread: u64, cells: usize) -> usize {
    // The bits of the spread id below the bucket's bits, read as a fraction of 1.
    let fraction = (spread << BUCKET_BITS) >> 32;
    ((fraction * cells as u64) >> 32) as usize
}

fn next(cell: usize, cells: usize) -> usize {
    if cell + 1 == cells { 0 } else { cell + 1 }
}

/// An id that is not in the bucket `own`.
fn foreign(own: u16) -> PoolId {
    if bucket(PoolId(0)) == own { PoolId(1) } else { PoolId(0) }
}

#[cfg(test)]
mod tests;
