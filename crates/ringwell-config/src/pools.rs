//! The ring pools of the configuration file.
//!
//! Owns the fields of `[[ring_pool]]`, and each pool's position in the file, so that conflicts
//! between pools can be reported with a line. Independent of CSV files, whose pools are added to
//! the same list.

use std::sync::Arc;

use ringwell_core::{Millis, NumberRange, PoolId, PromoNumber};
use ringwell_directory::{Clash, Fault, PoolFault, PoolFields, RingPool, RingPoolKey, Tracking};
use toml::de::DeValue;

use super::fields::{text, truth};
use super::section::{Section, wrong_type};
use super::values::{ValueError, parse_lifetime, parse_number, parse_range, parse_seconds};

/// The pools without a fault, and their positions in the configuration file or the CSV file.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) pools: Vec<RingPool>,
    pub(super) places: Vec<PoolLines>,
}

/// The position of a pool in the configuration file or the CSV file.
#[derive(Debug)]
pub(super) struct PoolLines {
    pub(super) file: Arc<str>,
    /// The name of the pool's table, such as `ring_pool[2]`; empty for a pool from a CSV file.
    pub(super) path: String,
    pub(super) id_line: u32,
    pub(super) numbers_line: u32,
    pub(super) overflow_line: u32,
}

impl Found {
    /// Converts a clash between pools to a fault with a file and a line.
    pub(super) fn fault(&self, clash: Clash) -> Option<Fault> {
        let place = self.places.get(clash.pool)?;
        let line = match clash.field {
            "numbers" => place.numbers_line,
            "overflow_number" => place.overflow_line,
            _ => place.id_line,
        };
        let dot = if place.path.is_empty() { "" } else { "." };
        Some(Fault {
            file: Some(place.file.to_string()),
            line: Some(line),
            column: None,
            field: format!("{}{dot}{}", place.path, clash.field),
            message: clash.message,
            hint: Some(clash.hint.to_owned()),
        })
    }
}

/// Reads one pool's table.
pub(super) fn read(mut section: Section<'_, '_>, file: &Arc<str>, found: &mut Found) {
    let given = fields(&mut section);
    let report = |faults: Vec<PoolFault>| {
        for fault in faults {
            let (field, error) = describe(fault, section.has("lifetime_seconds"));
            section.fault(field, error);
        }
    };
    let pool = given.pool().map_err(report).ok().flatten();
    if let Some(pool) = pool {
        found.pools.push(pool);
        found.places.push(PoolLines {
            file: Arc::clone(file),
            path: section.full_name("").trim_end_matches('.').to_owned(),
            id_line: section.line_of("id"),
            numbers_line: section.line_of("numbers"),
            overflow_line: section.line_of("overflow_number"),
        });
    }
    section.finish();
}

/// The fields of a pool that were read but not yet checked against each other.
pub(super) struct GivenFields {
    pub(super) id: Option<PoolId>,
    pub(super) name: Option<String>,
    pub(super) key: Option<RingPoolKey>,
    pub(super) next_key: Option<RingPoolKey>,
    pub(super) lifetime: Option<Millis>,
    pub(super) numbers: Option<Vec<NumberRange>>,
    pub(super) overflow: Option<PromoNumber>,
    pub(super) tracking: Option<Arc<Tracking>>,
}

impl GivenFields {
    /// Builds the pool; returns `None` if a required field could not be read. The other fields are
    /// checked even then, with a placeholder in place of the missing field.
    ///
    /// # Errors
    /// Every rule that the fields break.
    pub(super) fn pool(self) -> Result<Option<RingPool>, Vec<PoolFault>> {
        let Self { id, name, key, next_key, lifetime, numbers, overflow, tracking } = self;
        let has_numbers = numbers.is_some();
        let is_whole = id.is_some() && key.is_some() && lifetime.is_some() && has_numbers;
        let Some(key) = key.or_else(|| RingPoolKey::parse("no-key-was-given").ok()) else {
            return Ok(None);
        };
        let fields = PoolFields {
            id: id.unwrap_or(PoolId(0)),
            name,
            key,
            next_key,
            lifetime: lifetime.unwrap_or(RingPool::LIFETIME_MAX),
            numbers: numbers.unwrap_or_default(),
            overflow,
            tracking,
        };
        let made = if has_numbers { RingPool::new(fields) } else { RingPool::waiting(fields) };
        made.map(|pool| is_whole.then_some(pool))
    }
}

