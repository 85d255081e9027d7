//! The parts that several providers' signatures share: the public URL, and the explanation of a
//! mismatch.

use crate::account::Account;
use crate::provider::Incoming;

/// The maximum number of field names to log for a refused request. [`NAME_BYTES_MAX`] is the
/// maximum length of each name.
const NAMES_MAX: usize = 40;
const NAME_BYTES_MAX: usize = 40;

/// The reason why a request failed authentication. The reason is logged, but not sent to the
/// client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsigned {
    /// The error message.
    pub reason: &'static str,
    /// A setting that would make the signature match, or other advice.
    pub hint: Option<String>,
    /// Whether the provider sends some requests unsigned, and repeats them with a signature after
    /// an error.
    pub is_retried: bool,
}

impl Unsigned {
    pub(super) fn new(reason: &'static str) -> Self {
        Self { reason, hint: None, is_retried: false }
    }

    pub(super) fn hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

/// The parts of an unsigned request that may be logged. Contains no field values, because anyone
/// may have sent the request, and the values may be anyone's personal data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The URL that the signature was checked for, without its query.
    pub url: String,
    /// The media type of the body, if providers use that type.
    pub content_type: &'static str,
    /// The names of the fields in the query and body. `…` replaces unusual names, and the names
    /// after the first 40.
    pub fields: String,
}

impl Shown {
    /// Extracts from a request to `account` the parts that may be logged.
    #[must_use]
    pub fn of(account: &Account, request: &Incoming) -> Self {
        let path = request.target.split('?').next().unwrap_or_default();
        let kind = request.header("content-type").split(';').next().unwrap_or_default().trim();
        let known = ["application/x-www-form-urlencoded", "application/json", "text/plain"];
        let content_type = match known.into_iter().find(|known| *known == kind) {
            Some(known) => known,
            None if kind.is_empty() => "none",
            None => "another",
        };
        Self { url: format!("{}{path}", account.public_url), content_type, fields: names(request) }
    }
}

fn names(request: &Incoming) -> String {
    let (query, form) = (request.query_form(), request.form());
    let json: Option<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_slice(&request.body).ok();
    let json = json.unwrap_or_default();
    let pairs = query.sorted().into_iter().chain(form.sorted());
    let all: std::collections::BTreeSet<&str> =
        pairs.map(|(name, _)| name).chain(json.keys().map(String::as_str)).collect();
    let plain = all.iter().copied().filter(|name| is_plain(name));
    let mut shown: Vec<&str> = plain.take(NAMES_MAX).collect();
    if shown.len() < all.len() {
        shown.push("…");
    }
    shown.join(" ")
}

/// Whether `name` looks like a field name, and not like a telephone number or an address.
fn is_plain(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|b| is_letter(b) || b.is_ascii_digit())
        && name.bytes().filter(u8::is_ascii_digit).count() <= 3
        && name.bytes().next().is_some_and(is_letter)
}

/// The URL that the provider called, according to the configuration.
pub(super) fn public_url(account: &Account, request: &Incoming) -> String {
    // The public URL may contain a path that a proxy removes from requests.
    format!("{}{}", account.public_url, request.target)
}

/// Returns the URL as given, and a variant of it: without the port if the URL has one, otherwise
/// with the default port.
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

/// Tries the URLs that the provider may have called if requests pass through a typical proxy. If
/// one `matches`, returns advice that contains it.
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
        // The proxy may pass on the path of the public URL instead of removing it.
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
    Some(format!(
        "a signature for {base} would have matched: set the account's public_url to that URL"
    ))
}
