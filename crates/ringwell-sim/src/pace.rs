//! The length of a run, and the times when its clients are busy: seconds of traffic, or hours with
//! pauses.
//!
//! A run of seconds has clients all the time. A run of hours has bursts of a few seconds, with
//! quiet time of up to two hours between them. In quiet time little is sent, faults happen every
//! few minutes, and machines stay down for longer. Owns these intervals, and the matching
//! lifetimes.

use crate::random::Random;

/// A millisecond, in microseconds.
pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A run of hours is this many times as long as one of seconds.
const TIMES: u64 = 720;

/// The duration of a burst of clients, and the shortest and longest time between two bursts.
const BURST_US: (u64, u64) = (5 * SECOND, 40 * SECOND);
const QUIET_US: (u64, u64) = (30 * SECOND, 2 * HOUR);

/// In quiet time: the intervals between two batches, and between two opportunities for faults.
const BATCHES_US: (u64, u64) = (SECOND, 10 * MINUTE);
const FAULTS_US: (u64, u64) = (MINUTE, 15 * MINUTE);

/// The longest time that a process is down, that a network is cut, and that a client waits before
/// it sends a batch again.
const DOWN_US: u64 = HOUR / 2;
const CUT_US: u64 = 5 * MINUTE;
const AGAIN_US: u64 = 2 * HOUR;

/// Shard time approaches the wall clock by half a millisecond a second, and reports of other shards
/// are dated by the clocks of the receiving shard. A look-up by the wall clock is this precise
/// after a run of a minute.
const DATED_WITHIN_US: u64 = 30 * MS;

/// The intervals of one run.
#[derive(Debug)]
pub(crate) struct Pace {
    has_hours: bool,
    random: Random,
    busy_until: u64,
    quiet_until: u64,
}

impl Pace {
    pub(crate) fn new(seed: u64, has_hours: bool) -> Self {
        Self { has_hours, random: Random::new(seed, 9), busy_until: 0, quiet_until: 0 }
    }

    /// The lifetimes of pools, in milliseconds.
    pub(crate) fn lifetimes_ms(&self) -> [u64; 5] {
        if self.has_hours {
            [500, 5_000, 30_000, 300_000, 1_200_000]
        } else {
            [300, 500, 1_000, 2_000, 5_000]
        }
    }

    /// The time after which no lockout of the lifetime `lifetime_ms` runs: that lifetime, and the
    /// longest pause in which a node may miss a new lifetime.
    pub(crate) fn shortened_us(&self, lifetime_ms: u64) -> u64 {
        let longest_ms = if self.has_hours { lifetime_ms } else { self.lifetimes_ms()[4] };
        longest_ms * MS + 3 * SECOND
    }

    /// The time for which clients send batches, if it is `length_us` in a run of seconds.
    pub(crate) fn length_us(&self, length_us: u64) -> u64 {
        if self.has_hours { length_us * TIMES } else { length_us }
    }

    /// The time from the last fault to the first probe: the longest lifetime, plus 15 s.
    pub(crate) fn calm_us(&self, lifetime_max_ms: u64) -> u64 {
        let lifetime_us = if self.has_hours {
            // A damaged node waits for the end of longer lockouts before it begins anew.
            self.lifetimes_ms()[4] * MS + MINUTE
        } else {
            lifetime_max_ms * MS
        };
        lifetime_us + 15 * SECOND
    }

    /// The age from which on history is no longer kept.
    pub(crate) fn history_age_us(&self) -> Option<u64> {
        self.has_hours.then_some(2 * HOUR)
    }

    /// The precision with which look-ups by the wall clock find an allocation.
    pub(crate) fn dated_within_us(&self, length_us: u64) -> u64 {
        if self.has_hours { DATED_WITHIN_US + length_us / 1_000 } else { DATED_WITHIN_US }
    }

    /// The time until the next batch, which is `gap_us` while clients are busy.
    pub(crate) fn until_batch_us(&mut self, now: u64, gap_us: u64) -> u64 {
        if !self.has_hours {
            return gap_us;
        }
        if now >= self.quiet_until {
            self.busy_until = now + self.random.between(BURST_US.0, BURST_US.1);
            self.quiet_until = self.busy_until + self.quiet_us();
        }
        if now < self.busy_until {
            return gap_us;
        }
        let gap_us = self.random.between(BATCHES_US.0, BATCHES_US.1);
        gap_us.min(self.quiet_until - now)
    }

    /// Draws a quiet time: short ones are as frequent as long ones.
    fn quiet_us(&mut self) -> u64 {
        let doublings = u64::from((QUIET_US.1 / QUIET_US.0).ilog2());
        let low = QUIET_US.0 << self.random.below(doublings + 1);
        self.random.between(low, 2 * low).min(QUIET_US.1)
    }

    /// The time until the next opportunity for faults.
    pub(crate) fn until_faults_us(&mut self, now: u64) -> u64 {
        if !self.has_hours || now < self.busy_until || now >= self.quiet_until {
            return SECOND;
        }
        self.random.between(FAULTS_US.0, FAULTS_US.1).min(self.quiet_until - now)
    }

    /// The downtime of a process that would start after `down_us`; sometimes longer, but not past
    /// `end`.
    pub(crate) fn down_us(&mut self, now: u64, down_us: u64, end: u64) -> u64 {
        let down_us = self.rarely(down_us, DOWN_US);
        if now + down_us < end { down_us } else { down_us.min(3 * SECOND) }
    }

    /// The duration of a cut of the network.
    pub(crate) fn cut_us(&mut self, cut_us: u64) -> u64 {
        self.rarely(cut_us, CUT_US)
    }

    /// The time for which a client waits before it repeats a batch.
    pub(crate) fn again_us(&mut self, again_us: u64) -> u64 {
        self.rarely(again_us, AGAIN_US)
    }

    /// In a run of hours, returns any time up to `most_us` in one of four cases; else `usual_us`.
    fn rarely(&mut self, usual_us: u64, most_us: u64) -> u64 {
        if self.has_hours && self.random.below(4) == 0 {
            self.random.between(MS, most_us)
        } else {
            usual_us
        }
    }
}
