//! Batch rows that are sent to another node's shard, and their answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ringwell_config::DEADLINE_MAX;
use ringwell_core::{Millis, PromoNumber};
use ringwell_engine::{Moment as Asked, Outcome, Past, Refusal};
use ringwell_mesh::frame;
use ringwell_mesh::pacing::{Admission, Ending};

use super::Link;
use super::translate::{self, ReleaseJson};
use crate::canary::{Bug, planted};
use crate::message::{PeerAnswer, PeerRows, Unanswered};
use crate::platform::{CLOCK_DIFFERENCE_MIN_MS, Moment, Net, Path, Platform, Trouble};
use crate::shard::unanswered;
use crate::store::UNDONE_MAX;

/// The time reserved before a batch's deadline. After the answer to the rows has arrived, the
/// batch's answer must still be completed and sent.
const MARGIN: Duration = Duration::from_millis(5);

/// The longest time to wait for a late answer in order to return its numbers. A node that was
/// suspended answers old requests when it resumes, because it cannot determine their age. Each wait
/// occupies a connection, but there is at most one wait for each request that the window allowed.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(30);

/// The time limit for returning numbers.
const RETURN_MAX: Duration = Duration::from_secs(1);

// Look-ups depend on this.
const _: () = {
    let longest = DEADLINE_MAX.as_millis() + LATE_ANSWER_MAX.as_millis() + RETURN_MAX.as_millis();
    assert!(
        longest < UNDONE_MAX.0 as u128,
        "an allocation may be undone later than look-ups assume"
    );
};

/// The time that the management API waits for another node.
const MANAGEMENT_MAX: Duration = Duration::from_secs(5);

type Answered = Result<Bytes, Trouble>;

impl<P: Platform> Link<P> {
    /// Accepts rows. The rows are sent at once, wait until the window admits them, or overflow.
    pub(super) fn take(self: Rc<Self>, rows: PeerRows) {
        let admission = self.window.borrow_mut().ask(self.now());
        match admission {
            Admission::Send => self.platform.clone().spawn(self.ask(rows)),
            Admission::Wait => {
                let number = self.waited.replace(self.waited.get() + 1);
                self.waiting.borrow_mut().push_back((number, rows));
                self.platform.clone().spawn(self.give_up_waiting(number));
            }
            Admission::Overflow(_) => self.overflow(rows),
        }
    }

    async fn give_up_waiting(self: Rc<Self>, number: u64) {
        let until = self.platform.moment() + self.pacing.wait;
        self.platform.sleep_until(until).await;
        let place = self.waiting.borrow().iter().position(|(waiting, _)| *waiting == number);
        let rows = place.and_then(|place| self.waiting.borrow_mut().remove(place));
        if let Some((_, rows)) = rows {
            self.window.borrow_mut().gave_up();
            self.overflow(rows);
        }
    }

    /// Makes rows overflow at once, with the reason `paced`.
    pub(super) fn overflow(&self, rows: PeerRows) {
        self.counts.paced_rows.add(rows.rows.len() as u64);
        refuse(rows, Refusal::Paced);
    }

