//! `[[site]]`: web sites whose pages may show each visitor a number.
//!
//! A site's key is public, because its pages contain it. Its use is restricted by the allowed
//! origins and by limits for each address and each visitor. Source: docs/spec/site.md.

use std::fmt;

use ringwell_core::{Millis, PoolId, PromoNumber};
use serde::{Deserialize, Serialize};

use super::fields::{text, whole};
use super::limits;
use super::pools::pool_id;
use super::section::Section;
use super::values::ValueError;
use crate::cluster::Secret;

/// A web site: the origins of its pages, and the numbers to replace on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The key in the page: `pk_` and 4 to 60 letters, digits, `_` and `-`.
    pub key: String,
    /// The origins whose pages may use the site's key.
    pub origins: Vec<SiteOrigin>,
    /// The numbers to replace on its pages, each with the ring pool whose numbers replace it.
    pub swaps: Vec<Swap>,
    /// Parameters that are stored in addition to those that advertisements set (default: none).
    pub params: Vec<String>,
    /// The rule for remembering visitors (default: [`Consent::Off`]).
    pub consent: Consent,
    /// The secret for servers that replace the numbers before they deliver a page; without it, no
    /// server may replace numbers.
    pub edge_key: Option<Secret>,
    /// The maximum count of new numbers that visitors from one address block (IPv4 /24 or IPv6 /56)
    /// may get in a minute (default: 60).
    pub leases_per_minute: u32,
}

/// A number on a page, and the ring pool whose numbers replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The number on the page in full form: `+`, country code and number.
    pub number: String,
    /// The pool that supplies the number.
    pub pool: PoolId,
}

/// A site as it is written in JSON, not yet checked. [`SiteText::check`] converts it to a [`Site`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SiteText {
    /// See [`Site::key`].
    pub key: String,
    /// See [`Site::origins`].
    pub origins: Vec<String>,
    /// See [`Site::swaps`].
    pub swaps: Vec<SwapText>,
    /// See [`Site::params`].
    pub params: Vec<String>,
    /// `off`, `required` or `cookieless`.
    pub consent: String,
    /// See [`Site::edge_key`].
    pub edge_key: Option<String>,
    /// See [`Site::leases_per_minute`].
    pub leases_per_minute: u32,
}

impl Default for SiteText {
    /// The defaults; the required fields (key, origins and swaps) are empty.
    fn default() -> Self {
        Self {
            key: String::new(),
            origins: Vec::new(),
            swaps: Vec::new(),
            params: Vec::new(),
            consent: Consent::Off.name().to_owned(),
            edge_key: None,
            leases_per_minute: LEASES_PER_MINUTE,
        }
    }
}

/// A number on a page and its ring pool, as written in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapText {
    /// See [`Swap::number`].
    pub number: String,
    /// See [`Swap::pool`].
    pub ring_pool: u64,
}

/// The field of a [`SiteText`] that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFault {
    /// For example `origins[1]`.
    pub field: String,
    /// The rule.
    pub error: ValueError,
}

impl fmt::Display for SiteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.error)
    }
}

impl std::error::Error for SiteFault {}

/// The default of [`Site::leases_per_minute`].
const LEASES_PER_MINUTE: u32 = 60;
/// The maximum number of entries in each of a site's lists `origins`, `swaps` and `params`.
const ENTRIES_MAX: usize = 100;

impl SiteText {
    /// Checks every field against the rules for the configuration file.
    ///
    /// # Errors
    /// [`SiteFault`] names the first field that breaks a rule.
    pub fn check(&self) -> Result<Site, SiteFault> {
        let site = self.check_kept()?;
        each("params", &self.params, |name| check_reserved(name))?;
        check_twice(&site.swaps)
            .map_err(|(place, error)| SiteFault { field: format!("swaps[{place}]"), error })?;
        Ok(site)
    }

