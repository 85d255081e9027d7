//! Reads the members of a line.

use crate::history::Fact;
use crate::spill::Spill;

pub(super) fn put(spill: &mut Spill, by: u64, fact: &Fact) -> Result<(), String> {
    spill.put(by, fact).map_err(|error| format!("cannot write to a temporary file: {error}"))
}

pub(super) fn need<T>(member: Option<T>, name: &str) -> Result<T, String> {
    member.ok_or_else(|| format!("`{name}` is missing"))
}

/// Converts a telephone number to an integer. Ten digits stay unchanged. For a number with a `+`,
/// 10^15 is added to its digits, so the result differs from every ten-digit number.
pub(super) fn digits(text: &str) -> Result<u64, String> {
    const INTERNATIONAL: u64 = 1_000_000_000_000_000;
    let read = |text: &str| {
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_digits)
    };
    let number = match text.strip_prefix('+') {
        Some(rest) => read(rest).filter(|_| rest.len() <= 15).map(|number| number + INTERNATIONAL),
        None => read(text).filter(|_| text.len() == 10),
    };
    number.ok_or_else(|| {
        format!("`{text}` is not a telephone number: expected ten digits, or + and up to 15 digits")
    })
}
