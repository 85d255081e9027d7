//! The common parts of several providers' signatures: the public URL, and the text for a mismatch.

use crate::account::Account;
use crate::caller::without_numbers;
use crate::provider::Incoming;

/// The longest string that a refusal shows.
const SHOWN_BYTES_MAX: usize = 4_096;

/// The reason why a request does not count as the provider's. For the log: the answer does not
/// contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    /// The error.
    pub reason: &'static str,
    /// The string that was checked, telephone numbers masked, without secrets.
    pub checked: String,
    /// The value that would have matched.
    pub hint: Option<String>,
    /// The provider is known to send this by mistake, and repeats it after an error.
    pub is_retried: bool,
}

impl Unsigned {
    pub(super) fn new(reason: &'static str) -> Self {
        Self { reason, checked: String::new(), hint: None, is_retried: false }
    }

    pub(super) fn checked(self, string: &str) -> Self {
        let string = crate::caller::cut(string, SHOWN_BYTES_MAX);
        Self { checked: without_numbers(string), ..self }
    }

    pub(super) fn hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

/// The URL that the provider has called, according to the configuration.
pub(super) fn public_url(account: &Account, request: &Incoming) -> String {
    // The public URL may have a path that a proxy takes away.
    format!("{}{}", account.public_url, request.target)
}

/// The URL as given, without its port, and with the port of its scheme.
pub(super) fn with_and_without_port(url: &str) -> Vec<String> {
    let mut all = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return all };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), authority),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map(|(name, _)| name);
    let port = if scheme == "http" { 80 } else { 443 };
    let other = name.map_or_else(|| format!("{host}:{port}"), str::to_owned);
    all.push(format!("{scheme}://{user}{other}{path}"));
    all
}

/// Searches for the URL that the provider has called instead, among those that a proxy would
/// produce.
pub(super) fn hint(
    account: &Account,
    request: &Incoming,
    matches: impl Fn(&str) -> bool,
) -> Option<String> {
    let (scheme, rest) = account.public_url.split_once("://")?;
    let other = if scheme == "https" { "http" } else { "https" };
    let mut bases = vec![format!("{other}://{rest}")];
    let host_end = rest.find('/').unwrap_or(rest.len());
    if host_end < rest.len() {
        // The public URL has a path, and the proxy leaves it where it is.
        bases.push(format!("{scheme}://{}", &rest[..host_end]));
    }
    for field in ["x-forwarded-host", "x-original-host", "host"] {
        let host = request.header(field).split(',').next().unwrap_or_default().trim();
        if !host.is_empty() && host != &rest[..host_end] {
            bases.push(format!("{scheme}://{host}"));
            bases.push(format!("{other}://{host}"));
        }
    }
    let fits = |base: &&String| {
        with_and_without_port(&format!("{base}{}", request.target)).iter().any(|url| matches(url))
    };
    let base = bases.iter().find(fits)?;
    Some(format!("a signature for {base} would have matched: set public_url of the account to it"))
}