    /// Checks the fields of a site from a database. Skips rules that older versions did not have,
    /// because an older version may have stored the site.
    ///
    /// # Errors
    /// See [`Self::check`].
    pub fn check_kept(&self) -> Result<Site, SiteFault> {
        let fault = |field: &str, error| SiteFault { field: field.to_owned(), error };
        let key = parse_site_key(&self.key).map_err(|error| fault("key", error))?;
        let origins = each("origins", &self.origins, |text| text.parse())?;
        let swaps = each("swaps", &self.swaps, |swap| {
            let number = parse_swap_number(&swap.number)?;
            Ok(Swap { number, pool: PoolId(swap.ring_pool) })
        })?;
        let params = each("params", &self.params, |text| parse_param(text))?;
        for (name, is_empty) in [("origins", origins.is_empty()), ("swaps", swaps.is_empty())] {
            if is_empty {
                return Err(fault(name, ValueError::new("must have at least one entry")));
            }
        }
        let consent = parse_consent(&self.consent).map_err(|error| fault("consent", error))?;
        let edge_key = self.edge_key.as_deref().map(Secret::parse).transpose();
        let edge_key = edge_key.map_err(|error| fault("edge_key", ValueError::new(error)))?;
        let leases_per_minute = limits::LEASES_PER_MINUTE
            .check(self.leases_per_minute)
            .map_err(|error| fault("leases_per_minute", error))?;
        Ok(Site { key, origins, swaps, params, consent, edge_key, leases_per_minute })
    }
}

/// Checks the length of a list, and each of its entries.
fn each<T, U>(
    field: &str,
    entries: &[T],
    check: impl Fn(&T) -> Result<U, ValueError>,
) -> Result<Vec<U>, SiteFault> {
    if entries.len() > ENTRIES_MAX {
        let error = ValueError::new(format!("must have at most {ENTRIES_MAX} entries"));
        return Err(SiteFault { field: field.to_owned(), error });
    }
    let check = |(place, entry)| {
        check(entry).map_err(|error| SiteFault { field: format!("{field}[{place}]"), error })
    };
    entries.iter().enumerate().map(check).collect()
}

impl Site {
    /// The interval at which a visible page sends keep-alives.
    pub const BEAT: Millis = Millis(60_000);

    /// The pools whose lifetime is at most a page's keep-alive interval. A visitor's number from
    /// such a pool may change while the page is open. `lifetime` returns a pool's lifetime.
    pub fn short_lived(&self, lifetime: impl Fn(PoolId) -> Option<Millis>) -> Vec<PoolId> {
        let is_short = |pool: &PoolId| lifetime(*pool).is_some_and(|time| time <= Self::BEAT);
        self.swaps.iter().map(|swap| swap.pool).filter(is_short).collect()
    }

    /// The site as text, including its `edge_key`, which is a secret.
    #[must_use]
    pub fn to_text(&self) -> SiteText {
        let swap = |swap: &Swap| SwapText { number: swap.number.clone(), ring_pool: swap.pool.0 };
        SiteText {
            key: self.key.clone(),
            origins: self.origins.iter().map(ToString::to_string).collect(),
            swaps: self.swaps.iter().map(swap).collect(),
            params: self.params.clone(),
            consent: self.consent.name().to_owned(),
            edge_key: self
                .edge_key
                .as_ref()
                .map(|key| String::from_utf8_lossy(key.reveal()).into_owned()),
            leases_per_minute: self.leases_per_minute,
        }
    }
}

/// The rule for remembering visitors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// Visitors are remembered from the first request on.
    #[default]
    Off,
    /// The script waits for the visitor's consent, and replaces no number before that.
    Required,
    /// No visitor is remembered: the page gets a number without a cookie and without parameters.
    Cookieless,
}

impl Consent {
    /// The rule's name in the configuration and in the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Required => "required",
            Self::Cookieless => "cookieless",
        }
    }
}

/// An origin such as `https://shop.example`, or `https://*.shop.example` for every host name with
/// exactly one label before `.shop.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOrigin {
    /// The text up to the `*`, or the whole text.
    before: String,
    /// The text after the `*`, beginning with a dot.
    after: Option<String>,
}

impl SiteOrigin {
    /// Whether `origin`, the value of an `Origin` header, matches this origin.
    #[must_use]
    pub fn matches(&self, origin: &str) -> bool {
        let Some(after) = &self.after else { return origin == self.before };
        let label = origin.strip_prefix(&*self.before).and_then(|rest| rest.strip_suffix(&**after));
        label.is_some_and(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    }
}

impl fmt::Display for SiteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        self.after.as_ref().map_or(Ok(()), |after| write!(f, "*{after}"))
    }
}

/// The maximum length of an origin: at most 253 bytes for the DNS name, plus scheme and port.
const ORIGIN_BYTES_MAX: usize = 270;

impl std::str::FromStr for SiteOrigin {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let fault = || {
            ValueError::new("must be a scheme and a host in lower case, without a path")
                .hint("write e.g. \"https://shop.example\" or \"https://*.shop.example\"")
        };
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = host.ok_or_else(fault)?;
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]".contains(&b);
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(fault());
        }
        if text.len() > ORIGIN_BYTES_MAX {
            return Err(ValueError::new(format!("must have at most {ORIGIN_BYTES_MAX} bytes")));
        }
        Ok(match text.split_once('*') {
            Some((before, after)) => {
                Self { before: before.to_owned(), after: Some(after.to_owned()) }
            }
            None => Self { before: text.to_owned(), after: None },
        })
    }
}

