//! Records in a change that its call is not connected: calls by blocked callers, and calls to
//! numbers without a destination.

use ringwell_config::UnknownNumber;
use ringwell_core::Millis;

use crate::block::BlockRow;
use crate::call::{CallEvent, EventKind, Outcome};
use crate::log::{CallChange, NO_DESTINATION, ReportedEvent};
use crate::provider::Refusal;

/// The advice to the operator if a call has no destination.
pub(crate) const NO_RULE: &str = "no [[calls.destination]] in the configuration applies to the \
    number now; add one for the number or for its ring pool, or a default one, which sets neither \
    numbers nor ring_pools";

/// Records that a blocked caller's call has ended, without waiting for the provider's report.
pub(super) fn refuse(change: &mut CallChange, entry: &BlockRow, at: Millis) {
    add(change, "blocked", EventKind::Ended(Some(outcome(entry.block.answer))), at);
    change.blocked = Some(entry.id.clone());
}

/// Applies the account's `unknown_number` setting to a call without a destination. `Connect` sets a
/// destination, and `Reject` and `Busy` record the end of the call. With `Unavailable`, a failed
/// attempt to connect is recorded, and the provider's fallback handles the call. Later reports
/// about the call take precedence over this record.
pub(super) fn not_connected(change: &mut CallChange, unknown: &UnknownNumber, at: Millis) {
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

pub(super) fn add(change: &mut CallChange, key: &str, kind: EventKind, at: Millis) {
    let event = CallEvent { key: key.to_owned(), kind, at, talk_seconds: None };
    change.events.push(ReportedEvent { event, received: at });
}