    /// Sends rows that the window has admitted.
    pub(super) async fn ask(self: Rc<Self>, rows: PeerRows) {
        self.counts.requests.add(1);
        let begun = self.platform.moment();
        let left = rows.deadline.since(begun).saturating_sub(MARGIN);
        let limit = self.pacing.deadline.min(left);
        if limit.is_zero() {
            let (now, took) = (self.now(), Duration::ZERO);
            self.window.borrow_mut().ended(now, took, Ending::Lost, Duration::MAX, false);
            self.settle();
            return refuse(rows, Refusal::Late);
        }
        let body = translate::ask(&self.node, self.neighbour.shard, &rows, limit);
        let link = Rc::clone(&self);
        let mut call: Pin<Box<dyn Future<Output = Answered>>> =
            Box::pin(link.net.call_traced(Path::Rows, body, rows.traced));
        let (answer, was_reported_slow) = self.wait(&mut call, begun, limit).await;
        let took = self.platform.moment().since(begun);
        // A result is void if it shows nothing about the other node's speed. This is the case if a
        // timer woke this thread late, after the answer had arrived. It is also the case if the
        // batch's deadline left less time than the limit for slow answers.
        let is_void = match answer {
            Some(Ok(_)) => !was_reported_slow && took > self.pacing.slow,
            Some(Err(_)) => false,
            None => limit < self.pacing.slow,
        };
        let lag = if is_void { Duration::MAX } else { Duration::ZERO };
        let took = if planted(Bug::NeverShut) { Duration::ZERO } else { took };
        let ending = match &answer {
            _ if planted(Bug::NeverShut) => Ending::Answered,
            Some(Ok(_)) => Ending::Answered,
            Some(Err(Trouble::Refused(..))) => Ending::Refused,
            Some(Err(Trouble::Lost(_))) | None => Ending::Lost,
        };
        if ending != Ending::Answered {
            self.counts.lost.add(1);
        }
        self.window.borrow_mut().ended(self.now(), took, ending, lag, was_reported_slow);
        self.settle();
        match answer {
            Some(Ok(bytes)) => self.deliver(rows, &bytes).await,
            Some(Err(trouble)) => {
                tracing::debug!(shard = self.neighbour.shard, %trouble, "rows got no answer");
                refuse(rows, Refusal::Unreachable);
            }
            None => {
                let wanted = rows.rows.len();
                refuse(rows, Refusal::Late);
                self.give_back_late(call, wanted).await;
            }
        }
    }

    /// Waits for the answer, and reports it to the window if it is slow. Returns `None` if no
    /// answer arrived in time.
    async fn wait(
        self: &Rc<Self>,
        call: &mut Pin<Box<dyn Future<Output = Answered>>>,
        begun: Moment,
        limit: Duration,
    ) -> (Option<Answered>, bool) {
        let slow = self.pacing.slow;
        let first = answer_by(&self.platform, call, begun + slow.min(limit)).await;
        if first.is_some() || limit < slow {
            return (first, false);
        }
        self.counts.slow.add(1);
        if planted(Bug::NeverShut) {
            return (answer_by(&self.platform, call, begun + limit).await, false);
        }
        let lag = self.platform.moment().since(begun).saturating_sub(slow);
        self.window.borrow_mut().slow(self.now(), lag);
        self.settle();
        (answer_by(&self.platform, call, begun + limit).await, true)
    }

    async fn deliver(&self, rows: PeerRows, bytes: &[u8]) {
        match translate::answer(bytes, rows.rows.len()) {
            Ok(answer) => {
                let again = unanswered(&answer);
                if let Err(unseen) = rows.reply.send(answer) {
                    self.give_back(&unanswered(&unseen)).await;
                } else if planted(Bug::LinkAnswerTwice) {
                    self.give_back(&again).await;
                }
            }
            Err(error) => {
                let shard = self.neighbour.shard;
                tracing::warn!(shard, %error, "another node's answer could not be decoded");
                self.net.close();
                refuse(rows, Refusal::Unreachable);
            }
        }
    }

    /// Releases the numbers in an answer that arrives too late. No client sees them.
    async fn give_back_late(&self, call: Pin<Box<dyn Future<Output = Answered>>>, wanted: usize) {
        let Some(Ok(bytes)) = self.platform.within(LATE_ANSWER_MAX, call).await else { return };
        if let Ok(answer) = translate::answer(&bytes, wanted) {
            self.give_back(&unanswered(&answer)).await;
        }
    }

    /// Releases numbers that no client has seen. The numbers of repeatable rows are returned in a
    /// separate request. A node that reads only frames up to version 2 refuses this request, so
    /// these numbers stay locked.
    pub(super) async fn give_back(&self, numbers: &[Unanswered]) {
        let (kept, others): (Vec<_>, Vec<_>) = numbers.iter().partition(|it| it.is_kept);
        self.give_back_some(&others, false).await;
        self.give_back_some(&kept, true).await;
    }

