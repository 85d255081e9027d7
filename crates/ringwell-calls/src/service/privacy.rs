//! Converts callers to the form that the call log stores, and redacts and removes old calls.

use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use ringwell_config::CallerIds;
use ringwell_core::Millis;

use super::{IncomingCall, Service, Unhashed};
use crate::caller::Caller;
use crate::clock::now;
use crate::log::{CallChange, LogError};

/// The interval between two searches for calls to remove.
const EVERY: Duration = Duration::from_mins(10);
/// The time limit for reading the key that hashes a month's callers. Without the key, a caller is
/// stored as withheld at first.
const KEY_MAX: Duration = Duration::from_millis(100);
/// The interval between two attempts to hash the callers that wait for the key.
const HASH_AGAIN: Duration = Duration::from_secs(1);
/// The maximum number of callers that wait for the key.
const UNHASHED_MAX: usize = 10_000;

impl Service {
    /// Converts the caller of `call` to the form that the log stores. If the caller cannot be
    /// hashed yet, it counts as withheld until [`Self::hash_waiting`] completes the call.
    pub(super) async fn stored_caller(&self, caller: Caller, call: &IncomingCall) -> Caller {
        if let Some(stored) = self.stored_form(&caller, call.received).await {
            return stored;
        }
        let IncomingCall { account, provider, provider_call, received: at, .. } = call.clone();
        let call = CallChange::about(account, provider, provider_call);
        let mut unhashed = self.unhashed();
        if unhashed.len() < UNHASHED_MAX {
            unhashed.push_back(Unhashed { call, caller, at });
        }
        Caller::Withheld
    }

    /// The stored form of the caller of a call at `at`. `None` if the key is missing.
    async fn stored_form(&self, caller: &Caller, at: Millis) -> Option<Caller> {
        match self.settings().caller_ids {
            _ if caller.to_column().is_none() => Some(caller.clone()),
            CallerIds::Store => Some(caller.clone()),
            CallerIds::Drop => Some(Caller::Withheld),
            CallerIds::Hash => self.key_of(at).await.map(|key| caller.hashed(&key)),
        }
    }

    pub(super) fn unhashed(&self) -> MutexGuard<'_, VecDeque<Unhashed>> {
        self.inner.unhashed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hashes the callers that wait for the key, and adds them to their calls, until the process
    /// ends.
    pub(super) async fn hash_waiting(self) {
        loop {
            tokio::time::sleep(HASH_AGAIN).await;
            loop {
                let Some(Unhashed { call, caller, at }) = self.unhashed().front().cloned() else {
                    break;
                };
                let Some(stored) = self.stored_form(&caller, at).await else { break };
                // The writer applies changes in order, so the call is stored before its caller.
                let change = CallChange { caller: Some(stored), ..call };
                let Ok(applied) = self.inner.writer.submit(change) else { break };
                // If the writer ends, the process is shutting down.
                let _ = applied.await;
                self.unhashed().pop_front();
            }
        }
    }

    /// The key for hashing callers in the month of `at`.
    async fn key_of(&self, at: Millis) -> Option<Vec<u8>> {
        let month = month(at);
        let known = {
            let key = self.inner.caller_key.lock().unwrap_or_else(PoisonError::into_inner);
            key.clone().filter(|(of, _)| *of == month)
        };
        if let Some((_, key)) = known {
            return Some(key);
        }
        let key = tokio::time::timeout(KEY_MAX, self.inner.log.caller_key(&month)).await;
        let key = key.ok()?.ok()?;
        let mut place = self.inner.caller_key.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some((month, key.clone()));
        Some(key)
    }

    /// Periodically ends calls without a destination, and redacts and removes old calls, until the
    /// process ends.
    pub(super) async fn forget(self) {
        loop {
            if let Err(error) = self.end_unreported(now()).await
                && !self.inner.log.reports(&error)
            {
                tracing::error!(%error, "calls without a destination cannot be recorded as ended \
                    yet");
            }
            if let Err(error) = self.forget_old(now()).await
                && !self.inner.log.reports(&error)
            {
                tracing::error!(%error, "old calls cannot be redacted or removed yet: they are \
                    kept longer than configured");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Redacts and removes old calls, unless the wall clock, which shows `wall`, has leapt.
    pub(super) async fn forget_old(&self, wall: Millis) -> Result<(), LogError> {
        let now = self.inner.log.note_age_time(wall).await?;
        self.forget_due(now).await
    }

    pub(super) async fn forget_due(&self, now: Millis) -> Result<(), LogError> {
        let [redact, remove, events] = self.settings().ages.map(|age| {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            Millis(now.0.saturating_sub(age))
        });
        let log = &self.inner.log;
        log.replace_derived_ids().await?;
        let mut is_forgotten = false;
        while log.remove_before(remove, events).await? > 0 {
            is_forgotten = true;
            tokio::task::yield_now().await;
        }
        while log.redact_before(redact, now).await? > 0 {
            is_forgotten = true;
            tokio::task::yield_now().await;
        }
        if is_forgotten { log.overwrite_removed().await } else { Ok(()) }
    }
}

/// The year and month of `at`, in UTC.
fn month(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    time.to_string().chars().take(7).collect()
}
