//! Whether the server that leads a log has become slow, so that another one should lead.
//!
//! A leader stores a message itself before it answers. If the leader's disk is slow, all groups are
//! slow; if a follower's disk is slow, none is, because two of three servers are enough.

use std::time::Duration;

use crate::platform::Moment;

/// A group that takes longer than this is slow: a good disk makes many flushes in this time.
const SLOW: Duration = Duration::from_millis(100);

/// A leader whose groups are all slow for this long should be replaced.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shortest time until the leader is replaced again: the other servers may be as slow.
const PAUSE: Duration = Duration::from_mins(1);

/// The speed of a log since its last fast group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slowness {
    /// The sending time of the first slow group after the last fast one.
    since: Option<Moment>,
    asked_at: Option<Moment>,
}

impl Slowness {
    /// Records that a group sent at `sent` is stored now. Returns whether another server should
    /// lead.
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
        // Groups of 500 ms each, except for a fast one after 3 s.
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
