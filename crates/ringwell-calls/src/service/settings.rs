//! The part of the configuration that the call service uses.

use std::sync::Arc;
use std::time::Duration;

use ringwell_config::{CallerIds, Calls, RoutingSettings};

use crate::account::Account;
use crate::route::{NoTimeZone, Routes};

/// The current configuration.
pub(super) struct Settings {
    pub(super) accounts: Vec<Arc<Account>>,
    pub(super) routes: Routes,
    pub(super) routing: Option<RoutingSettings>,
    pub(super) deadline: Duration,
    pub(super) caller_ids: CallerIds,
    /// The ages at which a call is redacted, a call is removed, and an event is removed.
    pub(super) ages: [Duration; 3],
}

impl Settings {
    pub(super) fn new(calls: &Calls) -> Result<Self, NoTimeZone> {
        Ok(Self {
            accounts: calls.accounts.iter().map(|it| Arc::new(Account::new(it))).collect(),
            routes: Routes::new(&calls.destinations)?,
            routing: calls.routing.clone(),
            deadline: calls.deadline,
            caller_ids: calls.caller_ids,
            ages: [calls.redact_after, calls.retention, calls.webhooks.retention],
        })
    }
}
