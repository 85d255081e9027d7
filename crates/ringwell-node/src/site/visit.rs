//! The JSON of pages' requests and of the answers, and the parameters that are stored with an
//! allocation. The size of a request and the number of its parameters are limited.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringwell_config::is_reserved_param;
use ringwell_core::PromoNumber;
use ringwell_wire::national::{country_code, national};
use ringwell_wire::ten_digits;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;

/// The maximum length of a body in bytes.
pub(super) const BODY_BYTES_MAX: usize = 4096;
/// The maximum number of parameters, and the maximum length of a value in bytes.
const PARAMS_MAX: usize = 25;
const VALUE_BYTES_MAX: usize = 1024;
/// The initial capacity for a visitor's stored parameters, which is enough for most visitors.
const QUERY_BYTES: usize = 256;
/// If a link contains fewer digits than this, it does not count as a telephone number.
const TAPPED_DIGITS_MIN: usize = 6;

/// A page's request. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Visit {
    pub(super) site: String,
    pub(super) visitor: Option<String>,
    pub(super) lease: Option<String>,
    /// `false` if the visitor has refused consent: `params`, `landing` and `referrer` then count as
    /// missing.
    pub(super) consent: Option<bool>,
    /// `None` if the visitor's parameters must not be stored.
    pub(super) params: Option<BTreeMap<String, String>>,
    pub(super) landing: Option<String>,
    pub(super) referrer: Option<String>,
    /// The link that was tapped, for example `tel:+12125550177`.
    pub(super) tel: Option<String>,
}

/// The numbers for a page's visitor.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The visitor's id as a signed string, which the page sends with its next request.
    pub(super) visitor: String,
    /// The signed lease. `None` if all numbers are overflow numbers.
    pub(super) lease: Option<String>,
    /// The number of seconds that the visitor keeps the numbers.
    pub(super) ttl: u64,
    /// The interval in seconds between two keep-alives.
    pub(super) beat: u64,
    pub(super) swaps: Vec<SwapJson>,
}

/// One number on the page, and the number to show instead.
#[derive(Debug)]
pub(super) struct SwapJson {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) formatted: String,
    /// The country code of `from`.
    pub(super) cc: Option<u16>,
}

impl Numbers {
    /// Writes the numbers as JSON. The strings consist of hexadecimal digits and formatted numbers,
    /// so none of them needs escaping.
    pub(super) fn json(&self) -> Vec<u8> {
        let mut text = String::with_capacity(256 + 128 * self.swaps.len());
        text.push_str("{\"visitor\":\"");
        text.push_str(&self.visitor);
        if let Some(lease) = &self.lease {
            text.push_str("\",\"lease\":\"");
            text.push_str(lease);
        }
        let _ = write!(text, "\",\"ttl\":{},\"beat\":{},\"swaps\":[", self.ttl, self.beat);
        for (place, swap) in self.swaps.iter().enumerate() {
            text.push_str(if place > 0 { ",{\"from\":\"" } else { "{\"from\":\"" });
            text.push_str(&swap.from);
            text.push_str("\",\"to\":\"");
            text.push_str(&swap.to);
            text.push_str("\",\"formatted\":\"");
            text.push_str(&swap.formatted);
            text.push_str("\",\"cc\":\"");
            if let Some(code) = swap.cc {
                let _ = write!(text, "{code}");
            }
            text.push_str("\"}");
        }
        text.push_str("]}");
        text.into_bytes()
    }
}

impl SwapJson {
    /// `from` must be a number that starts with `+`, and `cc` must be its country code.
    pub(super) fn new(from: &str, cc: Option<u16>, to: PromoNumber) -> Self {
        let (to, formatted) = match to.to_nanp().map(ten_digits) {
            // Does not use the formatting machinery, because nearly every number takes this path.
            Some(digits) => {
                let text = str::from_utf8(&digits).unwrap_or_default();
                let (area, exchange, line) = (&text[..3], &text[3..6], &text[6..]);
                (["+1", text].concat(), ["(", area, ") ", exchange, "-", line].concat())
            }
            None => (format!("+{}", to.to_e164()), national(to)),
        };
        Self { from: from.to_owned(), to, formatted, cc }
    }
}

