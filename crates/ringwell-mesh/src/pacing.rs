//! Pacing of one link: whether a row's sub-request may be sent to its owner now, must wait, or
//! overflows.
//!
//! Owns the window of one link (one calling shard to one owning shard): how many sub-requests may
//! be in flight, how many are in flight or wait for a slot, and when a shut link is tried again.
//! Independent of clocks, timers, sockets and rows: the user of the link keeps the sent and the
//! waiting sub-requests, and reports events with their times. Time is the time since any fixed
//! origin.
//!
//! Invariants: the window is 0 (shut) or from 1 to `window_max`; at most `window_max` sub-requests
//! are in flight; nothing is sent and nothing waits while the link is shut. The same seed and the
//! same calls give the same answers.
//!
//! Source: docs/spec/pacing.md.

use core::time::Duration;

/// The shortest pause before a ping, because a gap of zero would turn a shut link into a busy loop.
const GAP_FLOOR: Duration = Duration::from_millis(1);

/// The pause before a ping is drawn from this range of permille of the gap, both ends included, so
/// that the callers of an owner that returns do not all try it at the same time.
const JITTER_PERMILLE: core::ops::RangeInclusive<u64> = 800..=1200;

/// The parameters of the pacing. Source of the defaults: docs/spec/pacing.md, "Parameters".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Time limit of a sub-request. Enforced by the driver, which may allow less if the batch has
    /// less time.
    pub deadline: Duration,
    /// The time after which an answer is slow; the driver reports it without waiting for the
    /// answer.
    pub slow: Duration,
    /// The initial limit of sub-requests in flight. Limited to the range from 1 to `window_max`.
    pub window_start: u16,
    /// The greatest limit of sub-requests in flight. At least 1.
    pub window_max: u16,
    /// The time for which a row waits for a slot before it overflows. Enforced by the driver.
    pub wait: Duration,
    /// The maximum number of rows that may wait for a slot at the same time.
    pub waiting_max: u16,
    /// The pause before the first ping of a shut link. At least a millisecond.
    pub gap_min: Duration,
    /// The longest pause between pings, before its jitter. At least `gap_min`.
    pub gap_max: Duration,
    /// The count of consecutive fast answers that resets the pause to `gap_min`.
    pub fast_in_a_row: u32,
    /// If the caller's own loop is delayed by more than this, slow results at that time do not
    /// count.
    pub stall: Duration,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            slow: Duration::from_millis(25),
            window_start: 4,
            window_max: 16,
            wait: Duration::from_millis(15),
            waiting_max: 64,
            gap_min: Duration::from_millis(25),
            gap_max: Duration::from_millis(500),
            fast_in_a_row: 200,
            stall: Duration::from_millis(10),
        }
    }
}

/// The decision on a sub-request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Send it: it is in flight from now on, until exactly one call of [`Window::ended`].
    Send,
    /// No slot is free: it waits until [`Window::next_waiting`] releases it, it gives up after
    /// [`Pacing::wait`] ([`Window::gave_up`]), or the link shuts.
    Wait,
    /// Answer its rows with the overflow number now. Nothing is counted.
    Overflow(Shed),
}

/// The reason why rows overflow without having been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// The link is shut: its owner was slow repeatedly.
    Shut,
    /// Too many already wait, or the driver reports that the wait ended before a slot was free.
    Full,
}

/// The end of a sub-request or a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner answered with rows, even if late.
    Answered,
    /// The owner refused, or answered with a server error.
    Refused,
    /// No answer: reset, no connection, or the deadline has passed.
    Lost,
}

/// The window of one link.
///
/// The order of the calls: [`ask`](Self::ask) for every sub-request; [`slow`](Self::slow) at most
/// once and [`ended`](Self::ended) exactly once for every one that was sent. After each `ended` and
/// `pinged`, call [`next_waiting`](Self::next_waiting) until it returns nothing. After each `slow`
/// and `ended`, check [`is_shut`](Self::is_shut): when the link has shut, everything that waited
/// overflows at once with [`Shed::Shut`]. It is no longer counted here, so do not call
/// [`gave_up`](Self::gave_up) for it. While the link is shut, send a ping when
/// [`ping_at`](Self::ping_at) is due.
#[derive(Clone, Debug)]
pub struct Window {
    pacing: Pacing,
    state: WindowState,
    in_flight: u32,
    waiting: u32,
    /// The pause before the next ping, without its jitter. Kept when the link opens, so that an
    /// owner whose link opens and shuts repeatedly is tried less and less often.
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

/// The judgement on the end of a sub-request.
enum Verdict {
    Fast,
    Slow,
    /// The caller itself was late, so this says nothing about the owner.
    Void,
}

impl Window {
    /// An open window with `window_start` slots. Values of `pacing` outside the bounds in its
    /// fields' comments are moved to the nearest bound. `seed` determines the jitter of the pings:
    /// links to one owner should have different ones.
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

