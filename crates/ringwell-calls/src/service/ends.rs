//! Records the end of calls whose end might never be reported: calls to numbers without a
//! destination, and calls about which no more reports arrive.
//!
//! Source: docs/spec/calls.md, "One call".

use std::time::Duration;

use ringwell_config::UnknownNumber;
use ringwell_core::Millis;
use ringwell_store::Repeated;

use super::Service;
use super::refusal::{NO_RULE, add, not_connected};
use crate::attribution::Serving;
use crate::call::EventKind;
use crate::log::{CallChange, LogError};

/// The time after which an unconnected call without a reported end counts as ended. The provider's
/// fallback may have connected the call, and Twilio limits calls to four hours.
const UNREPORTED_MAX: Duration = Duration::from_hours(4);
/// The maximum number of calls to end in one pass.
const CALLS_MAX: u32 = 1_000;

static NO_DESTINATION_WARNING: Repeated = Repeated::new();

impl Service {
    /// Records and logs that no rule in the configuration connects the call.
    pub(super) fn not_connected(&self, change: &mut CallChange, serving: &[Serving], at: Millis) {
        let account = self.account(&change.account);
        let unknown = account.as_ref().map(|account| &account.unknown_number);
        not_connected(change, unknown.unwrap_or(&UnknownNumber::Unavailable), at);
        if change.destination.is_some() {
            return;
        }
        let Some(left_out) = NO_DESTINATION_WARNING.pass() else { return };
        let pools: Vec<u64> = serving.iter().map(|serving| serving.pool.0).collect();
        tracing::warn!(
            call = change.id(),
            number = change.number,
            ?pools,
            left_out,
            "a call has no destination: {NO_RULE}"
        );
    }

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
