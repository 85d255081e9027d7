//! Decides when a standby starts, and when a process exits because it has lost shards or a journal
//! has failed.
//!
//! Both decisions are based on hints. A wrong decision costs only overflow numbers, because the log
//! alone decides which process owns a shard. A starting process reports that it is starting, so
//! that no other process takes shards from it before it has all of them. Source: docs/spec/log.md,
//! "Standby".

use std::time::Duration;

use super::reached::Reports;
use super::{LastHeartbeat, Sign};
use crate::canary::{Bug, planted};
use crate::node::JournalState;
use crate::platform::Moment;

/// The interval between two reports of a process.
pub const BEAT_EVERY: Duration = Duration::from_millis(500);

/// If no process reports for this long, it is assumed that no process serves.
const SILENCE: Duration = Duration::from_secs(3);

/// The maximum additional time that a standby waits. Each standby adds a different time.
pub const APART: Duration = Duration::from_millis(500);

/// If the streams have not answered, a standby starts only after they have answered for this long
/// and no other process has sent a report in that time. Heartbeats arrive even while a stream has
/// no leader, but not while this process is cut off from the servers.
const CALM: Duration = Duration::from_secs(1);

/// A startup that takes longer than this may never end, so another process then starts too.
const START_MAX: Duration = Duration::from_mins(1);

/// The time for which a process keeps its other shards after it has lost some. If another process
/// is starting, it soon takes these shards too.
const PARTLY_MAX: Duration = Duration::from_secs(10);

/// A report from another process that uses this process's shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The process is taking the shards over.
    Starting,
    /// The process serves. `None` if it runs an earlier build, which does not send its shard time.
    Serving(Option<Sign>),
    /// The process has stored all groups and no longer serves.
    End,
}

/// A standby's wait until it may start.
#[derive(Clone, Debug)]
pub struct Silence {
    apart: Duration,
    since: Moment,
    wanted: Duration,
    /// The last time at which the streams did not answer.
    unanswered_at: Option<Moment>,
    /// The time when a process first reported that it is starting; reset when a process reports
    /// that it serves or has stopped.
    starting_since: Option<Moment>,
    last_heartbeat: Option<(Sign, Moment)>,
    reports: Reports,
}

impl Silence {
    /// Begins to wait. `apart` is different for each process, and at most [`APART`].
    #[must_use]
    pub fn begin(now: Moment, apart: Duration) -> Self {
        let wanted = SILENCE + apart;
        let (unanswered_at, starting_since, last_heartbeat) = (None, None, None);
        let reports = Reports::default();
        Self { apart, since: now, wanted, unanswered_at, starting_since, last_heartbeat, reports }
    }

    /// A report has arrived.
    pub fn received(&mut self, beat: Beat, now: Moment) {
        if beat == Beat::Starting {
            if planted(Bug::StartIgnored) {
                return;
            }
            let since = *self.starting_since.get_or_insert(now);
            if now.since(since) < START_MAX {
                (self.since, self.wanted) = (now, SILENCE + self.apart);
            }
            return;
        }
        (self.since, self.starting_since) = (now, None);
        self.wanted = self.apart + if beat == Beat::End { Duration::ZERO } else { SILENCE };
        if let Beat::Serving(Some(sign)) = beat {
            self.reports.add(&sign, now);
            self.last_heartbeat = Some((sign, now));
        }
    }

    /// Records that the streams do not answer. Until they do, missing reports prove nothing.
    pub fn unanswered(&mut self, now: Moment) {
        self.unanswered_at = Some(now);
    }

    /// Returns the time until this process should start.
    #[must_use]
    pub fn left(&self, now: Moment) -> Duration {
        let calm = self.unanswered_at.map(|at| at + CALM + self.apart);
        let until = (self.since + self.wanted).max(calm.unwrap_or_default());
        until.since(now)
    }

    /// Returns the last heartbeat that contained a time, if there was one.
    #[must_use]
    pub fn last_heartbeat(&self, now: Moment) -> Option<LastHeartbeat> {
        let (sign, arrived) = self.last_heartbeat.clone()?;
        Some(LastHeartbeat { sign, ago: now.since(arrived), reached: self.reports.reached(now) })
    }
}

/// Decides whether a process should stop and start again, because other processes own its shards or
/// a journal has failed. A failed journal stays failed until the next startup, which holds pools if
/// groups are lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fenced {
    /// The time when the process was first found to have lost one of its shards.
    since: Option<Moment>,
}

