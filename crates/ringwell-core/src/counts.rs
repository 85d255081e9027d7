//! Request counts for each pool, used to measure the pool's load.

use alloc::vec::Vec;

/// Counts the requests for a pool's numbers. The difference between two readings is the count
/// between them. Request counts are modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Numbers handed out.
    pub allocated: u32,
    /// Rows for which every number was locked out.
    pub exhausted: u32,
    /// Keep-alives: rows of visitors who kept their numbers, and requests that extend a lockout.
    pub kept: u32,
    /// The milliseconds that keep-alives have added to lockouts, minus those that releases have
    /// removed. Adding one lifetime for each allocation in `allocated` gives the total time for
    /// which the pool's numbers are locked out.
    pub lengthened: i64,
}

/// [`PoolCounts::kept`] and [`PoolCounts::lengthened`] for each pool, up to the last one that has
/// had keep-alives or releases.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<(u32, i64)>);

impl Kept {
    pub(crate) fn of(&self, pool: u32) -> (u32, i64) {
        self.0.get(pool as usize).copied().unwrap_or_default()
    }

    /// Adds to the counts of `pool`.
    pub(crate) fn add(&mut self, pool: u32, kept: u32, lengthened: i64) {
        let index = pool as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, (0, 0));
        }
        let counts = &mut self.0[index];
        counts.0 = counts.0.wrapping_add(kept);
        counts.1 += lengthened;
    }

    /// Forgets a removed pool's counts.
    pub(crate) fn forget(&mut self, pool: u32) {
        if let Some(counts) = self.0.get_mut(pool as usize) {
            *counts = (0, 0);
        }
    }
}
