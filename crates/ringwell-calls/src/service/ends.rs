//! Records the end of calls whose end might never be reported: calls by blocked callers, calls to
//! numbers without a destination, and calls about which no more reports arrive.
//!
//! Source: docs/spec/calls.md, "One call".

use std::time::Duration;

use ringwell_config::UnknownNumber;
use ringwell_core::Millis;
use ringwell_store::Repeated;

use super::Service;
use crate::attribution::Serving;
use crate::block::BlockRow;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::log::{CallChange, LogError, NO_DESTINATION, ReportedEvent};
use crate::provider::Refusal;

/// The time after which an unconnected call without a reported end counts as ended. The provider's
/// fallback may have connected the call, and Twilio limits calls to four hours.
const UNREPORTED_MAX: Duration = Duration::from_hours(4);
/// The maximum number of calls to end in one pass.
const CALLS_MAX: u32 = 1_000;

/// The advice to the operator if a call has no destination.
pub(crate) const NO_RULE: &str = "no [[calls.destination]] in the configuration applies to the \
    number now; add one for the number or for its ring pool, or a default one, which sets neither \
    numbers nor ring_pools";

static NO_DESTINATION_WARNING: Repeated = Repeated::new();

/// Records that a blocked caller's call has ended, without waiting for the provider's report.
pub(super) fn refuse(change: &mut CallChange, entry: &BlockRow, at: Millis) {
    add(change, "blocked", EventKind::Ended(Some(outcome(entry.block.answer))), at);
    change.blocked = Some(entry.id.clone());
}

/// Applies the account's `unknown_number` setting to a call without a destination. `Connect` sets a
/// destination, and `Reject` and `Busy` record the end of the call. With `Unavailable`, a failed
/// attempt to connect is recorded, and the provider's fallback handles the call. Later reports
/// about the call take precedence over this record.
fn not_connected(change: &mut CallChange, unknown: &UnknownNumber, at: Millis) {
    let kind = match unknown {
        UnknownNumber::Unavailable => EventKind::LegEnded(Outcome::Failed),
        UnknownNumber::Reject => EventKind::Ended(Some(outcome(Refusal::Rejected))),
        UnknownNumber::Busy => EventKind::Ended(Some(outcome(Refusal::Busy))),
        UnknownNumber::Connect(to) => {
            change.destination = Some(to.clone());
            return;
        }
    };
    add(change, NO_DESTINATION, kind, at);
}

const fn outcome(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Rejected => Outcome::Rejected,
        Refusal::Busy => Outcome::Busy,
    }
}

fn add(change: &mut CallChange, key: &str, kind: EventKind, at: Millis) {
    let event = CallEvent { key: key.to_owned(), kind, at, talk_seconds: None };
    change.events.push(ReportedEvent { event, received: at });
}

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
            let mut change = CallChange {
                account: call.account,
                provider: call.provider,
                provider_call: call.provider_call,
                ..CallChange::default()
            };
            add(&mut change, "unreported", EventKind::Ended(None), call.last);
            // If the writer's queue is full or the writer has ended, a later pass handles the call.
            if let Ok(stored) = self.inner.writer.submit(change) {
                let _ = stored.await;
            }
        }
        Ok(())
    }
}
