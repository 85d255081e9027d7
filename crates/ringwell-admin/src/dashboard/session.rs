//! Sessions of the dashboard, and one-time links for logging in.
//!
//! Owns the secrets of cookies and links. Keeps only SHA-256 hashes of these secrets, so that
//! neither the contents of memory nor the duration of a comparison reveals a usable secret. Tokens
//! are also kept only as hashes. Invariant: a session ends when its token is revoked, and at most
//! [`SESSIONS_MAX`] sessions are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use ringwell_directory::TokenHash;
use ringwell_store::Role;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access::Visitor;

/// The maximum number of open sessions. A server has fewer users than that.
const SESSIONS_MAX: usize = 1_000;
/// The maximum number of links that have not been used yet.
const LINKS_MAX: usize = 100;
const SESSION_TIME: Duration = Duration::from_hours(12);
const LINK_TIME: Duration = Duration::from_mins(5);
const COOKIE: &str = "rw_session";

/// A logged-in user.
#[derive(Debug)]
pub(super) struct Session {
    /// The user's name, for the page header and the audit log.
    pub(super) who: String,
    /// The role of the session's token.
    pub(super) role: Role,
    /// The secret that every form contains.
    pub(super) form_token: String,
    /// The token that the user logged in with.
    pub(super) token: TokenHash,
    until: Instant,
}

/// All sessions and links.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    sessions: HashMap<[u8; 32], Arc<Session>>,
    links: HashMap<[u8; 32], (Visitor, TokenHash, Instant)>,
}

impl Session {
    /// Whether `presented` is the secret that this session's forms contain.
    pub(super) fn sent(&self, presented: &str) -> bool {
        self.form_token.as_bytes().ct_eq(presented.as_bytes()).into()
    }
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Both maps are consistent after each statement, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a session and returns the cookie's value. Returns `None` if no random bytes are
    /// available.
    pub(super) fn begin(&self, visitor: &Visitor, token: TokenHash) -> Option<String> {
        let (secret, form_token) = (secret()?, secret()?);
        let session = Session {
            who: visitor.who.clone(),
            role: visitor.role,
            form_token,
            token,
            until: Instant::now() + SESSION_TIME,
        };
        let mut open = self.open();
        let now = Instant::now();
        open.sessions.retain(|_, session| session.until > now);
        if open.sessions.len() >= SESSIONS_MAX {
            let oldest = open.sessions.iter().min_by_key(|(_, session)| session.until);
            let oldest = oldest.map(|(key, _)| *key);
            oldest.map(|key| open.sessions.remove(&key));
        }
        open.sessions.insert(digest(&secret), Arc::new(session));
        Some(secret)
    }

    /// A request's session.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let key = digest(cookie(headers)?);
        let open = self.open();
        open.sessions.get(&key).filter(|session| session.until > Instant::now()).cloned()
    }

    /// Ends a request's session.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(secret) = cookie(headers) {
            self.open().sessions.remove(&digest(secret));
        }
    }

    /// Ends all sessions that were opened with `token`.
    pub(super) fn end_all_of(&self, token: &TokenHash) {
        self.open().sessions.retain(|_, session| session.token != *token);
    }

    /// Creates a link that logs in the first user who opens it within five minutes, and returns its
    /// secret. Returns `None` if too many links are unused or no random bytes are available.
    pub(super) fn link(&self, visitor: Visitor, token: TokenHash) -> Option<String> {
        let secret = secret()?;
        let mut open = self.open();
        let now = Instant::now();
        open.links.retain(|_, (_, _, until)| *until > now);
        if open.links.len() >= LINKS_MAX {
            return None;
        }
        open.links.insert(digest(&secret), (visitor, token, now + LINK_TIME));
        Some(secret)
    }

    /// Returns the user for whom a link was created, and invalidates the link.
    pub(super) fn follow(&self, secret: &str) -> Option<(Visitor, TokenHash)> {
        let (visitor, token, until) = self.open().links.remove(&digest(secret))?;
        (until > Instant::now()).then_some((visitor, token))
    }
}

/// The value of the `Set-Cookie` header that starts a session in the browser. It lacks the
/// attribute `Secure`, because the management address does not use TLS. A proxy that adds TLS must
/// add the attribute as well.
pub(super) fn set_cookie(secret: &str) -> Option<HeaderValue> {
    let seconds = SESSION_TIME.as_secs();
    let text = format!("{COOKIE}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
    HeaderValue::try_from(text).ok()
}

/// The value of the `Set-Cookie` header that removes the cookie.
pub(super) const UNSET_COOKIE: HeaderValue =
    HeaderValue::from_static("rw_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");

/// Whether a form was sent from one of this server's pages. Every browser sends `Sec-Fetch-Site` or
/// `Origin`. A request with neither is not from a browser, so no page on another site can have
/// caused it.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    let field = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = field("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = field("origin") else { return true };
    let host = field("host").unwrap_or_default();
    origin.split_once("://").is_some_and(|(_, name)| name == host)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let fields = headers.get_all(header::COOKIE).into_iter();
    let mut pairs = fields.filter_map(|field| field.to_str().ok()).flat_map(|it| it.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    let digit = |value: u8| char::from_digit(u32::from(value), 16);
    Some(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(cookie).unwrap())])
    }

    fn visitor() -> Visitor {
        Visitor::configured(&TokenHash::of(b"a token of the tests"))
    }

    #[test]
    fn a_link_opens_one_session_and_a_session_ends_with_its_token() {
        let (sessions, token) = (Sessions::default(), TokenHash::of(b"a token of the tests"));
        let link = sessions.link(visitor(), token).unwrap();
        assert!(sessions.follow("guessed").is_none());
        let (visitor, of) = sessions.follow(&link).unwrap();
        assert!(sessions.follow(&link).is_none(), "a link leads somewhere once");
        let cookie = format!("other=1; rw_session={}", sessions.begin(&visitor, of).unwrap());
        assert_eq!(sessions.of(&headers(&cookie)).unwrap().token, token);
        assert!(sessions.of(&headers("rw_session=guessed")).is_none());
        sessions.end_all_of(&token);
        assert!(sessions.of(&headers(&cookie)).is_none());
    }

    #[test]
    fn unused_links_and_sessions_are_limited_in_number() {
        let (sessions, token) = (Sessions::default(), TokenHash::of(b"a token of the tests"));
        let made = (0..LINKS_MAX + 5).filter_map(|_| sessions.link(visitor(), token)).count();
        assert_eq!(made, LINKS_MAX);
        for _ in 0..SESSIONS_MAX + 5 {
            sessions.begin(&visitor(), token).unwrap();
        }
        assert_eq!(sessions.open().sessions.len(), SESSIONS_MAX);
    }
}
