//! The ring pool fields that clients send, and their conversion.
//!
//! Owns defaults, conversions and error texts. A value may be a JSON value or a string with the
//! same meaning, because the published API's samples contain `"preferred":"true"`. Unknown fields
//! are ignored, as in the published API.

use ringwell_config::NumberCheck;
use ringwell_core::Millis;
use ringwell_directory::RingPool;
use ringwell_store::{PoolSettings, Scope};
use serde_json::{Map, Value};

use super::fault::Fault;
use super::nested;
use super::values::{integer, text_of, truth};
use crate::numbering;

/// The default lifetime, taken from the published API's samples. The API does not document a
/// default.
const LIFETIME: Millis = Millis(1_800_000);
const SIZE: u32 = 2;
const TEXT_BYTES_MAX: usize = 2048;

/// Members from older versions of the API, which are stored and shown as they were received.
pub(super) const OLDER: [&str; 14] = [
    "pool_type",
    "param1",
    "param2",
    "param3",
    "param4",
    "param5",
    "param6",
    "param7",
    "param8",
    "param9",
    "param10",
    "test_click_url",
    "sample_api_url",
    "is_first_preference",
];

/// The pool's settings as requested by the client.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) settings: PoolSettings,
    /// The id of a JavaScript tag (`obfuscated_tag_id`). It is stored with the destination.
    pub(super) tag: Option<String>,
}

/// Reads one field after another, and collects their errors.
struct Reader<'a> {
    body: &'a Map<String, Value>,
    check: NumberCheck,
    faults: Vec<(String, String)>,
}

/// Applies `body` to the settings `before` or, if there are none, to the settings of a new pool
/// whose `id_from_network` is `id`.
///
/// # Errors
/// [`Fault::Invalid`] with all invalid fields, or [`Fault::Nested`] if a nested object has an
/// unknown member.
pub(super) fn read(
    body: &Map<String, Value>,
    before: Option<&PoolSettings>,
    (scope, id): (&Scope, &str),
    check: NumberCheck,
) -> Result<Draft, Fault> {
    let mut reader = Reader { body, check, faults: Vec::new() };
    let mut settings = before.cloned().unwrap_or_else(|| new(scope, id));
    if body.get("id_from_network").is_some_and(|sent| text_of(sent).as_deref() != Some(id)) {
        reader.fault("id_from_network", "does not match the path");
    }
    match reader.text("name") {
        Some(name) if !name.trim().is_empty() => name.trim().clone_into(&mut settings.name),
        None if before.is_some() && !body.contains_key("name") => {}
        _ => reader.fault("name", "can't be blank"),
    }
    reader.lifetime(&mut settings.lifetime);
    let fixed = settings.allow_overflow;
    reader.flag("allow_overflow", &mut settings.allow_overflow);
    if before.is_some() && settings.allow_overflow != fixed {
        reader.fault("allow_overflow", "can't be changed");
    }
    reader.flag("preferred", &mut settings.preferred);
    reader.flag("fill_immediately", &mut settings.fill_immediately);
    let least = 1 + u32::from(settings.allow_overflow);
    reader.size(least, &mut settings.max_pool_size);
    reader.destination(&mut settings.destination);
    reader.url("tracking_url", &mut settings.tracking_url);
    reader.url("destination_url", &mut settings.destination_url);
    let tag = reader.text("obfuscated_tag_id");
    for name in OLDER {
        if let Some(value) = body.get(name) {
            settings.kept.insert(name.to_owned(), value.clone());
        }
    }
    nested::read(body, &mut settings, &mut reader.faults)?;
    if reader.faults.is_empty() {
        Ok(Draft { settings, tag })
    } else {
        Err(Fault::Invalid(reader.faults))
    }
}

fn new(scope: &Scope, id: &str) -> PoolSettings {
    PoolSettings {
        scope: scope.clone(),
        id_from_network: id.to_owned(),
        name: String::new(),
        lifetime: LIFETIME,
        max_pool_size: SIZE,
        preferred: false,
        fill_immediately: false,
        allow_overflow: true,
        destination: None,
        tracking_url: String::new(),
        destination_url: String::new(),
        kept: Map::new(),
    }
}

impl Reader<'_> {
    fn fault(&mut self, field: &str, message: &str) {
        self.faults.push((field.to_owned(), message.to_owned()));
    }

    /// Reads a required text. A JSON number is converted to its digits.
    fn text(&mut self, field: &str) -> Option<String> {
        let value = self.body.get(field).filter(|value| !value.is_null())?;
        match text_of(value) {
            Some(text) if text.len() <= TEXT_BYTES_MAX => Some(text),
            Some(_) => {
                self.fault(field, "is too long (maximum is 2048 bytes)");
                None
            }
            None => {
                self.fault(field, "is not a text");
                None
            }
        }
    }

    fn flag(&mut self, field: &str, into: &mut bool) {
        let Some(value) = self.body.get(field).filter(|value| !value.is_null()) else { return };
        match truth(value) {
            Some(flag) => *into = flag,
            None => self.fault(field, "is not true or false"),
        }
    }

    fn lifetime(&mut self, into: &mut Millis) {
        let Some(value) = self.body.get("lifetime_seconds") else { return };
        let longest = RingPool::LIFETIME_MAX.0 / 1000;
        match integer(value) {
            Some(seconds) if seconds > longest => {
                self.fault("lifetime_seconds", "must be less than or equal to 34560000");
            }
            Some(0) => self.fault("lifetime_seconds", "must be greater than 0"),
            Some(seconds) => *into = Millis(seconds * 1000),
            None => self.fault("lifetime_seconds", "is not a number"),
        }
    }

    fn size(&mut self, least: u32, into: &mut u32) {
        if let Some(value) = self.body.get("max_pool_size") {
            match integer(value).map(u32::try_from) {
                Some(size) => *into = size.unwrap_or(u32::MAX),
                None => return self.fault("max_pool_size", "is not a number"),
            }
        }
        if *into < least {
            let message = format!("must be greater than or equal to {least}");
            self.fault("max_pool_size", &message);
        }
        if u64::from(*into) > RingPool::NUMBERS_MAX {
            let message = format!("must be less than or equal to {}", RingPool::NUMBERS_MAX);
            self.fault("max_pool_size", &message);
        }
    }

    fn destination(&mut self, into: &mut Option<String>) {
        let Some(text) = self.text("destination_phone_number") else { return };
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        let plain = |c: char| c.is_ascii_digit() || "+-.() ".contains(c);
        // An E.164 number has at most 15 digits. Every country's numbers have at least 7 digits,
        // including the country code.
        let plus = if text.starts_with('+') { "+" } else { "" };
        let number = format!("{plus}{digits}");
        let is_known = || self.check == NumberCheck::Possible || numbering::is_valid(&number);
        if text.chars().all(plain) && (7..=15).contains(&digits.len()) && is_known() {
            *into = Some(number);
        } else {
            self.fault("destination_phone_number", "is not a telephone number");
        }
    }

    fn url(&mut self, field: &str, into: &mut String) {
        let Some(text) = self.text(field) else { return };
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        if text.is_empty() || is_url {
            *into = text;
        } else {
            self.fault(field, "is not a URL");
        }
    }
}
