//! The expiry times of the main application's pools.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use ringwell_core::PoolId;

/// The maximum number of pools that are checked and concurrently fetched in one round.
const POOLS_A_ROUND: usize = 64;

/// The expiry time of each of the application's pools.
#[derive(Debug, Default)]
pub(super) struct Ages {
    terms: HashMap<PoolId, Term>,
    /// The pools, sorted by expiry time. A pool that is being checked is not in this set.
    ends: BTreeSet<(Instant, PoolId)>,
}

#[derive(Debug)]
struct Term {
    end: Instant,
    /// The pool's request count when the pool last became valid.
    asked: u32,
}

impl Ages {
    /// Makes `pool` valid for `age` from now on.
    pub(super) fn begin(&mut self, pool: PoolId, age: Duration, asked: u32) {
        self.end(pool);
        let end = Instant::now() + age;
        self.terms.insert(pool, Term { end, asked });
        self.ends.insert((end, pool));
    }

    pub(super) fn end(&mut self, pool: PoolId) {
        if let Some(term) = self.terms.remove(&pool) {
            self.ends.remove(&(term.end, pool));
        }
    }

    pub(super) fn has(&self, pool: PoolId) -> bool {
        self.terms.contains_key(&pool)
    }

    /// Returns expired pools, each with the request count that it had when it last became valid.
    pub(super) fn over(&mut self, now: Instant) -> Vec<(PoolId, u32)> {
        let mut over = Vec::new();
        while over.len() < POOLS_A_ROUND
            && let Some(first) = self.ends.first().copied().filter(|(end, _)| *end <= now)
        {
            self.ends.remove(&first);
            over.extend(self.terms.get(&first.1).map(|term| (first.1, term.asked)));
        }
        over
    }
}
