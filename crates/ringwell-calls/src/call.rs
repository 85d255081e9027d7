//! One call: the provider's reports about the call, joined into one state.
//!
//! Owns a call's facts and the rules for joining reports. Does not depend on a provider, clock or
//! database. Invariant: [`Facts::join`] is commutative, associative and idempotent, so repeating or
//! reordering events does not change the resulting state. Source: docs/spec/calls.md, "One call".

use ringwell_core::Millis;
use serde::{Deserialize, Serialize};

/// Providers round times down by less than this time, in milliseconds.
const ROUNDED_MAX: u64 = 1000;

/// The outcome of a call. The values are ordered by strength of evidence. If reports disagree, the
/// greatest value wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The destination could not be reached.
    Failed,
    /// The caller hung up before the call was answered.
    CallerGaveUp,
    /// The destination rang, but did not answer.
    NoAnswer,
    /// The destination was busy.
    Busy,
    /// The destination refused the call.
    Rejected,
    /// The destination answered.
    Answered,
}

/// The kind of a provider's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The call has arrived.
    Started,
    /// A destination is ringing.
    Ringing,
    /// A destination has answered.
    Answered,
    /// One destination did not answer. Another destination may be tried.
    LegEnded(Outcome),
    /// The call is over. `None` if the provider does not report the outcome.
    Ended(Option<Outcome>),
    /// The caller's leg is over. Contains its duration in seconds. The leg is answered when a
    /// destination answers. A duration above 0 therefore shows that the call was answered, unless
    /// another report says what happened at the destinations.
    CallerLegEnded(u32),
}

/// One report from a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// Identifies the report, so that repeats are detected. Consists of the kind, the leg, and the
    /// provider's sequence number.
    pub key: String,
    /// The reported event.
    pub kind: EventKind,
    /// The event's time according to the provider, or the report's arrival time if the report
    /// contains no time.
    pub at: Millis,
    /// The duration of the conversation, if the report contains it.
    pub talk_seconds: Option<u32>,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// No destination has answered yet.
    Ringing,
    /// The parties are talking.
    Answered,
    /// The call is over.
    Ended,
}

/// All facts reported about one call so far. If several reports give a time for the same event, the
/// earliest is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The time at which the call began, if it was reported.
    started_ms: Option<u64>,
    /// Whether a report of the beginning was dated by the server's clock.
    #[serde(default)]
    is_start_ours: bool,
    /// The time of the earliest report of any kind that was dated by the server's clock.
    #[serde(default)]
    ours_ms: Option<u64>,
    /// The time of the earliest report of any kind that was dated by the provider's clock.
    #[serde(default)]
    theirs_ms: Option<u64>,
    /// The smallest delay of the reports that were dated by the provider's clock. If the server's
    /// clock is ahead of the provider's, it contains the difference.
    #[serde(default)]
    delay_ms: Option<u64>,
    /// The time by which the call had begun according to the durations in reports of its end.
    #[serde(default)]
    begun_by_ms: Option<u64>,
    /// The beginning, as stored by earlier builds.
    #[serde(default, skip_serializing)]
    first_ms: Option<u64>,
    ringing_ms: Option<u64>,
    answered_ms: Option<u64>,
    ended_ms: Option<u64>,
    /// The greatest outcome that was reported for any destination.
    leg: Option<Outcome>,
    /// The outcome of the call, if the provider reported one.
    end: Option<Outcome>,
    talk_seconds: Option<u32>,
    /// The duration of the caller's leg, if the provider reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller_leg_seconds: Option<u32>,
}

impl Outcome {
    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Busy => "busy",
            Self::NoAnswer => "no_answer",
            Self::Rejected => "rejected",
            Self::CallerGaveUp => "caller_gave_up",
            Self::Failed => "failed",
        }
    }

    /// Parses the name in the API.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let all = [
            Self::Answered,
            Self::Busy,
            Self::NoAnswer,
            Self::Rejected,
            Self::CallerGaveUp,
            Self::Failed,
        ];
        all.into_iter().find(|outcome| outcome.name() == name)
    }
}

impl CallState {
    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ringing => "ringing",
            Self::Answered => "answered",
            Self::Ended => "ended",
        }
    }
}

