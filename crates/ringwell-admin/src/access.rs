//! Authentication and authorization of requests.
//!
//! Reads tokens from requests and compares roles. The store owns the tokens, except those in the
//! configuration file, which have every permission.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use percent_encoding::percent_decode_str;
use ringwell_config::credentials;
use ringwell_directory::{TokenHash, TokenHashes};
use ringwell_store::{Grant, Role, Store, StoreError};

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// The token's owner, for the audit log.
    pub(crate) who: String,
    pub(crate) role: Role,
    network: Option<String>,
}

/// The reason why a client is not admitted.
#[derive(Debug)]
pub(crate) enum Denied {
    /// The request has no token, or an unknown one.
    Unknown,
    /// The token's role is too low.
    Role {
        /// The token's role.
        has: Role,
        /// The lowest role that permits the request.
        needs: Role,
    },
    /// The token is valid in only one network, but the request concerns another network or all
    /// networks.
    Network,
    /// The store could not be read, so the token could not be checked.
    Store(StoreError),
}

/// Checks tokens, first against the configuration file, then against the store.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// `None` if only the configuration contains tokens.
    store: Option<Store>,
    hashes: TokenHashes,
    /// The tokens as last read from the store.
    seen: Arc<Mutex<Seen>>,
}

/// Hashes of the store's tokens, and the time of the last attempt to read them.
#[derive(Debug, Default)]
struct Seen {
    hashes: Arc<[TokenHash]>,
    at: Option<Instant>,
}

/// The minimum interval between two store queries for unknown tokens.
const SEEN_AGE: Duration = Duration::from_secs(1);

impl Door {
    pub(crate) fn new(store: Option<Store>, hashes: TokenHashes) -> Self {
        Self { store, hashes, seen: Arc::default() }
    }

    /// Whether a token is valid. Does not check the role; [`Self::enter`] does. Reads the store at
    /// most once a second.
    pub(crate) async fn recognizes(&self, token: Option<&str>) -> bool {
        let Some(token) = token.map(str::as_bytes) else { return false };
        self.finds(|hashes| TokenHash::any_matches(hashes, token)).await
    }

    /// Whether a previously admitted token is still valid. Reads the store at most once a second.
    pub(crate) async fn still_knows(&self, hash: &TokenHash) -> bool {
        self.refresh_if_old().await;
        self.hashes.current().contains(hash) || self.seen().hashes.contains(hash)
    }

    /// Like [`Self::still_knows`], but queries the store even if it was read less than a second
    /// ago. Used for requests that make changes.
    pub(crate) async fn knows_now(&self, hash: &TokenHash) -> Result<bool, StoreError> {
        if self.hashes.current().contains(hash) {
            return Ok(true);
        }
        let Some(store) = &self.store else { return Ok(false) };
        let hashes = tokio::time::timeout(SEEN_AGE, store.token_hashes()).await;
        let hashes = hashes.unwrap_or(Err(StoreError::Silent))?;
        let is_known = hashes.contains(hash);
        self.seen().hashes = hashes.into();
        Ok(is_known)
    }

    async fn finds(&self, matches: impl Fn(&[TokenHash]) -> bool) -> bool {
        if matches(&self.hashes.current()) || matches(&self.seen().hashes) {
            return true;
        }
        self.refresh_if_old().await && matches(&self.seen().hashes)
    }

    /// Reads the store's tokens, unless the last attempt was less than [`SEEN_AGE`] ago. Returns
    /// whether the tokens were read.
    async fn refresh_if_old(&self) -> bool {
        let Some(store) = &self.store else { return false };
        {
            let mut seen = self.seen();
            if seen.at.is_some_and(|at| at.elapsed() < SEEN_AGE) {
                return false;
            }
            seen.at = Some(Instant::now());
        }
        // An unresponsive store delays an unknown client by at most a second.
        match tokio::time::timeout(SEEN_AGE, store.token_hashes()).await {
            Ok(Ok(hashes)) => {
                self.seen().hashes = hashes.into();
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // No code that holds this lock can panic.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a client whose role is at least `role` and whose token is valid in `network`, if a
    /// network is given.
    pub(crate) async fn enter(
        &self,
        token: Option<&str>,
        role: Role,
        network: Option<&str>,
    ) -> Result<Visitor, Denied> {
        let token = token.ok_or(Denied::Unknown)?;
        let visitor = if self.hashes.accept(token.as_bytes()) {
            Visitor::configured(&TokenHash::of(token.as_bytes()))
        } else {
            let store = self.store.as_ref().ok_or(Denied::Unknown)?;
            let grant = store.verify_token(token).await.map_err(Denied::Store)?;
            Visitor::from(grant.ok_or(Denied::Unknown)?)
        };
        if !network.is_none_or(|network| visitor.may_in(network)) {
            return Err(Denied::Network);
        }
        visitor.with_role(role)
    }

    /// Admits a client whose role is at least `role` and whose token is valid in all networks.
    pub(crate) async fn enter_all(
        &self,
        token: Option<&str>,
        role: Role,
    ) -> Result<Visitor, Denied> {
        let visitor = self.enter(token, Role::Lookup, None).await?;
        if visitor.network.is_some() { Err(Denied::Network) } else { visitor.with_role(role) }
    }
}

/// The token in the header `Authorization: Bearer TOKEN`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = str::from_utf8(headers.get(header::AUTHORIZATION)?.as_bytes()).ok()?;
    credentials(value, "Bearer").map(str::as_bytes)
}

/// The token in a request's `Authorization` header or, if there is none, in its query string. The
/// published API does not require a scheme such as `Bearer` before the token.
pub(crate) fn in_head(request: &Request) -> Option<String> {
    let headers = request.headers();
    let whole = || headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = bearer(headers).or_else(whole).and_then(|token| str::from_utf8(token).ok());
    token.map(str::to_owned).or_else(|| in_query(request.uri()))
}

/// The token in the query string, where the published API allows it.
pub(crate) fn in_query(uri: &Uri) -> Option<String> {
    let mut pairs = uri.query()?.split('&');
    let token = pairs.find_map(|pair| pair.strip_prefix("oauth_token="))?;
    Some(percent_decode_str(token).decode_utf8_lossy().into_owned())
}

impl Visitor {
    /// The client whose token has this hash, which is in the configuration file.
    pub(crate) fn configured(token: &TokenHash) -> Self {
        Self { who: token.author(), role: Role::Admin, network: None }
    }

    fn with_role(self, needs: Role) -> Result<Self, Denied> {
        if self.role >= needs { Ok(self) } else { Err(Denied::Role { has: self.role, needs }) }
    }

    /// Whether the client's token is valid in `network`.
    pub(crate) fn may_in(&self, network: &str) -> bool {
        self.network.as_deref().is_none_or(|own| own == network)
    }

    /// The only network that the client may see. `None` for all networks.
    pub(crate) fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => f.write_str("send `Authorization: Bearer TOKEN`"),
            Self::Role { has, needs } => {
                let (has, needs) = (has.as_str(), needs.as_str());
                write!(f, "the token has the role {has}, but this request needs the role {needs}")
            }
            Self::Network => f.write_str(
                "the token is limited to one network, but this request concerns another network or \
                 all of them: use a token that is not limited",
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl From<Grant> for Visitor {
    fn from(grant: Grant) -> Self {
        let who = format!("{} (token {})", grant.name, grant.id);
        Self { who, role: grant.role, network: grant.network }
    }
}