    async fn give_back_some(&self, numbers: &[Unanswered], kept: bool) {
        let Some(first) = numbers.first() else { return };
        self.counts.late_released.add(numbers.len() as u64);
        let mut body = Vec::new();
        let unanswered = frame::Unanswered {
            shard: self.neighbour.shard,
            allocated_at: first.allocated_at,
            kept,
            numbers: numbers.iter().map(|unanswered| unanswered.number).collect(),
        };
        frame::write_unanswered(&mut body, &unanswered);
        let post = self.net.call(Path::Unanswered, body.into());
        if !matches!(self.platform.within(RETURN_MAX, post).await, Some(Ok(_))) {
            let shard = self.neighbour.shard;
            tracing::debug!(
                shard,
                "numbers could not be returned: they become free when their lockouts end"
            );
        }
    }

    /// Asks the shard for a number's holder. The times in the request and in the answer follow this
    /// node's wall clock, even if the other node's clock differs.
    pub(super) async fn attribution(
        &self,
        (number, at): (PromoNumber, Asked),
        keep_alives: bool,
    ) -> Result<Past, String> {
        let ahead_ms = || if planted(Bug::ClocksTrusted) { 0 } else { self.net.clock_ahead_ms() };
        let ask = async |ahead| {
            let of = (number, translate::dated_there(at, ahead));
            let wanted = translate::AttributionJson::new(self.neighbour.shard, of, keep_alives);
            let answer = self.manage(Path::Attribution, &wanted).await?;
            Ok(translate::dated_here(translate::past_from_json(answer), ahead))
        };
        let (before, offset) = (ahead_ms(), self.wall_offset_ms());
        let past = ask(before).await;
        // The answer shows the current difference between the clocks. If the other node's clock has
        // been set since the last answer, the wrong time was requested. Setting this node's clock
        // does not change the meaning of `at`.
        let now = ahead_ms() + (self.wall_offset_ms() - offset);
        if now.abs_diff(before) < CLOCK_DIFFERENCE_MIN_MS { past } else { ask(now).await }
    }

    /// Returns the wall clock minus the monotonic clock. Changes only when the wall clock is set.
    fn wall_offset_ms(&self) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        ms(self.platform.wall()) - ms(self.platform.moment().0)
    }

    /// Ends a lockout.
    pub(super) async fn release(
        &self,
        number: PromoNumber,
        when: (Option<Millis>, Option<Millis>),
    ) -> Result<bool, Refusal> {
        let wanted = ReleaseJson::new(self.neighbour.shard, number, when);
        self.manage(Path::Release, &wanted).await.map_err(|_| Refusal::Unreachable)
    }

    async fn manage<A: serde::de::DeserializeOwned>(
        &self,
        path: Path,
        wanted: &impl serde::Serialize,
    ) -> Result<A, String> {
        let described = |error: &dyn std::fmt::Display| {
            format!("shard {} of node {}: {error}", self.neighbour.shard, self.neighbour.node)
        };
        let body = serde_json::to_vec(wanted).map_err(|error| described(&error))?;
        let answer = self.post(path, body.into()).await?;
        serde_json::from_slice(&answer).map_err(|error| described(&error))
    }

    /// Posts JSON to the node that has the link's shard.
    pub(super) async fn post(&self, path: Path, body: Bytes) -> Result<Bytes, String> {
        let described = |error: &dyn std::fmt::Display| {
            format!("shard {} of node {}: {error}", self.neighbour.shard, self.neighbour.node)
        };
        let post = self.net.call(path, body);
        let answer = self.platform.within(MANAGEMENT_MAX, post).await;
        answer.ok_or_else(|| described(&"no answer in time"))?.map_err(|error| described(&error))
    }
}

/// Returns the answer if it has arrived by `until`. If this thread itself was delayed, the answer
/// may still be unread in the socket. Other tasks therefore get a turn to read it first.
async fn answer_by<P: Platform>(
    platform: &P,
    call: &mut Pin<Box<dyn Future<Output = Answered>>>,
    until: Moment,
) -> Option<Answered> {
    if let Some(answer) = platform.by(until, &mut *call).await {
        return Some(answer);
    }
    for _ in 0..P::TURNS_TO_READ {
        platform.turn().await;
        if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
            return Some(answer);
        }
    }
    None
}

/// Answers all rows with a refusal. If the requester has already gone, the answer is dropped.
fn refuse(rows: PeerRows, why: Refusal) {
    let outcomes = vec![Outcome::Refused(why); rows.rows.len()];
    let _ = rows.reply.send(PeerAnswer { at: Millis::ZERO, outcomes });
}