/// Returns the country code of a number on a page.
pub(super) fn code_of(number: &str) -> Option<u16> {
    PromoNumber::parse(number).ok().and_then(country_code)
}

/// The URL schemes of pages, and of apps that open pages.
const PAGE_SCHEMES: [&str; 4] = ["https", "http", "android-app", "ios-app"];

/// Whether a parameter identifies the advertisement that led to the visit.
fn is_click(name: &str) -> bool {
    let ends = ["clid", "clkid", "braid"].iter().any(|end| name.ends_with(end));
    name.starts_with("utm_") || ends || name == "li_fat_id"
}

impl Visit {
    /// Decodes the parameters of a query. If a name occurs more than once, the last one counts.
    pub(super) fn params_of(query: &str) -> BTreeMap<String, String> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (unescape(name), unescape(value))).collect()
    }

    /// Reads a body.
    ///
    /// # Errors
    /// Returns the first fault and its position, but no part of the body.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let is_object = body.trim_ascii_start().starts_with(b"{");
        if !is_object && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
            return Err("the body is not a JSON object".to_owned());
        }
        let visit: Self = serde_json::from_slice(body).map_err(|error| {
            let fault = match error.classify() {
                Category::Data => "has a field of the wrong type",
                Category::Io | Category::Syntax | Category::Eof => "is not JSON",
            };
            format!("the body {fault}: line {}, column {}", error.line(), error.column())
        })?;
        let has_refused = visit.consent == Some(false);
        let without = |visit| Self { params: None, landing: None, referrer: None, ..visit };
        Ok(if has_refused { without(visit) } else { visit })
    }

    /// Whether the tapped link contains `number`. If a page does not send the link, every one of
    /// its numbers counts as tapped.
    pub(super) fn is_tapped(&self, number: PromoNumber) -> bool {
        let Some(link) = &self.tel else { return true };
        let tapped: String = link.chars().filter(char::is_ascii_digit).collect();
        // Links contain numbers with the country code, without it, or with a trunk zero instead.
        let tapped = tapped.trim_start_matches('0');
        let digits = number.to_e164().to_string();
        tapped.len() >= TAPPED_DIGITS_MIN && (digits.ends_with(tapped) || tapped.ends_with(&digits))
    }

    /// Returns the parameters to store with the allocation, as an escaped query. They are
    /// advertising parameters, the site's `own` parameters, and the addresses of the page and its
    /// referrer without the parts that may identify a person.
    pub(super) fn query(&self, own: &[String]) -> String {
        let mut query = String::with_capacity(QUERY_BYTES);
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() && value.len() <= VALUE_BYTES_MAX {
                query.push('&');
                escape(&mut query, name);
                query.push('=');
                escape(&mut query, value);
            }
        };
        // A database may contain sites that were created before reserved names were refused.
        let is_own = |name: &str| own.iter().any(|own| own == name) && !is_reserved_param(name);
        let wanted = |name: &str| is_click(name) || is_own(name);
        let params = self.params.iter().flatten().filter(|(name, _)| wanted(name));
        for (name, value) in params.take(PARAMS_MAX) {
            add(name, value);
        }
        for (name, url) in [("landing", &self.landing), ("referrer", &self.referrer)] {
            if let Some(url) = url.as_deref().filter(|url| !url.is_empty()) {
                add(name, &without_person(url));
            }
        }
        query
    }
}

/// Removes query, fragment, user and password from `url`, which is a page's address or only a path.
/// Returns an empty string if `url` is anything else.
fn without_person(url: &str) -> String {
    let end = url.bytes().position(|byte| matches!(byte, b'?' | b'#'));
    let url = &url[..end.unwrap_or(url.len())];
    let colon = url.bytes().position(|byte| byte == b':').unwrap_or(url.len());
    let (scheme, rest) = url.split_at(colon);
    let Some(rest) = rest.strip_prefix("://") else {
        return if url.starts_with('/') { url.to_owned() } else { String::new() };
    };
    if !PAGE_SCHEMES.contains(&scheme) {
        return String::new();
    }
    let slash = rest.bytes().position(|byte| byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let host = authority.bytes().rposition(|byte| byte == b'@').map_or(0, |at| at + 1);
    [scheme, "://", &authority[host..], path].concat()
}

/// Decodes `%XX` and `+` in a query. Invalid UTF-8 is replaced with the replacement character.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|two| str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The bytes that need no escaping in a query.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        plain[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    plain
};