impl Fenced {
    /// Returns whether the process should stop and start again. `journals` contains the states of
    /// all its shards' journals.
    pub fn is_final(
        &mut self,
        journals: impl IntoIterator<Item = JournalState>,
        now: Moment,
    ) -> bool {
        let (mut taken, mut all) = (0, 0);
        for state in journals {
            if state == JournalState::Failed {
                return true;
            }
            taken += u32::from(state == JournalState::Taken);
            all += 1;
        }
        if taken == 0 {
            self.since = None;
            return false;
        }
        taken == all || now.since(*self.since.get_or_insert(now)) >= PARTLY_MAX
    }
}

#[cfg(test)]
mod tests {
    use ringwell_core::Millis;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::default() + Duration::from_millis(ms)
    }

    /// Returns the time after which a standby that receives `beats` starts.
    fn starts(beats: impl IntoIterator<Item = (u64, Beat)>) -> u64 {
        let mut silence = Silence::begin(at(0), Duration::from_millis(400));
        let mut beats = beats.into_iter().peekable();
        for ms in (0..).step_by(100) {
            while let Some((_, beat)) = beats.next_if(|beat| beat.0 <= ms) {
                silence.received(beat, at(ms));
            }
            if silence.left(at(ms)).is_zero() {
                return ms;
            }
        }
        unreachable!("it ends");
    }

    #[test]
    fn a_standby_starts_after_three_seconds_of_silence_or_after_the_reported_end() {
        assert_eq!(starts([]), 3_400);
        assert_eq!(starts([(2_000, Beat::Serving(None))]), 5_400);
        assert_eq!(starts([(2_000, Beat::Serving(None)), (2_500, Beat::End)]), 2_900);
    }

    #[test]
    fn a_standby_waits_for_a_start_of_up_to_a_minute() {
        let beats = |until| (0..until).step_by(500).map(|ms| (ms, Beat::Starting));
        assert_eq!(starts(beats(30_000)), 29_500 + 3_400);
        assert_eq!(starts(beats(600_000)), 59_500 + 3_400);
        let again = beats(50_000).chain([(50_000, Beat::Serving(None))]);
        let again = again.chain(beats(100_000).filter(|beat| beat.0 > 50_000));
        assert_eq!(starts(again), 99_500 + 3_400);
    }

    #[test]
    fn after_the_streams_did_not_answer_a_second_of_silence_is_enough() {
        let mut silence = Silence::begin(at(0), Duration::from_millis(400));
        silence.received(Beat::Serving(None), at(1_000));
        silence.unanswered(at(2_000));
        assert_eq!(silence.left(at(2_000)), Duration::from_millis(2_400));
        silence.unanswered(at(7_000));
        assert_eq!(silence.left(at(7_000)), Duration::from_millis(1_400));
        silence.received(Beat::Serving(None), at(7_100));
        assert_eq!(silence.left(at(7_100)), Duration::from_millis(3_400));
    }

    #[test]
    fn the_last_time_that_was_reported_is_known_with_its_age() {
        let mut silence = Silence::begin(at(0), APART);
        assert_eq!(silence.last_heartbeat(at(500)).map(|last_heartbeat| last_heartbeat.sign), None);
        let sign = Sign { at: Millis(70_000), epochs: vec![3], stored: vec![9] };
        silence.received(Beat::Serving(Some(sign.clone())), at(1_000));
        silence.received(Beat::End, at(1_500));
        let last_heartbeat = silence.last_heartbeat(at(3_000)).unwrap();
        assert_eq!((last_heartbeat.sign, last_heartbeat.ago), (sign, Duration::from_secs(2)));
        assert_eq!(last_heartbeat.reached.len(), 1);
    }

    #[test]
    fn a_process_that_has_lost_some_shards_stops_later_than_one_that_has_lost_all() {
        use JournalState::{Failed, Taken, Writing};
        let mut fenced = Fenced::default();
        assert!(!fenced.is_final([Writing, Writing], at(0)));
        assert!(!fenced.is_final([Writing, Taken], at(100)));
        assert!(!fenced.is_final([Writing, Taken], at(10_000)));
        assert!(fenced.is_final([Writing, Taken], at(10_100)));
        assert!(Fenced::default().is_final([Taken, Taken], at(0)));
        assert!(Fenced::default().is_final([Writing, Failed], at(0)));
    }
}
