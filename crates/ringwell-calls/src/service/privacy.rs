//! Converts callers to the form in which the call log stores them, and redacts and removes old
//! calls.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use ringwell_config::CallerIds;
use ringwell_core::Millis;

use super::Service;
use crate::caller::Caller;
use crate::clock::now;
use crate::log::LogError;

/// The interval between two searches for calls to remove.
const EVERY: Duration = Duration::from_mins(10);
/// The time limit for reading the key with which a month's callers are hashed. Without the key, a
/// caller is stored as withheld.
const KEY_MAX: Duration = Duration::from_millis(100);

impl Service {
    /// Converts the caller of a call at `at` to the form in which the log stores callers.
    pub(super) async fn stored_caller(&self, caller: Caller, at: Millis) -> Caller {
        if caller.to_column().is_none() {
            return caller;
        }
        match self.settings().caller_ids {
            CallerIds::Store => caller,
            CallerIds::Drop => Caller::Withheld,
            CallerIds::Hash => {
                let key = self.key_of(at).await;
                key.map_or(Caller::Withheld, |key| caller.hashed(&key))
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
            if let Err(error) = self.forget_due(now()).await
                && !self.inner.log.reports(&error)
            {
                tracing::error!(%error, "old calls cannot be redacted or removed yet: they are \
                    kept longer than configured");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn forget_due(&self, now: Millis) -> Result<(), LogError> {
        let [redact, remove, events] = self.settings().ages.map(|age| {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            Millis(now.0.saturating_sub(age))
        });
        let log = &self.inner.log;
        log.replace_derived_ids().await?;
        while log.remove_before(remove, events).await? > 0 {
            tokio::task::yield_now().await;
        }
        while log.redact_before(redact, now).await? > 0 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// The year and month of `at`, in UTC.
fn month(at: Millis) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    time.to_string().chars().take(7).collect()
}
