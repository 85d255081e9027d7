//! Records in a change that its call is not connected: calls by blocked callers, and calls to
//! numbers without a destination.

use ringwell_config::UnknownNumber;
use ringwell_core::Millis;
use ringwell_store::Repeated;

use super::Service;
use super::decision::{Destination, NoPlan};
use crate::attribution::Serving;
use crate::block::BlockRow;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::log::{CallChange, NO_DESTINATION, ReportedEvent};
use crate::provider::Refusal;
use crate::route::RoutePlan;

/// The ringing time of the destination that `unknown_number` sets, in seconds.
const TIMEOUT_S: u64 = 30;

static NO_DESTINATION_WARNING: Repeated = Repeated::new();

impl Service {
    /// Records that a blocked caller's call has ended, without waiting for the provider's report.
    pub(super) fn refuse(change: &mut CallChange, entry: &BlockRow, at: Millis) -> Destination {
        let refusal = entry.block.answer;
        add(change, "blocked", EventKind::Ended(Some(outcome(refusal))), at);
        change.blocked = Some(entry.id.clone());
        Destination::Refused(refusal)
    }

    /// Applies the account's `unknown_number` setting to a call without a destination. `Connect`
    /// sets a destination, and `Reject` and `Busy` record the end of the call. With `Unavailable`,
    /// or if the destination would cause a loop, a failed attempt to connect is recorded, and the
    /// provider's fallback handles the call. Later reports about the call take precedence over this
    /// record.
    pub(super) fn not_connected(
        &self,
        change: &mut CallChange,
        lack: &NoPlan,
        serving: &[Serving],
        at: Millis,
    ) -> Destination {
        let mut reason = lack.to_string();
        let account = self.account(&change.account);
        let unknown = account.as_ref().map(|account| &account.unknown_number);
        let refusal = match unknown {
            Some(UnknownNumber::Connect(to)) => {
                let number = change.number.as_deref();
                let (usable, _) = self.cut_loops(vec![to.clone()], &change.account, number, at);
                if !usable.is_empty() {
                    change.destination = Some(to.clone());
                    let (whisper, caller_id) = (None, None);
                    let plan = RoutePlan { to: usable, timeout_s: TIMEOUT_S, whisper, caller_id };
                    return Destination::To(plan);
                }
                reason = format!(
                    "{reason}. The account's unknown_number, {to}, is not called, because the call would \
                     return to this server in an endless loop: set it to a number outside this \
                     server"
                );
                None
            }
            Some(UnknownNumber::Reject) => Some(Refusal::Rejected),
            Some(UnknownNumber::Busy) => Some(Refusal::Busy),
            Some(UnknownNumber::Unavailable) | None => None,
        };
        let failed = EventKind::LegEnded(Outcome::Failed);
        let kind = refusal.map_or(failed, |refusal| EventKind::Ended(Some(outcome(refusal))));
        add(change, NO_DESTINATION, kind, at);
        if let Some(left_out) = NO_DESTINATION_WARNING.pass() {
            let pools: Vec<u64> = serving.iter().map(|serving| serving.pool.0).collect();
            tracing::warn!(
                call = change.id(),
                number = change.number,
                ?pools,
                left_out,
                "a call has no destination: {reason}"
            );
        }
        refusal.map_or(Destination::None(reason), Destination::Refused)
    }
}

const fn outcome(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Rejected => Outcome::Rejected,
        Refusal::Busy => Outcome::Busy,
    }
}

pub(super) fn add(change: &mut CallChange, key: &str, kind: EventKind, at: Millis) {
    let event = CallEvent { key: key.to_owned(), kind, at, talk_seconds: None };
    change.events.push(ReportedEvent { event, received: at });
}
