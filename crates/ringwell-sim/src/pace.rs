//! The length of a run, and the times when its clients are busy: either seconds of traffic, or
//! hours with pauses.
//!
//! In a run of seconds, clients send requests all the time. In a run of hours, clients send bursts
//! of a few seconds, with quiet times of up to two hours between them. In a quiet time, few
//! requests are sent, and faults happen only every few minutes. In a run of hours, processes may
//! stay down for longer than in a run of seconds. Owns these intervals, and the lifetimes that suit
//! them.

use crate::random::Random;

/// The Unix time, in microseconds, at which every run begins.
pub(crate) const ORIGIN_US: u64 = 1_700_000_000_000_000;

/// A millisecond, in microseconds.
pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A run of hours is this many times as long as a run of seconds.
const TIMES: u64 = 720;

/// The shortest and the longest duration of a burst, and of the quiet time between two bursts.
const BURST_US: (u64, u64) = (5 * SECOND, 40 * SECOND);
const QUIET_US: (u64, u64) = (30 * SECOND, 2 * HOUR);

/// The shortest and the longest interval between two batches in a quiet time, and between two
/// opportunities for faults.
const BATCHES_US: (u64, u64) = (SECOND, 10 * MINUTE);
const FAULTS_US: (u64, u64) = (MINUTE, 15 * MINUTE);

/// The maximum time that a process is down, that the network is cut, and that a client waits before
/// it repeats a batch.
const DOWN_US: u64 = HOUR / 2;
const CUT_US: u64 = 5 * MINUTE;
const AGAIN_US: u64 = 2 * HOUR;

/// The difference between shard time and the wall clock shrinks by half a millisecond per second.
/// In addition, a shard uses its own clocks to convert the times in reports from other shards.
/// After a run of one minute, look-ups by wall-clock time are therefore only this precise.
const DATED_WITHIN_US: u64 = 30 * MS;

/// The intervals of a run.
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

    /// Returns the lifetimes that pools may have, in milliseconds.
    pub(crate) fn lifetimes_ms(&self) -> [u64; 5] {
        if self.has_hours {
            [500, 5_000, 30_000, 300_000, 1_200_000]
        } else {
            [300, 500, 1_000, 2_000, 5_000]
        }
    }

    /// Returns a time after which all lockouts with the lifetime `lifetime_ms` have ended. A paused
    /// node may miss a change of the lifetime, so the result includes the longest pause. In a run
    /// of seconds, the result is the same for all lifetimes.
    pub(crate) fn shortened_us(&self, lifetime_ms: u64) -> u64 {
        let longest_ms = if self.has_hours { lifetime_ms } else { self.lifetimes_ms()[4] };
        longest_ms * MS + 3 * SECOND
    }

    /// Returns how long clients send batches. In a run of seconds, this is `length_us`.
    pub(crate) fn length_us(&self, length_us: u64) -> u64 {
        if self.has_hours { length_us * TIMES } else { length_us }
    }

    /// Returns the time between the last fault and the first probe: the longest lifetime plus 15 s,
    /// and another minute in a run of hours.
    pub(crate) fn calm_us(&self, lifetime_max_ms: u64) -> u64 {
        let lifetime_us = if self.has_hours {
            // The repair of a damaged node may have to wait until no lockout lasts longer than its
            // pool's lifetime.
            self.lifetimes_ms()[4] * MS + MINUTE
        } else {
            lifetime_max_ms * MS
        };
        lifetime_us + 15 * SECOND
    }

    /// Returns the age at which history is dropped.
    pub(crate) fn history_age_us(&self) -> Option<u64> {
        self.has_hours.then_some(2 * HOUR)
    }

    /// Returns the precision, in microseconds, of look-ups by wall-clock time.
    pub(crate) fn dated_within_us(&self, length_us: u64) -> u64 {
        if self.has_hours { DATED_WITHIN_US + length_us / 1_000 } else { DATED_WITHIN_US }
    }

    /// Returns the time until the next batch. While clients are busy, it is `gap_us`.
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

    /// Draws the length of a quiet time. Short quiet times are as frequent as long ones.
    fn quiet_us(&mut self) -> u64 {
        let doublings = u64::from((QUIET_US.1 / QUIET_US.0).ilog2());
        let low = QUIET_US.0 << self.random.below(doublings + 1);
        self.random.between(low, 2 * low).min(QUIET_US.1)
    }

    /// Returns the time until the next opportunity for faults.
    pub(crate) fn until_faults_us(&mut self, now: u64) -> u64 {
        if !self.has_hours || now < self.busy_until || now >= self.quiet_until {
            return SECOND;
        }
        self.random.between(FAULTS_US.0, FAULTS_US.1).min(self.quiet_until - now)
    }

    /// Returns how long a process stays down. This is `down_us` or, in some cases in a run of
    /// hours, a random time up to `DOWN_US`. If the process would stay down past `end`, the time is
    /// at most 3 s.
    pub(crate) fn down_us(&mut self, now: u64, down_us: u64, end: u64) -> u64 {
        let down_us = self.rarely(down_us, DOWN_US);
        if now + down_us < end { down_us } else { down_us.min(3 * SECOND) }
    }

    /// Returns how long the network is cut.
    pub(crate) fn cut_us(&mut self, cut_us: u64) -> u64 {
        self.rarely(cut_us, CUT_US)
    }

    /// Returns how long a client waits before it repeats a batch.
    pub(crate) fn again_us(&mut self, again_us: u64) -> u64 {
        self.rarely(again_us, AGAIN_US)
    }

    /// Returns `usual_us` or, in one out of four cases in a run of hours, a random time up to
    /// `most_us`.
    fn rarely(&mut self, usual_us: u64, most_us: u64) -> u64 {
        if self.has_hours && self.random.below(4) == 0 {
            self.random.between(MS, most_us)
        } else {
            usual_us
        }
    }
}
