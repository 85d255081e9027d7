//! The demand for each pool, computed from the shards' counters, which are read every few seconds.
//!
//! The load of a pool is the count of numbers that would be locked out if the pool never ran out.
//! If each lockout lasts one lifetime, the load equals the number of rows within the last lifetime
//! that needed a new number, even if traffic varies. Keep-alives lengthen lockouts, and releases
//! shorten them. The load is therefore the total time for which numbers were locked out, divided by
//! the length of the measurement. A visitor who got no number counts as one average allocation. On
//! average, such a visitor repeats rows as often as other visitors send keep-alives. To count the
//! rows, each pool's counts at a few earlier times are kept; they are called marks. The caller
//! passes the current time. Invariant: the number of marks per pool is bounded, regardless of the
//! pool's lifetime.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::running_server::PoolLoad;
use ringwell_core::{Millis, PoolId};
use ringwell_node::PoolAsked;

/// The number of marks within one lifetime. The oldest mark may be up to an eighth older than the
/// lifetime.
const MARKS_MAX: usize = 8;

const HOUR: Millis = Millis(3_600_000);

/// The number of hours for which mean loads are kept: the current hour and 25 whole hours. The last
/// whole hour can then be compared with the same hour of the previous day.
const HOURS: usize = 26;

/// The number of hours whose loads a pool's page shows.
const DAY: usize = 24;

/// The number of hours to forecast from the same hours of the previous day.
const NIGHT: usize = 12;

/// The upper limit of the ratio of today's load to the previous day's. The lower limit is the
/// reciprocal.
const TREND_MAX: f64 = 2.0;

/// The loads, shared by the directory's thread and the API's handlers.
#[derive(Clone, Debug, Default)]
pub struct SharedLoads(Arc<Mutex<Loads>>);

impl SharedLoads {
    /// Locks the counts.
    pub fn lock(&self) -> MutexGuard<'_, Loads> {
        // If a panic left the counts inconsistent, the next sample replaces them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recent counts of all of this node's pools.
#[derive(Debug, Default)]
pub struct Loads(BTreeMap<PoolId, Trail>);

#[derive(Debug)]
struct Trail {
    /// The counts that were last read from the shard.
    seen: PoolAsked,
    /// The marks, oldest first. There is always at least one mark.
    marks: VecDeque<Mark>,
    newest: Mark,
    /// The counts at the last call to [`Loads::busy`].
    decided: Mark,
    /// The beginning of the current clock hour, and the sum and count of the loads that were
    /// measured in it.
    hour: (Millis, f64, u32),
    /// The mean load of each earlier hour, oldest first.
    means: VecDeque<f32>,
}

/// The counts since the pool was first seen.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Millis,
    allocated: u64,
    /// Rows that got no number, including those while the pool was held.
    refused: u64,
    exhausted: u64,
    kept: u64,
    /// The milliseconds that keep-alives and releases have added to lockouts.
    lengthened: i64,
}

impl Loads {
    /// Adds the shards' counts as of `now`. Drops pools that are not in `asked`.
    pub fn take(&mut self, now: Millis, asked: &[PoolAsked]) {
        for seen in asked {
            match self.0.entry(seen.pool) {
                Entry::Occupied(mut known) => known.get_mut().add(now, *seen),
                Entry::Vacant(free) => {
                    free.insert(Trail::new(now, *seen));
                }
            }
        }
        if self.0.len() > asked.len() {
            let here: BTreeSet<PoolId> = asked.iter().map(|seen| seen.pool).collect();
            self.0.retain(|pool, _| here.contains(pool));
        }
    }

    /// The recent demand for `pool`. `None` until the pool has been sampled twice.
    pub fn of(&self, pool: PoolId) -> Option<PoolLoad> {
        self.0.get(&pool)?.load()
    }

    /// All known data about the load of `pool`. `None` until the pool has been sampled twice.
    pub(crate) fn outlook(&self, pool: PoolId) -> Option<Outlook<'_>> {
        let trail = self.0.get(&pool)?;
        Some(Outlook { load: trail.load()?, trail })
    }

    /// The number of whole hours for which this node has watched its longest-watched pool. A
    /// forecast of the next twelve hours requires at least [`Loads::WATCHED_MIN`].
    pub(crate) fn watched(&self) -> usize {
        self.0.values().map(|trail| trail.means.len()).max().unwrap_or(0)
    }

    /// The number of watched hours that a forecast requires.
    pub(crate) const WATCHED_MIN: usize = DAY + 1;

    /// The mean loads of the last 24 clock hours, oldest first, each with the beginning of its
    /// hour. The last hour is the current one, which is not over yet.
    pub(crate) fn hours(&self, pool: PoolId) -> Vec<(Millis, f64)> {
        let Some(trail) = self.0.get(&pool) else { return Vec::new() };
        let (start, sum, count) = trail.hour;
        let means = trail.means.iter().copied().chain(mean(sum, count));
        let mut means: Vec<f64> = means.map(f64::from).collect();
        means.drain(..means.len().saturating_sub(DAY));
        let hours = (0..means.len() as u64).rev().map(|back| Millis(start.0 - back * HOUR.0));
        hours.zip(means).collect()
    }

    /// The pools with too much overflow: their share of overflow rows since the last call to this
    /// function, or the share expected at their present load, exceeds `most`.
    pub fn busy(&mut self, most: f64) -> Vec<PoolId> {
        let busy =
            self.0.iter_mut().filter_map(|(pool, trail)| trail.is_busy(most).then_some(*pool));
        busy.collect()
    }

    /// The ids of all pools.
    pub fn pools(&self) -> Vec<PoolId> {
        self.0.keys().copied().collect()
    }
}

