//! Looks up a call's visitor, and tries again later if that fails.

use std::iter::repeat_n;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringwell_core::Millis;

use super::Service;
use crate::attribution::{Attribution, History, HolderError, KeepAlives, LOOKED_UP_MAX};
use crate::log::{CallChange, CallRow};
use crate::number::promo_number;

/// The time limit for one look-up.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// The time limit for looking up keep-alives. After that, a call is shown without them.
const KEEP_ALIVES_MAX: Duration = Duration::from_secs(1);
/// The pauses between repeated look-ups.
const LOOK_AGAIN: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
];
/// The number of look-ups, one a minute, after the pauses in [`LOOK_AGAIN`].
const LOOK_EACH_MINUTE: usize = 65;
/// The minimum pause between two searches of the log for calls to attribute, shorter in tests.
const LOG_AGAIN: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_mins(1) };
/// The maximum number of calls that are being attributed at the same time, lower in tests.
const LOOKING_MAX: usize = if cfg!(test) { 4 } else { 10_000 };

impl Service {
    /// Determines which visitor called `number` at `at`.
    ///
    /// # Errors
    /// [`HolderError::Unavailable`]. A later attempt may succeed.
    pub(super) async fn attribute(
        &self,
        number: Option<&str>,
        at: Millis,
    ) -> Result<Attribution, HolderError> {
        let serving = self.serving(number);
        let at = latest_within(at);
        let Some((text, number)) = number.and_then(|text| Some((text, promo_number(text)?))) else {
            return Ok(Attribution::of(at, &serving, &History::default()));
        };
        match self.inner.numbers.holders(number, at, LOOKED_UP_MAX).await {
            Ok(mut history) => {
                self.add_taps(text, at, &mut history.allocations).await;
                Ok(Attribution::of(at, &serving, &history))
            }
            Err(HolderError::Gone(problem)) => Ok(Attribution::without_history(&serving, problem)),
            Err(error) => Err(error),
        }
    }

    /// The keep-alives of the allocation that `call` is attributed to, up to the beginning of the
    /// call. `None` if there is no such allocation, or if the keep-alives are unavailable.
    pub async fn keep_alives(&self, call: &CallRow) -> Option<KeepAlives> {
        let number = promo_number(call.number.as_deref()?)?;
        let allocated_at = Millis(call.attribution.allocation.as_ref()?.allocated_ms);
        let at = call.facts.started_at();
        let service = self.clone();
        let found = self.run(async move {
            let found = service.inner.numbers.keep_alives(number, allocated_at, at);
            tokio::time::timeout(KEEP_ALIVES_MAX, found).await.ok().flatten()
        });
        found.await.ok().flatten()
    }

    /// Looks up the visitor of the call in `change` and stores the result, unless a look-up for
    /// this call is in progress. If too many look-ups are in progress, [`Self::resume`] looks the
    /// visitor up later.
    pub(super) fn look_for(&self, change: &CallChange, number: Option<String>, at: Millis) {
        let id = change.id();
        {
            let looking = &self.inner.looking;
            let mut looking = looking.lock().unwrap_or_else(PoisonError::into_inner);
            if looking.len() >= LOOKING_MAX {
                self.inner.left_out.store(true, Ordering::Relaxed);
                return;
            }
            if !looking.insert(id.clone()) {
                return;
            }
        }
        let service = self.clone();
        let CallChange { account, provider, provider_call, .. } = change.clone();
        let found = CallChange::about(account, provider, provider_call);
        tokio::spawn(async move {
            let mut next = Some((number, at));
            while let Some(of) = next.take() {
                let attribution = Some(service.look(of.0.as_deref(), of.1).await);
                let looked_up = Some(of.clone());
                let change = CallChange { attribution, looked_up, ..found.clone() };
                let stored = match service.inner.writer.submit(change) {
                    Ok(stored) => stored.await.ok(),
                    Err(_) => None,
                };
                match stored {
                    // A report that arrived during the look-up may have changed the call's number
                    // or start time.
                    Some(applied) => next = applied.unattributed.filter(|it| *it != of),
                    // The writer's queue is full, or the process is shutting down.
                    None => service.inner.left_out.store(true, Ordering::Relaxed),
                }
            }
            let looking = &service.inner.looking;
            looking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    async fn look(&self, number: Option<&str>, at: Millis) -> Attribution {
        let mut problem = "the look-up took too long".to_owned();
        let each_minute = repeat_n(Duration::from_mins(1), LOOK_EACH_MINUTE);
        for pause in [Duration::ZERO].into_iter().chain(LOOK_AGAIN).chain(each_minute) {
            tokio::time::sleep(pause).await;
            match tokio::time::timeout(LOOK_MAX, self.attribute(number, at)).await {
                Ok(Ok(attribution)) => return attribution,
                Ok(Err(error)) => problem = error.to_string(),
                Err(_) => {}
            }
        }
        Attribution::without_history(&self.serving(number), problem)
    }

    /// Looks up the visitors of unattributed calls in the log. At startup, these are calls that an
    /// earlier process logged; later, calls whose look-up was skipped or whose result was not
    /// stored.
    pub(super) async fn resume(self) {
        let has_room = || {
            let looking = self.inner.looking.lock().unwrap_or_else(PoisonError::into_inner);
            looking.len() <= LOOKING_MAX / 2
        };
        loop {
            self.look_for_logged().await;
            loop {
                tokio::time::sleep(LOG_AGAIN).await;
                if has_room() && self.inner.left_out.swap(false, Ordering::Relaxed) {
                    break;
                }
            }
        }
    }

    async fn look_for_logged(&self) {
        let most = u32::try_from(LOOKING_MAX).unwrap_or(u32::MAX);
        let calls = loop {
            match self.inner.log.unattributed(most).await {
                Ok(calls) => break calls,
                Err(error) if self.inner.log.reports(&error) => {}
                Err(error) => {
                    tracing::error!(
                        %error,
                        "calls that were logged earlier are not attributed yet"
                    );
                }
            }
            tokio::time::sleep(LOG_AGAIN).await;
        };
        if calls.len() >= LOOKING_MAX {
            self.inner.left_out.store(true, Ordering::Relaxed);
        }
        for call in calls {
            let change = CallChange::about(call.account, call.provider, call.provider_call);
            self.look_for(&change, call.number, call.facts.started_at());
        }
    }
}

/// The latest time at which a call with the reported time `at` may have begun. Most providers
/// truncate times to whole seconds, and a visitor may see a number and call it within the same
/// second.
fn latest_within(at: Millis) -> Millis {
    if at.0.is_multiple_of(1000) { Millis(at.0.saturating_add(999)) } else { at }
}
