//! Validates and formats telephone numbers according to libphonenumber's data.
//!
//! Used when numbers are entered or shown, but never when a number is handed out. Numbers without a
//! `+` have country code 1. Source: docs/spec/directory.md, "Accepted numbers".

use phonenumber::{Mode, PhoneNumber, country};
use ringwell_config::{Inventory, NumberCheck};
use ringwell_core::{NumberRange, PromoNumber};
use ringwell_store::{Change, StoreError};

/// The size of a block of consecutive numbers. Only one number in each block is checked. In
/// libphonenumber's data, either all numbers in a block are valid or none are; a test verifies
/// this.
const BLOCK: u64 = 1000;

/// A number in its usual written forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The number in international form.
    pub(crate) e164: String,
    /// The number in national form.
    pub(crate) national: String,
    /// The two-letter country code, if the number is valid in any country.
    pub(crate) country: Option<String>,
}

/// Whether `text` is a valid number. Without a `+`, its country code is 1.
pub(crate) fn is_valid(text: &str) -> bool {
    parse(text).is_some_and(|number| number.is_valid())
}

/// The written form of `number`.
pub(crate) fn written(number: PromoNumber) -> Written {
    let plain = || Written {
        e164: format!("+{}", number.to_e164()),
        national: number.to_string(),
        country: None,
    };
    let Some(parsed) = parse(&number.to_string()) else { return plain() };
    Written {
        national: parsed.format().mode(Mode::National).to_string(),
        country: parsed.country().id().map(|id| id.as_ref().to_owned()),
        ..plain()
    }
}

/// Describes the first invalid number in `ranges`. Invalid numbers that the directory already
/// contains are accepted, so that numbers from a configuration file can be added again.
///
/// # Errors
/// [`StoreError::Database`].
pub(crate) async fn refused(
    change: &mut Change,
    inventory: &Inventory,
    ranges: &[NumberRange],
) -> Result<Option<String>, StoreError> {
    if inventory.check_numbers == NumberCheck::Possible {
        return Ok(None);
    }
    let bad: Vec<_> = ranges.iter().flat_map(|range| invalid(*range)).collect();
    let first = change.unknown(&bad).await?.first().map(|range| range.first());
    Ok(first.map(|number| {
        format!(
            "{number} is not a valid number according to libphonenumber: to accept test numbers, \
                set check_numbers = \"possible\" under [inventory]"
        )
    }))
}

/// The parts of `range` that are not valid numbers.
fn invalid(range: NumberRange) -> Vec<NumberRange> {
    let mut bad = Vec::new();
    let mut next = range.first().to_e164();
    while next <= range.last().to_e164() {
        let end = (next / BLOCK * BLOCK + BLOCK - 1).min(range.last().to_e164());
        let first = PromoNumber::from_e164(next);
        if let Some(first) = first.filter(|number| !is_valid(&number.to_string())) {
            let count = u32::try_from(end - next + 1).unwrap_or(u32::MAX);
            bad.extend(NumberRange::new(first, count));
        }
        next = end + 1;
    }
    bad
}

fn parse(text: &str) -> Option<PhoneNumber> {
    // If the parser is given a country, it removes that country's trunk prefix even from foreign
    // numbers.
    let country = if text.starts_with('+') { None } else { Some(country::US) };
    phonenumber::parse(country, text).ok()
}

#[cfg(test)]
mod tests;
