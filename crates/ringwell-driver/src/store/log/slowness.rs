//! Determines whether the server that leads a log has become slow and another one should lead.
//!
//! Before a leader answers, it stores the message itself. If the leader's disk is slow, all groups
//! are slow. If a follower's disk is slow, no group is slow, because two of three servers form a
//! quorum.

use std::time::Duration;

use crate::platform::Moment;

/// A group that takes longer than this is slow. A good disk completes many flushes in this time.
const SLOW: Duration = Duration::from_millis(100);

/// If all groups of a leader are slow for this long, the leader should be replaced.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time before the leader is replaced again, because the other servers may be just as
/// slow.
const PAUSE: Duration = Duration::from_mins(1);

/// The slow groups of a log since its last fast group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slowness {
    /// The time when the first slow group after the last fast one was sent.
    since: Option<Moment>,
    asked_at: Option<Moment>,
}

impl Slowness {
    /// Records that a group was sent at `sent` and stored at `now`. Returns whether another server
    /// should lead.
    pub(super) fn stored(&mut self, sent: Moment, now: Moment) -> bool {
        if now.since(sent) < SLOW {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(sent);
        let is_soon = self.asked_at.is_some_and(|asked| now.since(asked) < PAUSE);
        if now.since(since) < PATIENCE || is_soon {
            return false;
        }
        (self.since, self.asked_at) = (None, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_slow_for_five_seconds_is_replaced_once_a_minute() {
        let (mut slowness, start) = (Slowness::default(), Moment::default());
        let at = |ms| start + Duration::from_millis(ms);
        // Each group takes 500 ms, except for a fast one after 3 s.
        let mut asked = Vec::new();
        for ms in (0..80_000).step_by(500) {
            let took = if ms == 3_000 { 5 } else { 500 };
            if slowness.stored(at(ms), at(ms + took)) {
                asked.push(ms + took);
            }
        }
        assert_eq!(asked, [8_500, 68_500]);
    }
}
