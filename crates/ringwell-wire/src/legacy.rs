//! The single allocation: `GET /api/<date>/ring_pools/<id>/allocate_number.{json,xml,csv}`.
//!
//! Its answers have no mark for an overflow number: the call succeeds with it. Errors are XML, or
//! plain text for the other two formats.

use percent_encoding::percent_decode;

use crate::ask::{self, Ask};
use crate::error_class::{InputFault, RowError};
use crate::response::{Tracking, formatted, json_string};
use crate::span::Span;
use ringwell_core::PromoNumber;

/// How to answer a single allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.xml`
    Xml,
    /// `.csv`
    Csv,
}

impl Format {
    pub(crate) fn of_extension(extension: &str) -> Option<Self> {
        match extension {
            "json" => Some(Self::Json),
            "xml" => Some(Self::Xml),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }

    /// The media type of a number.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
            Self::Csv => "text/csv",
        }
    }

    /// The media type of an error.
    #[must_use]
    pub const fn error_content_type(self) -> &'static str {
        match self {
            Self::Xml => "application/xml",
            Self::Json | Self::Csv => "text/plain; charset=utf-8",
        }
    }

    /// A number.
    #[must_use]
    pub fn number(self, number: PromoNumber, tracking: Option<Tracking<'_>>) -> Vec<u8> {
        let (formatted, url) =
            (formatted(number), tracking.map(|t| t.url(number)).unwrap_or_default());
        match self {
            Self::Json => {
                let mut out =
                    format!("{{\"promo_number_formatted\":\"{formatted}\",\"tracking_url\":")
                        .into_bytes();
                json_string(&mut out, url.as_bytes());
                out.extend_from_slice(format!(",\"promo_number\":\"{number}\"}}").as_bytes());
                out
            }
            Self::Xml => format!(
                "{XML}<Response><PromoNumberFormatted>{formatted}</PromoNumberFormatted>\
                 <PromoNumber>{number}</PromoNumber><TrackingUrl>{}</TrackingUrl></Response>\n",
                xml_text(&url)
            )
            .into_bytes(),
            // The URL is escaped: it has no comma and no quote.
            Self::Csv => format!(
                "PromoNumberFormatted,PromoNumber,TrackingUrl\n{formatted},{number},{url}\n"
            )
            .into_bytes(),
        }
    }

    /// An error. `text` is what its spans point into.
    #[must_use]
    pub fn error(self, error: &RowError, text: &[u8]) -> Vec<u8> {
        let (class, message) = (error.class(), error.message(text));
        match self {
            Self::Xml => format!(
                "{XML}<Error><Class>{class}</Class><Message>{}</Message></Error>\n",
                xml_text(&message)
            )
            .into_bytes(),
            Self::Json | Self::Csv => format!("{class}: {message}\n").into_bytes(),
        }
    }
}

const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A single allocation and the text that its spans point into.
#[derive(Clone, Debug)]
pub struct Single {
    /// Pool and query.
    pub text: Vec<u8>,
    /// What it asks for.
    pub ask: Result<Ask, RowError>,
}

/// Reads pool and query of a single allocation.
#[must_use]
pub fn parse(pool: &str, query: &str, strict_params: bool) -> Single {
    let mut text = [pool, query].concat().into_bytes();
    let pool_text = Span::new(0, pool.len());
    let ask = match ask::parse_pool(pool.as_bytes()) {
        Some((id, digits)) if digits == pool.len() => {
            let query = Span::new(pool.len(), text.len());
            let mut ask = ask::parse_query(&text, query, id, pool_text);
            ask.visitor = ask::find_visitor(&text, ask.params);
            ask.key = decoded(ask.key, &mut text);
            if strict_params && ask.params.iter().all(|part| part.is_empty()) {
                Err(RowError::InvalidInput(InputFault::NoParameter))
            } else {
                Ok(ask)
            }
        }
        _ => Err(RowError::InvalidKey { key: Span::EMPTY, pool: pool_text }),
    };
    Single { text, ask }
}

fn decoded(key: Span, text: &mut Vec<u8>) -> Span {
    let decoded: Vec<u8> = percent_decode(key.of(text)).collect();
    if decoded == key.of(text) {
        return key;
    }
    let start = text.len();
    text.extend_from_slice(&decoded);
    Span::new(start, text.len())
}

fn xml_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // XML 1.0 has no such characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
