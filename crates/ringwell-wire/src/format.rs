//! The formats of the answer to a single allocation.

use ringwell_core::PromoNumber;

use crate::error_class::RowError;
use crate::json::json_string;
use crate::national::formatted;
use crate::response::Tracking;

/// The format of the answer to a single allocation.
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
    /// Extensions are accepted in upper and lower case, because some clients send capitals.
    pub(crate) fn of_extension(extension: &[u8]) -> Option<Self> {
        let named: [(&[u8], _); 3] =
            [(b"json", Self::Json), (b"xml", Self::Xml), (b"csv", Self::Csv)];
        named.into_iter().find_map(|(name, it)| extension.eq_ignore_ascii_case(name).then_some(it))
    }

    /// The media type of an answer with a number.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
            Self::Csv => "text/csv",
        }
    }

    /// The media type of an answer with an error.
    #[must_use]
    pub const fn error_content_type(self) -> &'static str {
        match self {
            Self::Xml => "application/xml",
            Self::Json | Self::Csv => "text/plain; charset=utf-8",
        }
    }

    /// Writes a number.
    #[must_use]
    pub fn number(self, number: PromoNumber, tracking: Option<Tracking<'_>>) -> Vec<u8> {
        let (formatted, url) =
            (formatted(number), tracking.map(|t| t.url(number)).unwrap_or_default());
        match self {
            Self::Json => {
                let mut out =
                    format!("{{\"promo_number_formatted\":\"{formatted}\",\"tracking_url\":")
                        .into_bytes();
                json_string(&mut out, &url);
                out.extend_from_slice(format!(",\"promo_number\":\"{number}\"}}").as_bytes());
                out
            }
            Self::Xml => format!(
                "{XML}<Response><PromoNumberFormatted>{formatted}</PromoNumberFormatted>\
                 <PromoNumber>{number}</PromoNumber><TrackingUrl>{}</TrackingUrl></Response>\n",
                xml_text(&url)
            )
            .into_bytes(),
            Self::Csv => format!(
                "PromoNumberFormatted,PromoNumber,TrackingUrl\n{formatted},{number},{}\n",
                csv_text(url)
            )
            .into_bytes(),
        }
    }

    /// Writes an error. The spans in the error refer to `text`.
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

fn xml_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // XML 1.0 does not allow these characters.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Quotes a tracking URL if CSV requires it. Only the beginning of the URL, which is the pool's
/// `tracking_url`, can contain a comma or a quote, because the rest is escaped.
fn csv_text(text: String) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