fn fields(section: &mut Section<'_, '_>) -> GivenFields {
    let id = section.require("id", "write e.g. id = 16", pool_id);
    let name = section.take("name", text(|name| Ok(name.to_owned())));
    let hint = "write 8 to 64 random characters";
    let key = section.require("ring_pool_key", hint, text(parse_key));
    let next_key = section.take("next_ring_pool_key", text(parse_key));
    let lifetime = lifetime(section);
    let numbers = numbers(section);
    let overflow = overflow(section);
    let tracking = tracking(section);
    GivenFields { id, name, key, next_key, lifetime, numbers, overflow, tracking }
}

fn lifetime(section: &mut Section<'_, '_>) -> Option<Millis> {
    let lifetime = section.take("lifetime", text(parse_lifetime));
    let seconds = section.take("lifetime_seconds", |value| match value {
        DeValue::Integer(number) => parse_seconds(number.as_str()),
        DeValue::Float(number) => parse_seconds(number.as_str()),
        other => Err(wrong_type("a number", other).hint("write e.g. 1800")),
    });
    match (section.has("lifetime"), section.has("lifetime_seconds")) {
        (true, true) => {
            let error = ValueError::new("conflicts with lifetime").hint("remove one of them");
            section.fault("lifetime_seconds", error);
        }
        (false, false) => {
            section.fault("lifetime", ValueError::new("is missing").hint("write e.g. \"30m\""));
        }
        _ => {}
    }
    lifetime.or(seconds)
}

fn numbers(section: &mut Section<'_, '_>) -> Option<Vec<NumberRange>> {
    let numbers = section.take_list("numbers", text(parse_range));
    if !section.has("numbers") {
        let hint = "write e.g. [\"8885550100-8885550149\"]";
        section.fault("numbers", ValueError::new("is missing").hint(hint));
    }
    numbers
}

/// Reads the overflow number, which is required unless overflow is forbidden.
fn overflow(section: &mut Section<'_, '_>) -> Option<PromoNumber> {
    let number = section.take("overflow_number", text(parse_number));
    let allowed = section.take("allow_overflow", truth).unwrap_or(true);
    if allowed && !section.has("overflow_number") {
        let hint = "write a number that is not in rotation, or allow_overflow = false";
        section.fault("overflow_number", ValueError::new("is missing").hint(hint));
    }
    if !allowed && section.has("overflow_number") {
        let error = ValueError::new("is set although allow_overflow is false");
        section.fault("overflow_number", error.hint("remove one of them"));
    }
    number
}

/// The fault of a URL that is given without the URL in `other`.
pub(super) fn alone(other: &str) -> ValueError {
    ValueError::new(format!("has no effect without {other}")).hint("write both, or neither")
}

fn tracking(section: &mut Section<'_, '_>) -> Option<Arc<Tracking>> {
    let url = || text(|url| Ok(url.to_owned()));
    let base_url = section.take("tracking_url", url());
    let destination_url = section.take("destination_url", url());
    for (field, other) in [("tracking_url", "destination_url"), ("destination_url", "tracking_url")]
    {
        if section.has(field) && !section.has(other) {
            section.fault(field, alone(other));
        }
    }
    Some(Arc::new(Tracking { base_url: base_url?, destination_url: destination_url? }))
}

pub(super) fn pool_id(value: &DeValue<'_>) -> Result<PoolId, ValueError> {
    let DeValue::Integer(number) = value else {
        return Err(wrong_type("a whole number", value));
    };
    let id = u64::from_str_radix(number.as_str(), number.radix());
    id.map(PoolId).map_err(|_| ValueError::new("must be a whole number from 0 to 2^63 - 1"))
}

pub(super) fn parse_key(text: &str) -> Result<RingPoolKey, ValueError> {
    RingPoolKey::parse_chosen(text).map_err(|error| {
        let fault = ValueError::new(error.to_string());
        if let Some(hint) = error.hint() { fault.hint(hint) } else { fault }
    })
}

/// The name of the field that a pool's fault concerns, and the error. `in_seconds` is true if the
/// lifetime is in the field `lifetime_seconds`.
pub(super) fn describe(fault: PoolFault, in_seconds: bool) -> (&'static str, ValueError) {
    let error = ValueError::new(fault.to_string());
    match (fault, fault.hint()) {
        (PoolFault::Lifetime, _) if in_seconds => {
            ("lifetime_seconds", error.hint("write e.g. 1800"))
        }
        (_, Some(hint)) => (fault.field(), error.hint(hint)),
        (_, None) => (fault.field(), error),
    }
}

#[cfg(test)]
mod tests;