pub(super) fn read(mut section: Section<'_, '_>, sites: &mut Vec<Site>) {
    let hint = "write e.g. key = \"pk_shop\"";
    let key = section.require("key", hint, text(parse_site_key));
    let origins = section.take_list("origins", text(str::parse));
    section.miss("origins", "write e.g. [\"https://shop.example\"]");
    let tables = section.sections("swap");
    section.miss("swap", "add a table [[site.swap]] with number and ring_pool");
    let swaps: Vec<Option<Swap>> = tables.into_iter().map(read_swap).collect();
    let swaps = swaps.into_iter().collect::<Option<Vec<_>>>();
    if let Some(Err((_, error))) = swaps.as_deref().map(check_twice) {
        section.fault("swap", error);
    }
    let new_param = |name: &str| {
        check_reserved(name)?;
        parse_param(name)
    };
    let params = section.take_list("params", text(new_param)).unwrap_or_default();
    let consent = section.take("consent", text(parse_consent)).unwrap_or_default();
    let edge_key =
        section.take("edge_key", text(|key| Secret::parse(key).map_err(ValueError::new)));
    let mut leases_per_minute = LEASES_PER_MINUTE;
    section.set(&mut leases_per_minute, "leases_per_minute", whole(&limits::LEASES_PER_MINUTE));
    let is_known = key.as_ref().is_some_and(|key| sites.iter().any(|site| site.key == *key));
    if is_known {
        section.fault("key", ValueError::new("is already used by another site"));
    }
    section.finish();
    if let (Some(key), Some(origins), Some(swaps)) = (key, origins, swaps) {
        sites.push(Site { key, origins, swaps, params, consent, edge_key, leases_per_minute });
    }
}

fn read_swap(mut section: Section<'_, '_>) -> Option<Swap> {
    let hint = "write the telephone number that is on the page, e.g. \"+18005550100\"";
    let number = section.require("number", hint, text(parse_swap_number));
    let pool = section.require("ring_pool", "write the pool's id, e.g. 16", pool_id);
    section.finish();
    Some(Swap { number: number?, pool: pool? })
}

fn parse_site_key(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    let name = text.strip_prefix("pk_").unwrap_or_default();
    if (4..=60).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be pk_ followed by 4 to 60 letters, digits, _ and -")
        .hint("write e.g. \"pk_shop\": the key is part of the page and is not secret"))
}

fn parse_swap_number(text: &str) -> Result<String, ValueError> {
    let digits = text.strip_prefix('+').unwrap_or_default();
    let is_plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_plain && PromoNumber::parse(text).is_ok() {
        return Ok(text.to_owned());
    }
    let message = "must be a + followed by the country code and the number, without punctuation";
    Err(ValueError::new(message).hint("write e.g. \"+18005550100\""))
}

fn parse_param(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be 1 to 64 letters, digits, _ and -"))
}

/// Whether the server itself sets the allocation parameter `name`, so that no page may send it.
#[must_use]
pub fn is_reserved_param(name: &str) -> bool {
    let begins = name.get(..9).is_some_and(|begin| begin.eq_ignore_ascii_case("ringwell_"));
    let ours = ["ring_pool_key", "landing", "referrer"];
    begins || ours.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

fn check_reserved(name: &str) -> Result<(), ValueError> {
    if is_reserved_param(name) {
        return Err(ValueError::new(format!("{name} is reserved: the server sets it"))
            .hint("rename the page's parameter"));
    }
    Ok(())
}

/// Checks that no number on a page is swapped twice. The error contains the index of the first
/// duplicate.
fn check_twice(swaps: &[Swap]) -> Result<(), (usize, ValueError)> {
    for (place, swap) in swaps.iter().enumerate() {
        if swaps[..place].iter().any(|other| other.number == swap.number) {
            let number = &swap.number;
            let error = format!("{number} is swapped twice: a number can have only one ring pool");
            return Err((place, ValueError::new(error)));
        }
    }
    Ok(())
}

fn parse_consent(text: &str) -> Result<Consent, ValueError> {
    let all = [Consent::Off, Consent::Required, Consent::Cookieless];
    all.into_iter()
        .find(|consent| consent.name() == text)
        .ok_or_else(|| ValueError::new("must be \"off\", \"required\" or \"cookieless\""))
}

#[cfg(test)]
mod tests;