/// A pool's known load, and the figures that follow from it.
#[derive(Debug)]
pub(crate) struct Outlook<'a> {
    pub(crate) load: PoolLoad,
    trail: &'a Trail,
}

impl Outlook<'_> {
    /// The load an hour from now, if it changes as much as in the last hour.
    pub(crate) fn in_an_hour(&self) -> f64 {
        self.ahead(self.load.load)
    }

    /// Like [`Self::in_an_hour`], but based on the cautious estimate of the present load.
    pub(crate) fn at_least_in_an_hour(&self) -> f64 {
        self.ahead(self.load.at_least())
    }

    fn ahead(&self, load: f64) -> f64 {
        let before = self.trail.means.back().map_or(load, |mean| f64::from(*mean));
        2.0 * load - before
    }

    /// The forecast loads of the next twelve clock hours, each with the beginning of its hour. Each
    /// forecast is the load 24 hours before the forecast hour, multiplied by a trend. The trend is
    /// the load in the last whole hour, divided by the load 24 hours before that. Empty until the
    /// pool has been watched for a day and an hour.
    pub(crate) fn night(&self) -> impl Iterator<Item = (Millis, f64)> {
        let Trail { means, hour: (start, ..), .. } = self.trail;
        // The last whole hour is `means[len - 1]`, so the same hour of the previous day is 24
        // places before it.
        let same = means.len().checked_sub(DAY + 1);
        let trend = same.zip(means.back()).map_or(1.0, |(same, last)| {
            let (before, last) = (f64::from(means[same]), f64::from(*last));
            if before > 0.0 { (last / before).clamp(1.0 / TREND_MAX, TREND_MAX) } else { 1.0 }
        });
        // Skips the hour of the previous day that corresponds to the current hour.
        let next = same.map_or(means.len(), |same| same + 2);
        let hours = means.iter().skip(next).take(NIGHT).zip(1u64..);
        let start = start.0;
        hours.map(move |(mean, ahead)| (Millis(start + ahead * HOUR.0), f64::from(*mean) * trend))
    }
}

impl Mark {
    const fn asked(&self) -> u64 {
        self.allocated + self.refused
    }
}

impl Trail {
    fn new(now: Millis, seen: PoolAsked) -> Self {
        let mark = Mark { at: now, allocated: 0, refused: 0, exhausted: 0, kept: 0, lengthened: 0 };
        let (marks, hour) = (VecDeque::from([mark]), (hour_of(now), 0.0, 0));
        Self { seen, marks, newest: mark, decided: mark, hour, means: VecDeque::new() }
    }

    fn add(&mut self, now: Millis, seen: PoolAsked) {
        let before = self.seen;
        let allocated = more(before.allocated, seen.allocated);
        let refused = more(before.exhausted, seen.exhausted);
        // Rows that a held pool refused need numbers, but do not show that it has too few.
        let exhausted = if before.is_held || seen.is_held { 0 } else { refused };
        // The counters restart together.
        let has_restarted = fell(before.allocated, seen.allocated);
        let lengthened = seen.lengthened - if has_restarted { 0 } else { before.lengthened };
        self.seen = seen;
        self.newest = Mark {
            at: now.max(self.newest.at),
            allocated: self.newest.allocated + allocated,
            refused: self.newest.refused + refused,
            exhausted: self.newest.exhausted + exhausted,
            kept: self.newest.kept + more(before.kept, seen.kept),
            lengthened: self.newest.lengthened + lengthened,
        };
        self.mark();
        self.mean();
    }

    /// Adds a mark if the last one is old enough, and drops marks that are no longer needed.
    fn mark(&mut self) {
        let Mark { at, .. } = self.newest;
        let step = Millis(self.seen.lifetime.0 / MARKS_MAX as u64);
        if self.marks.back().is_none_or(|last| at.since(last.at) >= step) {
            self.marks.push_back(self.newest);
        }
        let is_old = |mark: &Mark| at.since(mark.at) >= self.seen.lifetime;
        // Keeps one mark that is at least as old as the lifetime, and at least two marks in all.
        while self.marks.len() > 2 && is_old(&self.marks[1]) {
            self.marks.pop_front();
        }
        // If the lifetime was shortened, too many marks may remain.
        while self.marks.len() > MARKS_MAX + 2 {
            self.marks.pop_front();
        }
    }