    /// Requests a slot for one sub-request. A new one never overtakes those that already wait.
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

    /// Gives a free slot to a waiting sub-request; `true` means that the oldest one is in flight
    /// now and must be sent.
    pub fn next_waiting(&mut self) -> bool {
        let goes = self.waiting > 0 && self.has_place();
        if goes {
            self.waiting -= 1;
            self.in_flight += 1;
        }
        goes
    }

    /// Removes a waiting sub-request whose wait is over, or whose batch was dropped.
    pub fn gave_up(&mut self) {
        debug_assert!(self.waiting > 0, "nobody waits");
        // A driver that miscounts loses slots for a while; the shard must not fail.
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Reports that a sub-request in flight has had no answer for [`Pacing::slow`]. Called once for
    /// each, without waiting for its end. `lag` is the delay of the caller's own loop at this time.
    pub fn slow(&mut self, now: Duration, lag: Duration) {
        if lag <= self.pacing.stall {
            self.cut(now);
        }
    }

    /// Reports that a sub-request ended, `took` after it was sent.
    ///
    /// A fast answer lets the window grow; a slow one, a refusal or a loss reduces it, unless
    /// [`slow`](Self::slow) was already called for it (`was_told_slow`), because each sub-request
    /// counts once. `lag` is the delay of the caller's own loop at this time.
    pub fn ended(
        &mut self,
        now: Duration,
        took: Duration,
        ending: Ending,
        lag: Duration,
        was_told_slow: bool,
    ) {
        debug_assert!(self.in_flight > 0, "nothing is in flight");
        // The ending one is included, because with a window of 1 nothing else is ever in flight.
        let in_flight = self.in_flight;
        // A driver that miscounts loses slots for a while; the shard must not fail.
        self.in_flight = self.in_flight.saturating_sub(1);
        if was_told_slow {
            return;
        }
        match self.verdict(took, ending, lag) {
            Verdict::Fast => self.grow(in_flight),
            Verdict::Slow => self.cut(now),
            Verdict::Void => {}
        }
    }

    /// Whether the link is shut: nothing is sent at present, and nothing waits.
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

    /// Records that a ping was sent. It must pass through the owner's engine, and
    /// [`pinged`](Self::pinged) must be called exactly once, at [`Pacing::deadline`] at the latest.
    pub fn ping_sent(&mut self, _now: Duration) {
        if self.is_shut() {
            self.state = WindowState::Shut(Ping::Underway);
        }
    }

    /// Reports that a ping ended, `took` after it was sent. A fast one opens the link with one
    /// slot; a slow one doubles the pause before the next; one that ended while the caller itself
    /// was late (`lag`) is repeated after the same pause.
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

    /// The window: 0 when the link is shut, else from 1 to `window_max`. Its integer part is the
    /// number of sub-requests that may be in flight.
    #[must_use]
    pub fn window(&self) -> f64 {
        match self.state {
            WindowState::Open { window } => window,
            WindowState::Shut(_) => 0.0,
        }
    }

    /// The count of sub-requests that were sent and have not ended. May exceed the window for a
    /// while after it was halved, because nothing is cancelled.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The count of sub-requests that wait for a slot.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting
    }

    /// The duration of the last ping, whatever its result. `None` before the first.
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

    /// Handles a fast answer that arrived while `in_flight` were in flight, including itself.
    fn grow(&mut self, in_flight: u32) {
        let WindowState::Open { window } = &mut self.state else {
            return; // Only a ping opens a link: this was sent before the owner turned slow.
        };
        // An unused window is no evidence that a larger one would work.
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
            return; // What was sent before the link shut has nothing left to cut.
        };
        *window /= 2.0;
        if *window < 1.0 {
            self.shut(now);
        }
    }

    /// Shuts the link, or keeps it shut, until a ping after the present gap.
    fn shut(&mut self, now: Duration) {
        let pause = self.jitter.spread(self.gap);
        self.state = WindowState::Shut(Ping::DueAt(now.saturating_add(pause)));
        self.waiting = 0;
    }
}

/// Sebastiano Vigna's splitmix64: eight bytes of state are enough to make callers differ.
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

    /// Changes `gap` by up to a fifth in either direction.
    fn spread(&mut self, gap: Duration) -> Duration {
        let (least, most) = (*JITTER_PERMILLE.start(), *JITTER_PERMILLE.end());
        #[expect(clippy::cast_possible_truncation, reason = "at most 1,200")]
        let permille = (least + self.next() % (most - least + 1)) as u32;
        gap.saturating_mul(permille) / 1000
    }
}

#[cfg(test)]
mod tests;
