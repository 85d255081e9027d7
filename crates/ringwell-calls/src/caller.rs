//! Parses a caller's number as providers send it: an E.164 number, a SIP address, a marker for a
//! withheld number, or text that is none of these.
//!
//! Does not check who may see the number. A caller without a valid number is still accepted, and
//! the call is connected.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use crate::digest::{self, Mac};

/// The accepted number of digits in an E.164 number, not counting the `+`.
const DIGITS: std::ops::RangeInclusive<usize> = 3..=15;
/// The minimum number of digits in a complete number of any country, with its country code. A
/// number with fewer digits is a service's short number or a switch's extension.
pub(crate) const COMPLETE_DIGITS_MIN: usize = 7;
/// The minimum number of digits in a complete number without `+`: area code and number in North
/// America.
const NATIONAL_DIGITS_MIN: usize = 10;
/// The maximum length of a stored SIP address. Longer addresses are truncated.
const SIP_BYTES_MAX: usize = 128;
/// The markers that providers send for a withheld number. `266696687` spells ANONYMOUS on a keypad.
const WITHHELD: [&str; 10] = [
    "",
    "anonymous",
    "restricted",
    "unavailable",
    "unknown",
    "private",
    "blocked",
    "266696687",
    "withheld",
    "nobody",
];

/// The caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    /// The number is unknown: withheld, missing or unreadable.
    #[default]
    Withheld,
    /// A telephone number: `+` and up to 15 digits.
    E164(String),
    /// A SIP address without a telephone number.
    Sip(String),
    /// The HMAC that is stored instead of a number or SIP address.
    Hash(String),
}

/// Converts the scheme of `text` to lower case, because `SIP:` means the same as `sip:`.
fn with_small_scheme(text: &str) -> Cow<'_, str> {
    let is_one =
        |scheme: &str| ["sip", "sips", "tel"].iter().any(|it| it.eq_ignore_ascii_case(scheme));
    match text.split_once(':').filter(|(scheme, _)| is_one(scheme)) {
        Some((scheme, rest)) => Cow::Owned(format!("{}:{rest}", scheme.to_ascii_lowercase())),
        None => Cow::Borrowed(text),
    }
}

impl Caller {
    /// Parses a caller's number as a provider sends it. Converts a SIP address to its normal form,
    /// see [`plain_address`], so that all its spellings mean the same caller.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let text = text.trim();
        // PostgreSQL cannot store NUL, and addresses never contain control characters.
        if text.len() > 1024 || text.chars().any(char::is_control) {
            return Self::Withheld;
        }
        // Accepts a name before the address, as in the SIP header `From`:
        // `"Jane" <sip:jane@pbx.example>`.
        let address = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
        let text: &str = &with_small_scheme(address.map_or(text, |(address, _)| address.trim()));
        let address = text.strip_prefix("sip:").or_else(|| text.strip_prefix("sips:"));
        let user = if let Some(rest) = address {
            decoded(rest.split(['@', ';', '?', ':']).next().unwrap_or_default())
        } else {
            let user = text.strip_prefix("tel:").unwrap_or(text);
            user.split(';').next().unwrap_or_default().to_owned()
        };
        let plain = user.strip_prefix('+').unwrap_or(&user).to_ascii_lowercase();
        if WITHHELD.contains(&plain.as_str()) {
            return Self::Withheld;
        }
        let is_number = address.is_none_or(|rest| is_telephone_number(&user, rest));
        if let Some(number) = e164(&user).filter(|_| is_number) {
            return Self::E164(number);
        }
        match address {
            Some(_) => Self::Sip(cut(&plain_address(text), SIP_BYTES_MAX).to_owned()),
            None => Self::Withheld,
        }
    }

    /// Parses a SIP address, as an operator types it. `None` for any other text.
    pub(crate) fn of_address(text: &str) -> Option<Self> {
        let small = with_small_scheme(text.trim());
        let is_sip = small.starts_with("sip:") || small.starts_with("sips:");
        is_sip.then(|| Self::read(text)).filter(|caller| *caller != Self::Withheld)
    }

    /// The caller's number, if it is known.
    #[must_use]
    pub fn number(&self) -> Option<&str> {
        match self {
            Self::E164(number) => Some(number),
            Self::Withheld | Self::Sip(_) | Self::Hash(_) => None,
        }
    }

    /// The caller with the number or SIP address replaced by its HMAC, for logs that must not
    /// contain the number.
    #[must_use]
    pub fn hashed(&self, key: &[u8]) -> Self {
        match self {
            Self::E164(text) | Self::Sip(text) => {
                Self::Hash(digest::hex(&Mac::Sha256.sign(key, &[text.as_bytes()])))
            }
            Self::Withheld | Self::Hash(_) => self.clone(),
        }
    }

    /// The value of the database column `caller`. It is the same for all calls from one caller.
    /// `None` for [`Self::Withheld`].
    #[must_use]
    pub fn to_column(&self) -> Option<String> {
        match self {
            Self::Withheld => None,
            Self::E164(text) | Self::Sip(text) => Some(text.clone()),
            Self::Hash(hash) => Some(format!("hash:{hash}")),
        }
    }

    /// The inverse of [`Self::to_column`].
    #[must_use]
    pub fn from_column(column: Option<&str>) -> Self {
        match column {
            None => Self::Withheld,
            Some(text) if text.starts_with('+') => Self::E164(text.to_owned()),
            Some(text) => match text.strip_prefix("hash:") {
                Some(hash) => Self::Hash(hash.to_owned()),
                None => Self::Sip(text.to_owned()),
            },
        }
    }
}

