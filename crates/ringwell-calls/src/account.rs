//! A provider account, with the secrets for verifying the provider's requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringwell_config::{CallAccount, CallProvider, Secret, UnknownNumber};
use ringwell_core::Throttle;
use ringwell_store::Repeated;

/// A provider account.
#[derive(Clone)]
pub struct Account {
    /// The account's name, which is part of the URLs of its hooks.
    pub name: String,
    /// The provider.
    pub provider: CallProvider,
    /// The URL through which the provider reaches this server, without a trailing slash.
    pub public_url: String,
    /// The provider's signing secrets: one, or two during a rotation.
    pub secrets: Vec<Vec<u8>>,
    /// Twilio's shared keys.
    pub shared_keys: Vec<Vec<u8>>,
    /// The answer to a call whose number has no destination.
    pub unknown_number: UnknownNumber,
    /// Limits the number of log lines about this account's refused requests.
    pub warnings: Warnings,
}

/// Limits log lines, so that an unauthenticated client with an account's URL cannot fill the log.
#[derive(Clone)]
pub struct Warnings {
    since: Instant,
    throttle: Arc<Mutex<Throttle>>,
    /// Limits the log lines about signed reports, separately from the lines that anyone can cause.
    unread: Arc<Repeated>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { since: Instant::now(), throttle: Arc::default(), unread: Arc::default() }
    }
}

impl Warnings {
    /// Returns the count of warnings suppressed since the last logged warning. Returns `None` if
    /// the present warning must be suppressed as well.
    pub(crate) fn pass(&self) -> Option<u64> {
        let throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.pass(self.since.elapsed())
    }

    /// Like [`Self::pass`], for warnings about reports that were signed, but not read completely.
    pub(crate) fn pass_unread(&self) -> Option<u64> {
        self.unread.pass()
    }
}

impl Account {
    /// Creates the account from its configuration.
    #[must_use]
    pub fn new(configured: &CallAccount) -> Self {
        let bytes = |secrets: &[Secret]| secrets.iter().map(|it| it.reveal().to_vec()).collect();
        Self {
            name: configured.name.clone(),
            provider: configured.provider,
            public_url: configured.public_url.clone(),
            secrets: bytes(&configured.secrets),
            shared_keys: bytes(&configured.shared_keys),
            unknown_number: configured.unknown_number.clone(),
            warnings: Warnings::default(),
        }
    }

    /// The URL of `hook` for the provider.
    #[must_use]
    pub fn hook(&self, hook: &str) -> String {
        format!("{}/t/{}/{hook}", self.public_url, self.name)
    }
}

/// Leaves out the secrets.
impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}
