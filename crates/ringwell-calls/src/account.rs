//! An account with a provider, as requests are checked against it.

use ringwell_directory::{CallAccount, CallProvider, Secret, UnknownNumber};

/// An account with a provider.
#[derive(Clone)]
pub struct Account {
    /// Its name, part of its path.
    pub name: String,
    /// Which provider.
    pub provider: CallProvider,
    /// How the provider reaches this server: no slash at the end.
    pub public_url: String,
    /// What requests are signed with: one, or two while they are rotated.
    pub secrets: Vec<Vec<u8>>,
    /// Twilio's shared keys.
    pub shared_keys: Vec<Vec<u8>>,
    /// What a caller of a number without destination gets.
    pub unknown_number: UnknownNumber,
}

impl Account {
    /// The account that the configuration describes.
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
        }
    }

    /// The URL of one of its hooks, as the provider calls it.
    #[must_use]
    pub fn hook(&self, hook: &str) -> String {
        format!("{}/t/{}/{hook}", self.public_url, self.name)
    }
}

/// Without its secrets.
impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}
