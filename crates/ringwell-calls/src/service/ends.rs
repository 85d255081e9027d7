//! Records the end of calls whose end might never be reported: calls to numbers without a
//! destination, and calls about which no more reports arrive.
//!
//! Source: docs/spec/calls.md, "One call".

use std::time::Duration;

use ringwell_core::Millis;

use super::Service;
use super::refusal::add;
use crate::call::EventKind;
use crate::log::{CallChange, LogError};

/// The time after which an unconnected call without a reported end counts as ended. The provider's
/// fallback may have connected the call, and Twilio limits calls to four hours.
const UNREPORTED_MAX: Duration = Duration::from_hours(4);
/// The maximum number of calls to end in one pass.
const CALLS_MAX: u32 = 1_000;

impl Service {
    /// Ends calls without a destination if no end was reported within [`UNREPORTED_MAX`].
    pub(super) async fn end_unreported(&self, now: Millis) -> Result<(), LogError> {
        let age = u64::try_from(UNREPORTED_MAX.as_millis()).unwrap_or(u64::MAX);
        let before = Millis(now.0.saturating_sub(age));
        for call in self.inner.log.ringing_without_destination(before, CALLS_MAX).await? {
            let mut change = CallChange::about(call.account, call.provider, call.provider_call);
            add(&mut change, "unreported", EventKind::Ended(None), call.last);
            // If the writer's queue is full or the writer has ended, a later pass handles the call.
            if let Ok(stored) = self.inner.writer.submit(change) {
                let _ = stored.await;
            }
        }
        Ok(())
    }
}
