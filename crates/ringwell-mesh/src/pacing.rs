//! The pacing of one link: decides whether a sub-request is sent to its owner now, waits, or
//! overflows.
//!
//! Owns the window of one link from a calling shard to an owning shard. The window determines how
//! many sub-requests may be in flight, counts those in flight and those waiting for a slot, and
//! determines when a shut link is tried again. Does not depend on clocks, timers, sockets or rows.
//! The user of the link (the *driver*) stores the sub-requests that were sent or are waiting, and
//! reports events with their times. All times are measured from one fixed origin, which the driver
//! chooses.
//!
//! Invariants: the window is either 0 (shut) or from 1 to `window_max`. At most `window_max`
//! sub-requests are in flight. While the link is shut, nothing is sent except pings, and nothing
//! waits. The same seed and the same sequence of method calls give the same results.
//!
//! Source: docs/spec/pacing.md.

use core::time::Duration;

/// The shortest pause before a ping. A pause of zero would turn a shut link into a busy loop.
const GAP_FLOOR: Duration = Duration::from_millis(1);

/// The range of the random factor for the pause before a ping, in thousandths. Because of this
/// factor, an owner's callers do not all ping it at the same time.
const JITTER_PERMILLE: core::ops::RangeInclusive<u64> = 800..=1200;

/// The pacing parameters. Source of the defaults: docs/spec/pacing.md, "Parameters". A server
/// replaces `deadline`, `slow` and `wait` with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The time limit of a sub-request. The driver enforces this limit, and allows less if the
    /// batch has less time left.
    pub deadline: Duration,
    /// The time after which an answer is slow. After this time, the driver reports the sub-request
    /// as slow, even if its answer has not arrived.
    pub slow: Duration,
    /// The initial limit on sub-requests in flight. It is restricted to the range from 1 to
    /// `window_max`.
    pub window_start: u16,
    /// The highest limit on sub-requests in flight. At least 1.
    pub window_max: u16,
    /// The time for which a row waits for a slot before it overflows. The driver enforces this
    /// limit.
    pub wait: Duration,
    /// The maximum number of sub-requests that may wait for a slot at the same time.
    pub waiting_max: u16,
    /// The pause before the first ping of a shut link. At least a millisecond.
    pub gap_min: Duration,
    /// The longest pause between pings, before jitter is applied. It is at least `gap_min`.
    pub gap_max: Duration,
    /// The number of consecutive fast answers after which the pause is reset to `gap_min`.
    pub fast_in_a_row: u32,
    /// If the caller's own event loop is delayed by more than this time, slow results do not count,
    /// because the caller itself may have caused them.
    pub stall: Duration,
}

impl Pacing {
    /// The pacing with these time limits, which are node settings. Everything else is fixed.
    #[must_use]
    pub const fn new(deadline: Duration, slow: Duration, wait: Duration) -> Self {
        Self {
            deadline,
            slow,
            window_start: 4,
            window_max: 16,
            wait,
            waiting_max: 64,
            gap_min: Duration::from_millis(25),
            gap_max: Duration::from_millis(500),
            fast_in_a_row: 200,
            stall: Duration::from_millis(10),
        }
    }
}

/// The decision about a sub-request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Send the sub-request. It is in flight until [`Window::ended`] is called for it, exactly
    /// once.
    Send,
    /// No slot is free, so the sub-request waits. It waits until [`Window::next_waiting`] releases
    /// it, until the driver removes it after [`Pacing::wait`] ([`Window::gave_up`]), or until the
    /// link shuts.
    Wait,
    /// Answer the sub-request's rows with the overflow number now. Nothing is counted.
    Overflow(Shed),
}

/// The reason why rows overflow without being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// The link is shut, because the owner was repeatedly slow.
    Shut,
    /// Too many sub-requests were already waiting, or the time limit passed before a slot was free.
    Full,
}

/// The outcome of a sub-request or a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner answered with rows, possibly late.
    Answered,
    /// The owner refused the request, or answered with a server error.
    Refused,
    /// There was no answer: the connection was reset or could not be opened, or the deadline
    /// passed.
    Lost,
}

