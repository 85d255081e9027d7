//! Layouts of calls and conversions: the columns that each importing system expects.
//!
//! Owns the layouts. The CSV columns are an interface, so new columns are added at the end. Pure.
//! Sources: docs/spec/calls.md, "Exports"; each advertising system's public help pages.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ringwell_calls::digest::sha256_hex;
use serde_json::{Value, json};

/// The type of a column, for exports with types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Moment,
    Whole,
    Truth,
    Fraction,
}

/// Parameters that have a column of their own.
const PARAMETERS: [&str; 10] = [
    "gclid",
    "gbraid",
    "wbraid",
    "msclkid",
    "fbclid",
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_term",
    "utm_content",
];
/// The call columns that precede the parameter columns: each column's name, the location of its
/// value in the API's answer, and its type.
const COLUMNS: [(&str, &str, Kind); 21] = [
    ("id", "/id", Kind::Text),
    ("account", "/account", Kind::Text),
    ("provider", "/provider", Kind::Text),
    ("provider_call_id", "/provider_call_id", Kind::Text),
    ("started_at", "/started_at", Kind::Moment),
    ("answered_at", "/answered_at", Kind::Moment),
    ("ended_at", "/ended_at", Kind::Moment),
    ("state", "/state", Kind::Text),
    ("outcome", "/outcome", Kind::Text),
    ("ring_seconds", "/ring_seconds", Kind::Whole),
    ("talk_seconds", "/talk_seconds", Kind::Whole),
    ("to", "/to", Kind::Text),
    ("from", "/from", Kind::Text),
    ("first_time_caller", "/first_time_caller", Kind::Truth),
    ("destination", "/destination", Kind::Text),
    ("pool_id", "/pool/id", Kind::Whole),
    ("pool_name", "/pool/name", Kind::Text),
    ("attribution", "/attribution/outcome", Kind::Text),
    ("allocated_at", "/attribution/allocated_at", Kind::Moment),
    ("late", "/attribution/late", Kind::Truth),
    ("confidence", "/attribution/confidence/value", Kind::Fraction),
];

/// The call columns that follow the parameter columns.
const LATER: [(&str, &str, Kind); 2] =
    [("blocked", "/blocked", Kind::Text), ("robocall_score", "/robocall/score", Kind::Whole)];

/// One conversion: a result of a call, or the call itself.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    /// The conversion's name in the advertising system.
    pub(crate) name: String,
    /// The time of the conversion, in RFC 3339 format.
    pub(crate) at: String,
    pub(crate) value: Option<String>,
    pub(crate) currency: Option<String>,
    /// The conversion's id, which is identical in every export.
    pub(crate) id: String,
    /// The call, as the API returns it.
    pub(crate) call: Value,
}

/// A layout of conversions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// Google Ads: conversions from clicks.
    GoogleClicks,
    /// Google Ads: conversions from calls.
    GoogleCalls,
    /// Microsoft Advertising: a bulk file of offline conversions.
    Microsoft,
    /// Meta: the parameters of the Conversions API.
    Meta,
}

/// Returns the columns of a list of calls, each with its name and type.
pub(crate) fn call_columns() -> impl Iterator<Item = (&'static str, Kind)> {
    let typed = |(name, _, kind): (&'static str, &'static str, Kind)| (name, kind);
    let parameters = PARAMETERS.into_iter().chain(["parameters"]).map(|name| (name, Kind::Text));
    COLUMNS.into_iter().map(typed).chain(parameters).chain(LATER.into_iter().map(typed))
}

/// Returns the header line of a list of calls.
pub(crate) fn call_header() -> Vec<&'static str> {
    call_columns().map(|(name, _)| name).collect()
}

/// Formats a call as the fields of one line. Unless `is_raw`, fields that look like formulas are
/// escaped, and control characters are replaced.
pub(crate) fn call_line(call: &Value, is_raw: bool) -> Vec<String> {
    let mut line: Vec<String> = COLUMNS
        .iter()
        .map(|(name, path, _)| match *name {
            "from" => caller(call),
            _ => text(call.pointer(path)),
        })
        .collect();
    let parameters = &call["attribution"]["parameters"];
    line.extend(PARAMETERS.iter().map(|name| text(parameters.get(name))));
    line.push(parameters.as_object().map_or_else(String::new, |_| parameters.to_string()));
    line.extend(LATER.iter().map(|(_, path, _)| text(call.pointer(path))));
    if is_raw { line } else { line.into_iter().map(harmless).collect() }
}