impl EventKind {
    /// The name in the timeline.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ringing => "ringing",
            Self::Answered => "answered",
            Self::LegEnded(_) => "leg_ended",
            Self::Ended(_) | Self::CallerLegEnded(_) => "ended",
        }
    }

    /// The outcome that the event reports, if any.
    #[must_use]
    pub const fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Started | Self::Ringing | Self::Answered | Self::CallerLegEnded(_) => None,
            Self::LegEnded(outcome) => Some(outcome),
            Self::Ended(outcome) => outcome,
        }
    }
}

impl CallEvent {
    /// The time by which the call had begun, if the event is the call's end and contains a
    /// duration.
    pub(crate) fn begun_by(&self) -> Option<Millis> {
        let seconds = match self.kind {
            EventKind::Ended(_) => self.talk_seconds?,
            EventKind::CallerLegEnded(seconds) => seconds,
            _ => return None,
        };
        Some(Millis(self.at.0.saturating_sub(u64::from(seconds) * 1000)))
    }
}

impl Facts {
    /// Adds the facts that `event` reports. `delay` is the time between the event and the arrival
    /// of its report if the provider's clock dates the event, or `None` if the server's clock does.
    /// Returns whether any fact is new.
    pub fn join(&mut self, event: &CallEvent, delay: Option<Millis>) -> bool {
        self.join_begun(event, delay, event.begun_by())
    }

    /// Like [`Self::join`]. `begun_by` replaces [`CallEvent::begun_by`].
    pub(crate) fn join_begun(
        &mut self,
        event: &CallEvent,
        delay: Option<Millis>,
        begun_by: Option<Millis>,
    ) -> bool {
        let before = self.clone();
        if let Some(delay) = delay {
            earliest(&mut self.theirs_ms, event.at);
            earliest(&mut self.delay_ms, delay);
        } else {
            earliest(&mut self.ours_ms, event.at);
            self.is_start_ours |= event.kind == EventKind::Started;
        }
        if let Some(begun_by) = begun_by {
            earliest(&mut self.begun_by_ms, begun_by);
        }
        self.talk_seconds = self.talk_seconds.max(event.talk_seconds);
        match event.kind {
            EventKind::Started => earliest(&mut self.started_ms, event.at),
            EventKind::Ringing => earliest(&mut self.ringing_ms, event.at),
            EventKind::Answered => earliest(&mut self.answered_ms, event.at),
            EventKind::LegEnded(outcome) => self.leg = self.leg.max(Some(outcome)),
            EventKind::Ended(outcome) => {
                earliest(&mut self.ended_ms, event.at);
                self.end = self.end.max(outcome);
            }
            EventKind::CallerLegEnded(seconds) => {
                earliest(&mut self.ended_ms, event.at);
                self.caller_leg_seconds = self.caller_leg_seconds.max(Some(seconds));
            }
        }
        *self != before
    }

    /// Adds a report without an event: records only that the call existed at `at`. As with
    /// [`Self::join`], reports may arrive in any order.
    pub fn seen(&mut self, at: Millis) -> bool {
        let before = self.ours_ms;
        earliest(&mut self.ours_ms, at);
        self.ours_ms != before
    }

    /// The time to record for a report that contains no time and arrived at `arrived`. If the
    /// call's beginning is later than `now`, the clock was set back after the call began. The
    /// returned time is then not earlier than the beginning, or than a known time of the same
    /// `kind`.
    pub(crate) fn date_of_arrival(
        &self,
        kind: Option<EventKind>,
        arrived: Millis,
        now: Millis,
    ) -> Millis {
        let began = self.started_at();
        if began <= now {
            return arrived;
        }
        let known = match kind {
            Some(EventKind::Started) => self.started_ms,
            Some(EventKind::Ringing) => self.ringing_ms,
            Some(EventKind::Answered) => self.answered_ms,
            Some(EventKind::Ended(_) | EventKind::CallerLegEnded(_)) => self.ended_ms,
            Some(EventKind::LegEnded(_)) | None => None,
        };
        arrived.max(began).max(Millis(known.unwrap_or_default()))
    }

    /// Whether a report contains the time at which the call began.
    pub(crate) const fn is_start_reported(&self) -> bool {
        self.started_ms.is_some()
    }