/// Masks the number, so that no output shows it by accident.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withheld => f.write_str("withheld"),
            Self::E164(number) => f.write_str(&masked(number)),
            Self::Sip(_) => f.write_str("sip:***"),
            Self::Hash(_) => f.write_str("hash:***"),
        }
    }
}

/// Whether a SIP address's `user`, which consists of digits, is a telephone number. If not, it is
/// an extension of the address's host, and the same digits at another host belong to another
/// caller.
fn is_telephone_number(user: &str, address: &str) -> bool {
    let is_phone = |part: &str| part.eq_ignore_ascii_case("user=phone");
    let is_complete = user.starts_with('+') || address.split(['@', ';', '?']).any(is_phone);
    let least = if is_complete { COMPLETE_DIGITS_MIN } else { NATIONAL_DIGITS_MIN };
    user.bytes().filter(u8::is_ascii_digit).count() >= least
}

/// Decodes unnecessary escapes in a SIP address's user, because both spellings mean the same user.
/// Source: RFC 3261, section 19.1.4. The RFC makes an exception for `+`, but before a number, an
/// escaped `+` means the same. Returns text with an invalid escape unchanged.
fn decoded(user: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()+".contains(byte);
    let mut parts = user.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else {
            return user.to_owned();
        };
        if is_plain(&byte) {
            text.push(char::from(byte));
            text.push_str(&part[2..]);
        } else {
            text.push('%');
            text.push_str(part);
        }
    }
    text
}

/// Converts a SIP address to its normal form: without password, port, parameters and unnecessary
/// escapes, and with its host as in [`plain_host`].
fn plain_address(address: &str) -> String {
    let (scheme, rest) = address.split_once(':').unwrap_or(("sip", address));
    let (user, host) = rest.split_once('@').unwrap_or(("", rest));
    // The user may also have parameters.
    let user = decoded(user.split([';', ':']).next().unwrap_or_default());
    let host = host.split([';', '?']).next().unwrap_or_default().trim_end_matches('.');
    // An IPv6 address is in brackets, so the text after its last colon ends with `]` and is not
    // mistaken for a port.
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |it| it.0);
    let at = if user.is_empty() { "" } else { "@" };
    format!("{scheme}:{user}{at}{}", plain_host(name))
}

/// Converts a host to its normal form: in lower case, without the dot at the end of a full name, and
/// an IPv6 address in its shortest form.
fn plain_host(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok());
    address.map_or(host, |address| format!("[{address}]"))
}

/// Converts a number to `+` and digits. A number without `+` and country code is treated as North
/// American.
#[must_use]
pub fn e164(text: &str) -> Option<String> {
    let (has_plus, rest) = match text.strip_prefix('+') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest.len() > 32 {
        return None;
    }
    let digits: String = rest.chars().filter(|c| !is_separator(*c)).collect();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = match digits.strip_prefix("00").filter(|_| !has_plus) {
        Some(rest) => rest.to_owned(),
        None if !has_plus && digits.len() == 10 => format!("1{digits}"),
        None => digits,
    };
    (DIGITS.contains(&digits.len()) && !digits.starts_with('0')).then(|| format!("+{digits}"))
}

/// Whether `c` may separate the digits of a number.
pub(crate) const fn is_separator(c: char) -> bool {
    matches!(c, ' ' | '-' | '.' | '(' | ')' | '/')
}

/// Masks a number except for its first five and last four characters, as in `+1415***1234`. Shows
/// fewer characters of a short number, so that at least three digits are always hidden.
#[must_use]
pub fn masked(number: &str) -> String {
    let count = number.chars().count();
    if count < 10 {
        return "***".to_owned();
    }
    let head: String = number.chars().take((count - 7).min(5)).collect();
    let tail: String = number.chars().skip(count - 4).collect();
    format!("{head}***{tail}")
}

/// The longest prefix of `text` that has at most `most` bytes and does not split a character.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests;
