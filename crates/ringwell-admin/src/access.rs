//! Who asks, and whether they may.
//!
//! Owns reading tokens from requests and comparing roles. Tokens themselves are the store's; those
//! of the configuration file are administrators of everything.

use std::sync::Arc;

use ringwell_directory::TokenHash;
use ringwell_store::{Grant, Role, Store, StoreError};

/// Who has been let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// For the audit log.
    pub(crate) who: String,
    role: Role,
    network: Option<String>,
}

/// Why somebody is not let in.
#[derive(Debug)]
pub(crate) enum Denied {
    /// No token, or none that is known.
    Unknown,
    /// Known, but may not do this.
    NotAllowed,
    /// Nobody can tell.
    Store(StoreError),
}

/// The door: tokens of the configuration file, then those of the store.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    store: Store,
    hashes: Arc<[TokenHash]>,
}

impl Door {
    pub(crate) fn new(store: Store, hashes: Vec<TokenHash>) -> Self {
        Self { store, hashes: hashes.into() }
    }

    /// Lets in who presents a token that may do what `role` may, in `network` if that is given.
    pub(crate) async fn enter(
        &self,
        token: Option<&str>,
        role: Role,
        network: Option<&str>,
    ) -> Result<Visitor, Denied> {
        let token = token.ok_or(Denied::Unknown)?;
        let visitor = if TokenHash::any_matches(&self.hashes, token.as_bytes()) {
            Visitor { who: "configured token".to_owned(), role: Role::Admin, network: None }
        } else {
            let grant = self.store.verify_token(token).await.map_err(Denied::Store)?;
            Visitor::from(grant.ok_or(Denied::Unknown)?)
        };
        let is_allowed = visitor.role >= role && network.is_none_or(|it| visitor.may_in(it));
        if is_allowed { Ok(visitor) } else { Err(Denied::NotAllowed) }
    }
}

impl Visitor {
    /// Whether they may do anything in `network`.
    pub(crate) fn may_in(&self, network: &str) -> bool {
        self.network.as_deref().is_none_or(|own| own == network)
    }

    /// The only network they may see.
    pub(crate) fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }
}

impl From<Grant> for Visitor {
    fn from(grant: Grant) -> Self {
        let who = format!("{} (token {})", grant.name, grant.id);
        Self { who, role: grant.role, network: grant.network }
    }
}