/// The window of one link.
///
/// Call the methods in this order: [`ask`](Self::ask) for every sub-request; then, for every one
/// that was sent, [`slow`](Self::slow) at most once and [`ended`](Self::ended) exactly once. After
/// each `ended` and `pinged`, call [`next_waiting`](Self::next_waiting) until it returns `false`.
/// After each `slow` and `ended`, check [`is_shut`](Self::is_shut): if the link is now shut,
/// everything that was waiting overflows at once with [`Shed::Shut`]. The window no longer counts
/// these sub-requests, so do not call [`gave_up`](Self::gave_up) for them. While the link is shut,
/// send a ping at the time that [`ping_at`](Self::ping_at) returns.
#[derive(Clone, Debug)]
pub struct Window {
    pacing: Pacing,
    state: WindowState,
    in_flight: u32,
    waiting: u32,
    /// The pause before the next ping, before jitter is applied. It is kept when the link opens. If
    /// a link opens and shuts repeatedly, its owner is therefore tried less and less often.
    gap: Duration,
    fast_in_a_row: u32,
    last_ping: Option<Duration>,
    jitter: SplitMix64,
}

#[derive(Clone, Copy, Debug)]
enum WindowState {
    Open { window: f64 },
    Shut(Ping),
}

#[derive(Clone, Copy, Debug)]
enum Ping {
    DueAt(Duration),
    Underway,
}

/// The classification of a sub-request that ended.
enum Verdict {
    Fast,
    Slow,
    /// The caller itself was delayed, so the result says nothing about the owner.
    Void,
}

impl Window {
    /// Creates an open window with `window_start` slots. Each value of `pacing` is clamped to the
    /// bounds in its field's comment. `seed` determines the pings' jitter, so links to the same
    /// owner should have different seeds.
    #[must_use]
    pub fn new(mut pacing: Pacing, seed: u64) -> Self {
        pacing.window_max = pacing.window_max.max(1);
        pacing.window_start = pacing.window_start.clamp(1, pacing.window_max);
        pacing.gap_min = pacing.gap_min.max(GAP_FLOOR);
        pacing.gap_max = pacing.gap_max.max(pacing.gap_min);
        Self {
            pacing,
            state: WindowState::Open { window: f64::from(pacing.window_start) },
            in_flight: 0,
            waiting: 0,
            gap: pacing.gap_min,
            fast_in_a_row: 0,
            last_ping: None,
            jitter: SplitMix64(seed),
        }
    }

    /// Requests a slot for one sub-request. A new sub-request never overtakes those that are
    /// already waiting.
    pub fn ask(&mut self, _now: Duration) -> Admission {
        if self.is_shut() {
            Admission::Overflow(Shed::Shut)
        } else if self.waiting == 0 && self.has_place() {
            self.in_flight += 1;
            Admission::Send
        } else if self.waiting < u32::from(self.pacing.waiting_max) {
            self.waiting += 1;
            Admission::Wait
        } else {
            Admission::Overflow(Shed::Full)
        }
    }

    /// Gives a free slot to the oldest waiting sub-request. If the result is `true`, that
    /// sub-request now counts as in flight, and the driver must send it.
    pub fn next_waiting(&mut self) -> bool {
        let goes = self.waiting > 0 && self.has_place();
        if goes {
            self.waiting -= 1;
            self.in_flight += 1;
        }
        goes
    }

    /// Removes a waiting sub-request whose waiting time is over, or whose batch was dropped.
    pub fn gave_up(&mut self) {
        debug_assert!(self.waiting > 0, "nobody waits");
        // In a release build, a driver that calls this method too often must not make the shard
        // panic.
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Reports that a sub-request in flight has not been answered within [`Pacing::slow`]. Call
    /// this method once for each such sub-request, before the sub-request ends. `lag` is the
    /// current delay of the caller's own event loop.
    pub fn slow(&mut self, now: Duration, lag: Duration) {
        if lag <= self.pacing.stall {
            self.cut(now);
        }
    }

    /// Reports that a sub-request ended. `took` is the time since it was sent.
    ///
    /// A fast answer widens the window. A slow answer, a refusal or a loss narrows it, unless
    /// [`slow`](Self::slow) was already called for this sub-request (`was_reported_slow`). Each
    /// sub-request counts only once. `lag` is the current delay of the caller's own event loop.
    pub fn ended(
        &mut self,
        now: Duration,
        took: Duration,
        ending: Ending,
        lag: Duration,
        was_reported_slow: bool,
    ) {
        debug_assert!(self.in_flight > 0, "nothing is in flight");
        // Includes the sub-request that ended. Otherwise, a window of 1 would never grow, because
        // nothing else is in flight.
        let in_flight = self.in_flight;
        // In a release build, a driver that calls this method too often must not make the shard
        // panic.
        self.in_flight = self.in_flight.saturating_sub(1);
        if was_reported_slow {
            return;
        }
        match self.verdict(took, ending, lag) {
            Verdict::Fast => self.grow(in_flight),
            Verdict::Slow => self.cut(now),
            Verdict::Void => {}
        }
    }

    /// Whether the link is shut: only pings are sent, and nothing waits.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        matches!(self.state, WindowState::Shut(_))
    }

