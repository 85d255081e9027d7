//! URLs of PostgreSQL databases: the checks before the first connection.
//!
//! The driver logs unknown parameters together with their values, which may be passwords, and
//! reports other faults only when it connects. Invariant: no fault contains a part of the URL
//! except the name of a parameter, because any other part could be a secret.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use super::values::{ValueError, parse_path};

/// The database of ring pools or of the call log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A file of SQLite.
    File(PathBuf),
    /// A database of PostgreSQL.
    Postgres(DatabaseUrl),
}

/// A URL such as `postgres://user:secret@host/name`. `Debug` hides everything except the scheme.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL, with its secret. Not for logs.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("postgres://***")
    }
}

/// Reads `sqlite:PATH` or `postgres://…`.
pub(super) fn parse_database(name: &str, base: &Path) -> Result<Database, ValueError> {
    if let Some(path) = name.strip_prefix("sqlite:") {
        if path.contains("://") {
            return Err(ValueError::new("contains both sqlite: and a URL")
                .hint("write \"sqlite:PATH\" or \"postgres://…\""));
        }
        return Ok(Database::File(base.join(parse_path(path)?)));
    }
    if name.starts_with("postgres://") || name.starts_with("postgresql://") {
        check(name).map_err(|fault| ValueError::new(fault.message).hint(fault.hint))?;
        return Ok(Database::Postgres(DatabaseUrl(name.to_owned())));
    }
    Err(ValueError::new("must be sqlite:PATH or postgres://…")
        .hint("write e.g. \"sqlite:/var/lib/ringwell/directory.sqlite\""))
}

/// The reason why the driver cannot read a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlFault {
    pub(super) message: String,
    pub(super) hint: String,
}

impl UrlFault {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// The parameters that the driver accepts.
const KNOWN: [&str; 17] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

/// The modes of TLS.
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// Checks that the driver can read `url`:
/// `postgres://USER:PASSWORD@HOST:PORT/NAME?PARAMETER=VALUE`.
///
/// # Errors
/// [`UrlFault`].
pub(super) fn check(url: &str) -> Result<(), UrlFault> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user_info, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    // If a password contains `/` or `#`, the address seems to end there, and the `@` that should
    // end the password follows later.
    let is_cut_short = rest.contains('#') || path.contains('@');
    // The address also seems to end at a `?` in a password. However, an `@` after `?` is allowed if
    // a known parameter comes first.
    let is_cut_at_query = !authority.contains('@') && query.contains('@') && !starts_known(query);
    let is_text = percent_decode_str(user_info).decode_utf8().is_ok()
        && percent_decode_str(path).decode_utf8().is_ok();
    let is_list = address.contains(',');
    let is_address = is_list || is_address(address, !user_info.is_empty());
    if is_cut_short || is_cut_at_query || !is_text || !is_address {
        return Err(UrlFault::new(
            "has an invalid user, password, host or port",
            "percent-encode special characters in the user and the password: %40 for @, %2F for /, \
             %3A for :, %3F for ?, %23 for #, %25 for %",
        ));
    }
    if is_list {
        return Err(UrlFault::new(
            "has several hosts",
            "use one name or address that moves to the other server at a fail-over",
        ));
    }
    query.split('&').filter(|pair| !pair.is_empty()).try_for_each(parameter)
}

/// Whether the driver accepts the first parameter. If it does, `query` really is a query.
fn starts_known(query: &str) -> bool {
    let first = query.split(['=', '&']).next().unwrap_or_default();
    KNOWN.contains(&first) || is_option(first)
}

fn is_option(name: &str) -> bool {
    name == "options" || (name.starts_with("options[") && name.ends_with(']'))
}

/// Whether the text is `HOST:PORT`. Host and port are optional, but if there is a user or a port,
/// there must be a host.
fn is_address(text: &str, has_user: bool) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
            _ => return false,
        },
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_host = |c: char| !c.is_control() && !" <>[\\]^|".contains(c);
    let is_port = match port.strip_prefix(':') {
        None | Some("") => port.len() < 2,
        Some(digits) => digits.parse::<u16>().is_ok(),
    };
    let is_missing = host.is_empty() && (has_user || !port.is_empty());
    is_port && !is_missing && (text.starts_with('[') || host.chars().all(is_host))
}

/// Checks one parameter, `NAME=VALUE`.
fn parameter(pair: &str) -> Result<(), UrlFault> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let (name, value) = (decoded(name), decoded(value));
    let must = |what: &str| {
        Err(UrlFault::new(
            format!("has an invalid value for the parameter {name}"),
            format!("it must be {what}"),
        ))
    };
    match name.as_str() {
        "sslmode" | "ssl-mode" => {
            let is_known = SSL_MODES.iter().any(|mode| mode.eq_ignore_ascii_case(&value));
            if is_known { Ok(()) } else { must(&format!("one of {}", SSL_MODES.join(", "))) }
        }
        "port" if value.parse::<u16>().is_err() => must("0 to 65535"),
        "hostaddr" if value.parse::<IpAddr>().is_err() => must("an IP address"),
        "statement-cache-capacity" if value.parse::<usize>().is_err() => must("a whole number"),
        known if KNOWN.contains(&known) || is_option(known) => Ok(()),
        _ => Err(unknown(&name, pair.contains('='))),
    }
}

fn unknown(name: &str, has_value: bool) -> UrlFault {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    // Text that is not a plain name may be part of a password, so it is not shown.
    let is_name = has_value && (1..=40).contains(&name.len()) && name.bytes().all(is_plain);
    let name = if is_name {
        format!("the unknown parameter {name}")
    } else {
        "an unknown parameter".to_owned()
    };
    UrlFault::new(
        format!("has {name} after the ?"),
        format!(
            "the supported parameters are {} and options; if the ? is part of the password, write \
             it as %3F",
            KNOWN.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests;