    fn mean(&mut self) {
        let Some((load, over)) = self.present() else { return };
        // Until the first lockouts have ended, the share of early releases is unknown, and a few
        // rows would determine the mean of a whole hour.
        if over < self.seen.lifetime.min(HOUR) {
            return;
        }
        let (start, sum, count) = self.hour;
        let now = hour_of(self.newest.at);
        if start == now {
            self.hour = (start, sum + load, count + 1);
            return;
        }
        self.means.extend(mean(sum, count));
        while self.means.len() >= HOURS {
            self.means.pop_front();
        }
        self.hour = (now, load, 1);
    }

    /// The load, and the time over which it was measured.
    fn present(&self) -> Option<(f64, Millis)> {
        let first = self.marks.front()?;
        let over = self.newest.at.since(first.at);
        if over == Millis::ZERO {
            return None;
        }
        let lifetime = float(self.seen.lifetime.0);
        let allocated = float(self.newest.allocated - first.allocated);
        let lengthened = signed(self.newest.lengthened - first.lengthened);
        let refused = self.visitors(self.newest.refused - first.refused);
        let refused = refused * (lifetime + self.longer());
        let locked = allocated * lifetime + lengthened + refused;
        Some((locked.max(0.0) / float(over.0), over))
    }

    /// The estimated count of visitors whose requests, including repeats, made up the `refused`
    /// rows.
    fn visitors(&self, refused: u64) -> f64 {
        let Mark { allocated, kept, .. } = self.newest;
        let repeats = if allocated == 0 { 0.0 } else { float(kept) / float(allocated) };
        float(refused) / (1.0 + repeats)
    }

    /// The share of visitors since `first` for whom every number was locked out.
    fn overflow(&self, first: &Mark) -> f64 {
        let allocated = float(self.newest.allocated - first.allocated);
        let visitors = allocated + self.visitors(self.newest.refused - first.refused);
        let exhausted = self.visitors(self.newest.exhausted - first.exhausted);
        if visitors > 0.0 { exhausted / visitors } else { 0.0 }
    }

    /// The mean change of a lockout by keep-alives and releases, in milliseconds. Computed from all
    /// counts, because one lifetime may contain too few allocations.
    fn longer(&self) -> f64 {
        match self.newest.allocated {
            0 => 0.0,
            allocated => signed(self.newest.lengthened) / float(allocated),
        }
    }

    fn load(&self) -> Option<PoolLoad> {
        let first = self.marks.front()?;
        let (load, over) = self.present()?;
        let (_, sum, count) = self.hour;
        let means = self.means.iter().rev().take(DAY - 1).copied().chain(mean(sum, count));
        let lockout = float(self.seen.lifetime.0) + self.longer();
        Some(PoolLoad {
            numbers: self.seen.numbers,
            lifetime: self.seen.lifetime,
            lockout: Duration::from_secs_f64(lockout.max(1.0) / 1000.0),
            over,
            asked: self.newest.asked() - first.asked(),
            exhausted: self.newest.exhausted - first.exhausted,
            overflow: self.overflow(first),
            load,
            busiest: means.map(f64::from).fold(0.0, f64::max),
        })
    }

    fn is_busy(&mut self, most: f64) -> bool {
        let before = std::mem::replace(&mut self.decided, self.newest);
        if self.newest.asked() == before.asked() {
            return false;
        }
        if self.overflow(&before) > most {
            return true;
        }
        let load = self.load().map_or(0.0, |load| load.at_least());
        ringwell_plan::blocking(f64::from(self.seen.numbers), load) > most
    }
}

/// The growth of a counter that wraps at 2^32. If the counter fell by less than 2^31, it restarted
/// from zero, because the pool moved to another shard.
fn more(before: u32, after: u32) -> u64 {
    u64::from(if fell(before, after) { after } else { after.wrapping_sub(before) })
}

const fn fell(before: u32, after: u32) -> bool {
    after.wrapping_sub(before) > u32::MAX / 2
}

fn hour_of(now: Millis) -> Millis {
    Millis(now.0 - now.0 % HOUR.0)
}

#[expect(clippy::cast_possible_truncation, reason = "a mean needs only three digits")]
fn mean(sum: f64, count: u32) -> Option<f32> {
    (count > 0).then(|| (sum / f64::from(count)) as f32)
}

#[expect(clippy::cast_precision_loss, reason = "no count or time reaches 2^52")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "no sum of lockouts reaches 2^52 ms")]
const fn signed(time: i64) -> f64 {
    time as f64
}

#[cfg(test)]
mod tests;
