//! A change to one call: a provider's report, or the result of the attribution.

use ringwell_core::Millis;

use super::row::CallRow;
use crate::attribution::{Attributed, Attribution};
use crate::call::{CallEvent, Facts};
use crate::caller::Caller;
use crate::digest;
use crate::provider::Stir;

/// A provider's report, and the time at which it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedEvent {
    /// The report.
    pub event: CallEvent,
    /// The time at which the report arrived.
    pub received: Millis,
}

/// New facts about one call. If several changes contain a value for the same field, the first value
/// is kept, because these facts do not change. Events are combined by [`crate::call::Facts::join`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallChange {
    /// The account that reported the call.
    pub account: String,
    /// The account's provider.
    pub provider: String,
    /// The provider's id for the call.
    pub provider_call: String,
    /// The events that the report contains.
    pub events: Vec<ReportedEvent>,
    /// The arrival time of a report without an event. Such a report shows that the call existed at
    /// that time.
    pub seen: Option<Millis>,
    /// The called number in E.164 format, with `+`.
    pub number: Option<String>,
    /// The caller. `None` if this change does not contain the caller.
    pub caller: Option<Caller>,
    /// The destination that answered.
    pub destination: Option<String>,
    /// The telephone network's verdict on whether the caller's number is genuine.
    pub stir: Option<Stir>,
    /// The result of the attribution, if the look-up has been completed.
    pub attribution: Option<Attribution>,
    /// The number and the time that `attribution` was looked up for. If the call's number or time
    /// has changed since the look-up, the attribution is ignored.
    pub looked_up: Option<(Option<String>, Millis)>,
    /// If the call was refused, the id of the matching entry in the list of blocked callers.
    pub blocked: Option<String>,
}

/// The result of applying a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Ringwell's id for the call.
    pub call: String,
    /// The called number and the time of the call, if the call must still be attributed.
    pub unattributed: Option<(Option<String>, Millis)>,
    /// Whether the change contained anything new.
    pub is_new: bool,
    /// The result of the attribution, if the change completed it and a pool serves the number.
    pub attributed: Option<Attributed>,
}

impl ReportedEvent {
    /// The time between the event and the arrival of its report. `None` if the report contains no
    /// time, so that its time of arrival is used.
    pub(super) fn delay(&self) -> Option<Millis> {
        let (at, received) = (self.event.at, self.received);
        (at != received).then(|| Millis(received.0.saturating_sub(at.0)))
    }
}

impl CallChange {
    /// Creates a change that contains nothing new about the call yet.
    #[must_use]
    pub fn about(account: String, provider: String, provider_call: String) -> Self {
        Self { account, provider, provider_call, ..Self::default() }
    }

    /// Ringwell's id for the call. It is the same for all reports about the call.
    #[must_use]
    pub fn id(&self) -> String {
        call_id(&self.account, &self.provider_call)
    }
}

/// Derives Ringwell's id for a call from the account and the provider's id.
#[must_use]
pub(crate) fn call_id(account: &str, provider_call: &str) -> String {
    let hash = digest::sha256_hex(format!("{account}\n{provider_call}").as_bytes());
    format!("c_{}", &hash[..26])
}

impl CallRow {
    pub(super) fn new(id: &str, change: &CallChange) -> Self {
        Self {
            id: id.to_owned(),
            account: change.account.clone(),
            provider: change.provider.clone(),
            provider_call: change.provider_call.clone(),
            sequence: 0,
            facts: Facts::default(),
            number: None,
            caller: Caller::Withheld,
            first_time: None,
            destination: None,
            attribution: Attribution::default(),
            stir: None,
            redacted_at: None,
            blocked: None,
            robocall: None,
            published: String::new(),
        }
    }

    /// Creates a call from the contents of `change` alone.
    pub(crate) fn of(change: &CallChange) -> Self {
        let mut row = Self::new(&change.id(), change);
        for reported in &change.events {
            row.facts.join(&reported.event, reported.delay());
        }
        row.number.clone_from(&change.number);
        row.caller = change.caller.clone().unwrap_or_default();
        row.destination.clone_from(&change.destination);
        row.stir.clone_from(&change.stir);
        row.blocked.clone_from(&change.blocked);
        row.attribution = change.attribution.clone().unwrap_or_default();
        row
    }
}