impl Upload {
    /// Returns the lines that precede the first conversion.
    pub(crate) fn header(self) -> Vec<Vec<&'static str>> {
        match self {
            Self::GoogleClicks => vec![vec![
                "Google Click ID",
                "Conversion Name",
                "Conversion Time",
                "Conversion Value",
                "Conversion Currency",
            ]],
            Self::GoogleCalls => vec![vec![
                "Caller's Phone Number",
                "Call Start Time",
                "Conversion Name",
                "Conversion Time",
                "Conversion Value",
                "Conversion Currency",
            ]],
            Self::Microsoft => {
                let header = vec![
                    "Type",
                    "Status",
                    "Id",
                    "Parent Id",
                    "Client Id",
                    "Name",
                    "Conversion Currency Code",
                    "Conversion Name",
                    "Conversion Time",
                    "Conversion Value",
                    "Microsoft Click Id",
                ];
                let mut version = vec![""; header.len()];
                (version[0], version[5]) = ("Format Version", "6.0");
                vec![header, version]
            }
            Self::Meta => vec![vec![
                "event_name",
                "event_time",
                "action_source",
                "event_id",
                "ph",
                "fbc",
                "value",
                "currency",
                "order_id",
            ]],
        }
    }

    /// Formats a conversion as a line. Returns `None` if the call lacks the click id or caller's
    /// number that the advertising system needs to match the conversion.
    pub(crate) fn line(self, conversion: &Conversion) -> Option<Vec<String>> {
        let Conversion { name, at, value, currency, id, call } = conversion;
        let (value, currency) = (value.clone().unwrap_or_default(), currency.clone());
        let currency = currency.unwrap_or_default();
        let time: Timestamp = at.parse().ok()?;
        let number = call["from"]["e164"].as_str();
        Some(match self {
            Self::GoogleClicks => {
                let time = with_offset(time);
                vec![click_id(call, "gclid")?.to_owned(), name.clone(), time, value, currency]
            }
            Self::GoogleCalls => {
                let began: Timestamp = call["started_at"].as_str()?.parse().ok()?;
                let times = [with_offset(began), with_offset(time)];
                let [began, time] = times;
                vec![number?.to_owned(), began, name.clone(), time, value, currency]
            }
            Self::Microsoft => {
                let time = time.to_zoned(TimeZone::UTC).strftime("%-m/%-d/%Y %-I:%M:%S %p");
                let click = click_id(call, "msclkid")?.to_owned();
                let kind = "Offline Conversion".to_owned();
                let none = String::new;
                let head = [kind, none(), none(), none(), none(), none()];
                let tail = [currency, name.clone(), time.to_string(), value, click];
                head.into_iter().chain(tail).collect()
            }
            Self::Meta => {
                let shown = call["attribution"]["allocated_at"].as_str();
                let shown: Option<Timestamp> = shown.and_then(|at| at.parse().ok());
                let click = click_id(call, "fbclid").zip(shown);
                let click = click.map(|(id, at)| format!("fb.1.{}.{id}", at.as_millisecond()));
                // Meta's documentation requires a hash of the digits, including the country code.
                let hash = number.map(|it| sha256_hex(it.trim_start_matches('+').as_bytes()));
                if click.is_none() && hash.is_none() {
                    return None;
                }
                let (hash, click) = (hash.unwrap_or_default(), click.unwrap_or_default());
                let time = time.as_second().to_string();
                let source = "phone_call".to_owned();
                vec![
                    name.clone(),
                    time,
                    source,
                    id.clone(),
                    hash,
                    click,
                    value,
                    currency,
                    id.clone(),
                ]
            }
        })
    }
}

impl Conversion {
    /// Reads one entry of the answer to `GET /v1/outcomes`.
    pub(crate) fn of_outcome(outcome: &Value) -> Option<Self> {
        let field = |name: &str| outcome[name].as_str().map(str::to_owned);
        let call = outcome["call"].clone();
        Some(Self {
            name: field("type")?,
            at: field("at")?,
            value: field("value"),
            currency: field("currency"),
            id: format!("{}-{}", call["id"].as_str()?, field("external_id")?),
            call,
        })
    }

    /// Creates a conversion from the call itself. Returns `None` if the call was not answered. If
    /// no report contains the time at which the call was answered, the conversion has the call's
    /// start time.
    pub(crate) fn of_call(call: &Value, name: &str) -> Option<Self> {
        let started = call["started_at"].as_str().filter(|_| call["outcome"] == "answered");
        let at = call["answered_at"].as_str().or(started)?.to_owned();
        let (name, id) = (name.to_owned(), call["id"].as_str()?.to_owned());
        Some(Self { name, at, value: None, currency: None, id, call: call.clone() })
    }
}

/// Returns the calling visitor's click id `name` if it is well-formed. The click id must be
/// checked, because visitors control their parameters.
fn click_id<'a>(call: &'a Value, name: &str) -> Option<&'a str> {
    let id = call["attribution"]["parameters"][name].as_str()?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (!id.is_empty() && id.len() <= 512 && id.bytes().all(is_plain)).then_some(id)
}

/// Formats a time like `2026-11-21 06:30:00+00:00`.
fn with_offset(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S+00:00").to_string()
}

fn caller(call: &Value) -> String {
    let from = &call["from"];
    let known = ["e164", "sip", "masked"].iter().find_map(|kind| from[kind].as_str());
    let hash = from["hash"].as_str().map(|hash| format!("hash:{hash}"));
    known.map(str::to_owned).or(hash).unwrap_or_default()
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// Puts `'` before text that spreadsheets read as a formula, and replaces control characters with
/// spaces. Each record is then one line of plain text. Leaves telephone numbers unchanged.
fn harmless(field: String) -> String {
    let is_number = field.strip_prefix('+').is_some_and(|digits| {
        (3..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
    });
    let is_first = |c: char| matches!(c, '=' | '+' | '-' | '@') || c.is_control();
    if field.starts_with(is_first) && !is_number {
        return format!("'{}", field.replace(char::is_control, " "));
    }
    if field.contains(char::is_control) { field.replace(char::is_control, " ") } else { field }
}

/// Formats a call as one line of JSON.
pub(crate) fn json_line(call: &Value) -> String {
    let mut line = json!(call).to_string();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests;