    /// Sets the beginning of a call that an earlier build stored to the time at which the log lists
    /// the call. Some builds stored the reported beginning, even if another event was earlier.
    pub(crate) fn keep_beginning(&mut self, listed: Millis) {
        if self.first_ms.take().is_some() {
            self.ours_ms = Some(listed.0);
            self.is_start_ours = self.started_ms.is_some();
        }
    }

    /// The time at which the call began: the earliest time of any report. If the server's clock
    /// dates the beginning, the provider's times count only if they show that the beginning was
    /// reported late, as by a server that hung. Durations count only if no beginning was reported.
    #[must_use]
    pub fn started_at(&self) -> Millis {
        let (ours, theirs) = (self.ours_ms, self.theirs_ms);
        let earliest = |all: &[Option<u64>]| all.iter().flatten().min().copied();
        let began = if self.is_start_ours {
            let shown = theirs.map(|at| at.saturating_add(self.delay_ms.unwrap_or_default()));
            let is_before =
                |at: &u64| ours.is_some_and(|ours| at.saturating_add(ROUNDED_MAX) < ours);
            shown.filter(is_before).or(ours)
        } else if self.started_ms.is_some() {
            earliest(&[ours, theirs])
        } else {
            earliest(&[ours, theirs, self.begun_by_ms])
        };
        Millis(began.unwrap_or_default())
    }

    /// The time at which a destination answered. If no report contains this time, but the reported
    /// outcome is `Answered`, the time is computed from the end of the call and the talk time.
    #[must_use]
    pub fn answered_at(&self) -> Option<Millis> {
        let from_end = || {
            let (ended, talk) = (self.ended_ms?, self.talk_seconds.or(self.caller_leg_seconds)?);
            let talk = u64::from(talk) * 1000;
            (self.outcome() == Some(Outcome::Answered)).then(|| ended.saturating_sub(talk))
        };
        self.answered_ms.or_else(from_end).map(|at| Millis(at).max(self.started_at()))
    }

    /// The time at which the call ended. It is never earlier than the beginning.
    #[must_use]
    pub fn ended_at(&self) -> Option<Millis> {
        let ended = self.ended_ms.map(Millis);
        ended.map(|at| at.max(self.answered_at().unwrap_or_default()).max(self.started_at()))
    }

    /// The call's state.
    #[must_use]
    pub fn state(&self) -> CallState {
        match (self.ended_ms, self.answered_ms) {
            (Some(_), _) => CallState::Ended,
            (None, Some(_)) => CallState::Answered,
            (None, None) => CallState::Ringing,
        }
    }

    /// The call's outcome, if the call has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.ended_ms?;
        let is_answered = self.answered_ms.is_some() || self.talk_seconds.is_some_and(|s| s > 0);
        if is_answered {
            return Some(Outcome::Answered);
        }
        // The caller hung up if the provider reports only the end of the call, no destination's leg
        // ended before that, and the caller's leg was not answered.
        let is_leg_answered = self.caller_leg_seconds.is_some_and(|seconds| seconds > 0);
        let alone = if is_leg_answered { Outcome::Answered } else { Outcome::CallerGaveUp };
        self.end.or(self.leg).or(Some(alone))
    }

    /// The time from the beginning of the call until it was answered, or until it ended if it was
    /// not answered.
    #[must_use]
    pub fn ring(&self) -> Option<Millis> {
        let until = match self.outcome() {
            Some(Outcome::Answered) | None => self.answered_at(),
            Some(_) => self.ended_at(),
        };
        until.map(|until| Millis(until.0.saturating_sub(self.started_at().0)))
    }

    /// The talk time of a finished call, in seconds. It is the duration that the provider reports
    /// or, if it reports none, the time from the answer to the end of the call.
    #[must_use]
    pub fn talk_seconds(&self) -> Option<u32> {
        let ended = self.ended_at()?;
        if self.outcome() != Some(Outcome::Answered) {
            return Some(0);
        }
        let between = || {
            let ms = ended.0.saturating_sub(self.answered_at()?.0);
            u32::try_from(ms / 1000).ok()
        };
        let of_leg = self.caller_leg_seconds.filter(|_| self.answered_ms.is_none());
        self.talk_seconds.or(of_leg).or_else(between)
    }
}

fn earliest(place: &mut Option<u64>, at: Millis) {
    *place = Some(place.map_or(at.0, |before| before.min(at.0)));
}

#[cfg(test)]
mod tests;