fn escape(into: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: &u8| PLAIN[usize::from(*byte)];
    into.reserve(text.len() + text.len() / 4);
    let mut rest = text;
    while !rest.is_empty() {
        let plain = rest.bytes().take_while(is_plain).count();
        let (copied, others) = rest.split_at(plain);
        into.push_str(copied);
        let Some(other) = others.chars().next() else { return };
        let (escaped, behind) = others.split_at(other.len_utf8());
        for byte in escaped.bytes() {
            into.push('%');
            into.push(char::from(DIGITS[usize::from(byte >> 4)]));
            into.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_is_escaped_allowed_and_identifies_no_person() {
        let visit: Visit = serde_json::from_str(
            r#"{"site":"pk_shop","unknown":[1],"params":{"gclid":"a&b=\"c\\","utm_source":"ö","email":"a@b","plan":"x"},
                "landing":"https://shop.example/a?email=a@b#c","referrer":"https://search.example/"}"#,
        )
        .unwrap();
        assert_eq!(
            visit.query(&["plan".to_owned()]),
            "&gclid=a%26b%3D%22c%5C&plan=x&utm_source=%C3%B6\
             &landing=https%3A%2F%2Fshop.example%2Fa&referrer=https%3A%2F%2Fsearch.example%2F"
        );
        let params = ["ringwell_visitor", "ring_pool_key", "landing"].map(str::to_owned);
        let sent = params.clone().map(|name| (name, "same".to_owned()));
        let visit = Visit { params: Some(sent.into()), ..Visit::default() };
        assert_eq!(visit.query(&params), "", "the server sets these itself");
    }

    #[test]
    fn an_address_is_stored_without_parts_that_may_identify_a_person() {
        for (url, stored) in [
            ("https://ann:pw@shop.example/a", "https://shop.example/a"),
            ("https://ann@home@shop.example", "https://shop.example"),
            ("android-app://com.example.mail/", "android-app://com.example.mail/"),
            ("/a?b=c", "/a"),
            ("javascript:alert(1)", ""),
            ("javascript://%0aalert(1)", ""),
            ("data:text/html,a", ""),
            ("", ""),
        ] {
            assert_eq!(without_person(url), stored, "{url}");
        }
    }

    #[test]
    fn a_tap_counts_for_the_number_of_its_link_in_any_spelling() {
        let tapped = |tel: Option<&str>, number| {
            let visit = Visit { tel: tel.map(str::to_owned), ..Visit::default() };
            visit.is_tapped(PromoNumber::from_e164(number).unwrap())
        };
        for link in
            ["tel:+12125550177", "tel:2125550177", "tel:1-212-555-0177", "tel:0012125550177"]
        {
            assert!(tapped(Some(link), 12_125_550_177), "{link}");
        }
        assert!(tapped(Some("tel:030901820"), 4_930_901_820));
        assert!(tapped(None, 12_125_550_177), "an older script sends no number");
        for link in ["tel:+12125550178", "tel:0177", "tel:", "", "tel:+442125550177"] {
            assert!(!tapped(Some(link), 12_125_550_177), "{link}");
        }
    }

    #[test]
    fn the_query_of_a_page_is_decoded() {
        let params =
            Visit::params_of("gclid=a%26b+c&x&utm_source=%C3%B6&utm_term=50%&gclid=2&%zz=%");
        let wanted = [("%zz", "%"), ("gclid", "2"), ("utm_source", "ö"), ("utm_term", "50%")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(params.into_iter().collect::<Vec<_>>(), wanted);
        assert_eq!(unescape("a%26b+c%2"), "a&b c%2");
    }

    #[test]
    fn values_that_are_too_long_are_omitted_and_there_are_25_at_most() {
        let many = (0..40).map(|i| (format!("utm_{i:02}"), "v".to_owned()));
        let long = [("gclid".to_owned(), "v".repeat(1025))];
        let params = Some(many.chain(long).collect());
        let query = Visit { params, ..Visit::default() }.query(&[]);
        assert_eq!(query.matches("utm_").count(), 24, "{query}");
        assert!(!query.contains("gclid"));
    }
}
