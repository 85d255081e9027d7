//! `[[site]]`: web sites whose pages may show visitors numbers of their own.
//!
//! A site's key stands in its pages, so it is no secret: what it opens is bounded by the origins
//! that may use it and by the limits of each address and visitor. Source: docs/spec/site.md.

use ringwell_core::PoolId;

use super::file::{text, whole};
use super::limits;
use super::pools::pool_id;
use super::section::Section;
use super::values::ValueError;
use crate::Secret;

/// A web site: which numbers on its pages are swapped, and for which pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Stands in the page: `pk_` and 4 to 60 letters, digits, `_` and `-`.
    pub key: String,
    /// The origins whose pages may ask.
    pub origins: Vec<SiteOrigin>,
    /// Which number on the page becomes one of which pool.
    pub swaps: Vec<Swap>,
    /// Parameters that are stored beside those of advertisements: none.
    pub params: Vec<String>,
    /// When a visitor may be remembered: [`Consent::Off`].
    pub consent: Consent,
    /// What servers that swap numbers themselves must send; without it none may.
    pub edge_key: Option<Secret>,
    /// New numbers that visitors from one address (/24, or /56 of IPv6) may take in a minute: 60.
    pub leases_per_minute: u32,
}

/// A number of the page, and the ring pool whose numbers replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// As pages mean it: `+1` and ten digits.
    pub number: String,
    /// Where the visitor's number comes from.
    pub pool: PoolId,
}

/// When a visitor may be remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// From the first request on.
    #[default]
    Off,
    /// Not before the visitor has agreed: no number before that either.
    Required,
    /// Never: a number for the page, without cookie and parameters.
    Cookieless,
}

impl Consent {
    /// As the configuration and the page call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Required => "required",
            Self::Cookieless => "cookieless",
        }
    }
}

/// `https://shop.example`, or `https://*.shop.example` for every name one label longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOrigin {
    /// Up to the `*`, or the whole.
    before: String,
    /// From the dot behind the `*` on.
    after: Option<String>,
}

impl SiteOrigin {
    /// Whether a page's `Origin` is this one.
    #[must_use]
    pub fn matches(&self, origin: &str) -> bool {
        let Some(after) = &self.after else { return origin == self.before };
        let label = origin.strip_prefix(&*self.before).and_then(|rest| rest.strip_suffix(&**after));
        label.is_some_and(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    }
}

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
    let params = section.take_list("params", text(parse_param)).unwrap_or_default();
    let consent = section.take("consent", text(parse_consent)).unwrap_or_default();
    let edge_key =
        section.take("edge_key", text(|key| Secret::parse(key).map_err(ValueError::new)));
    let mut leases_per_minute = 60;
    section.set(&mut leases_per_minute, "leases_per_minute", whole(&limits::LEASES_PER_MINUTE));
    let is_known = key.as_ref().is_some_and(|key| sites.iter().any(|site| site.key == *key));
    if is_known {
        section.fault("key", ValueError::new("is another site's too"));
    }
    section.finish();
    let swaps = swaps.into_iter().collect::<Option<Vec<_>>>();
    if let (Some(key), Some(origins), Some(swaps)) = (key, origins, swaps) {
        sites.push(Site { key, origins, swaps, params, consent, edge_key, leases_per_minute });
    }
}

fn read_swap(mut section: Section<'_, '_>) -> Option<Swap> {
    let hint = "write the number of the page, e.g. \"+18005550100\"";
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
    Err(ValueError::new("must be pk_ and 4 to 60 letters, digits, _ and -")
        .hint("write e.g. \"pk_shop\": it stands in the page and is no secret"))
}

fn parse_swap_number(text: &str) -> Result<String, ValueError> {
    let digits = text.strip_prefix("+1").unwrap_or_default();
    if ringwell_core::PromoNumber::parse(digits).is_ok() {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be +1 and ten digits").hint("write e.g. \"+18005550100\""))
}

fn parse_param(text: &str) -> Result<String, ValueError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new("must be 1 to 64 letters, digits, _ and -"))
}

fn parse_consent(text: &str) -> Result<Consent, ValueError> {
    let all = [Consent::Off, Consent::Required, Consent::Cookieless];
    all.into_iter()
        .find(|consent| consent.name() == text)
        .ok_or_else(|| ValueError::new("must be \"off\", \"required\" or \"cookieless\""))
}

#[cfg(test)]
mod tests;