    /// The time when the next ping is due. `None` while the link is open or a ping is in flight.
    #[must_use]
    pub fn ping_at(&self) -> Option<Duration> {
        match self.state {
            WindowState::Shut(Ping::DueAt(at)) => Some(at),
            WindowState::Shut(Ping::Underway) | WindowState::Open { .. } => None,
        }
    }

    /// Records that a ping was sent. The ping must wait in the owner's queue like a row.
    /// [`pinged`](Self::pinged) must be called exactly once for it, within [`Pacing::deadline`].
    pub fn ping_sent(&mut self, _now: Duration) {
        if self.is_shut() {
            self.state = WindowState::Shut(Ping::Underway);
        }
    }

    /// Reports that a ping ended. `took` is the time since it was sent. A fast ping opens the link
    /// with one slot. A slow ping doubles the pause before the next one. If the caller itself was
    /// delayed (`lag`), a slow ping counts for nothing and is repeated after the same pause.
    pub fn pinged(&mut self, now: Duration, took: Duration, ending: Ending, lag: Duration) {
        self.last_ping = Some(took);
        if !self.is_shut() {
            return;
        }
        match self.verdict(took, ending, lag) {
            Verdict::Fast => self.state = WindowState::Open { window: 1.0 },
            Verdict::Slow => {
                self.gap = self.gap.saturating_mul(2).min(self.pacing.gap_max);
                self.shut(now);
            }
            Verdict::Void => self.shut(now),
        }
    }

    /// The window: 0 while the link is shut, otherwise from 1 to `window_max`. Its integer part is
    /// the number of sub-requests that may be in flight.
    #[must_use]
    pub fn window(&self) -> f64 {
        match self.state {
            WindowState::Open { window } => window,
            WindowState::Shut(_) => 0.0,
        }
    }

    /// The number of sub-requests that were sent and have not ended. After the window has been
    /// halved, this number may exceed the window for a while, because no sub-request is cancelled.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The number of sub-requests that are waiting for a slot.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The duration of the last ping, whatever its result was. `None` before the first ping.
    #[must_use]
    pub fn last_ping(&self) -> Option<Duration> {
        self.last_ping
    }

    fn has_place(&self) -> bool {
        f64::from(self.in_flight) + 1.0 <= self.window()
    }

    fn verdict(&self, took: Duration, ending: Ending, lag: Duration) -> Verdict {
        if ending == Ending::Answered && took <= self.pacing.slow {
            Verdict::Fast
        } else if lag > self.pacing.stall {
            Verdict::Void
        } else {
            Verdict::Slow
        }
    }

    /// Handles a fast answer. `in_flight` counts the sub-requests in flight just before the answer
    /// arrived, including the answered one.
    fn grow(&mut self, in_flight: u32) {
        let WindowState::Open { window } = &mut self.state else {
            return; // Only a ping opens a link. This sub-request was sent before it shut.
        };
        // If most of the window is unused, a fast answer is no evidence that a larger window would
        // also give fast answers.
        if f64::from(in_flight) * 2.0 >= *window {
            *window = (*window + 1.0 / *window).min(f64::from(self.pacing.window_max));
        }
        self.fast_in_a_row = self.fast_in_a_row.saturating_add(1);
        if self.fast_in_a_row >= self.pacing.fast_in_a_row {
            self.gap = self.pacing.gap_min;
        }
    }

    fn cut(&mut self, now: Duration) {
        self.fast_in_a_row = 0;
        let WindowState::Open { window } = &mut self.state else {
            return; // The sub-request was sent before the link shut: no window is left to halve.
        };
        *window /= 2.0;
        if *window < 1.0 {
            self.shut(now);
        }
    }

    /// Shuts the link, or keeps it shut. The next ping is due after the current gap.
    fn shut(&mut self, now: Duration) {
        let pause = self.jitter.spread(self.gap);
        self.state = WindowState::Shut(Ping::DueAt(now.saturating_add(pause)));
        self.waiting = 0;
    }
}

/// The random number generator splitmix64, by Sebastiano Vigna. Its eight bytes of state are enough
/// to give callers different jitter.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns `gap`, lengthened or shortened by up to a fifth.
    fn spread(&mut self, gap: Duration) -> Duration {
        let (least, most) = (*JITTER_PERMILLE.start(), *JITTER_PERMILLE.end());
        #[expect(clippy::cast_possible_truncation, reason = "at most 1,200")]
        let permille = (least + self.next() % (most - least + 1)) as u32;
        gap.saturating_mul(permille) / 1000
    }
}

#[cfg(test)]
mod tests;
