//! The national formats of numbers with country codes other than 1.
//!
//! Formatting a number with the data of libphonenumber takes thousands of instructions. The format
//! does not depend on a number's last two digits. Each thread therefore caches one formatted text
//! for each hundred consecutive numbers. A pool of 500 consecutive numbers needs at most six texts.
//! `response.rs` formats numbers with country code 1. Invariant: a number's text does not depend on
//! what the cache contains.

use std::cell::RefCell;

use ringwell_core::PromoNumber;

/// The count of texts that a thread caches, one for each hundred numbers. Together they take 56
/// KiB.
const KEPT: usize = 1024;
/// The maximum length in bytes of a cached text. A national form has at most 15 digits, a trunk
/// prefix and separators.
const TEXT_BYTES_MAX: usize = 40;
/// The count of numbers that differ only in their last two digits, which do not affect the format.
const FREE: u64 = 100;

/// The cached text for a hundred consecutive numbers. In an empty entry, `hundred` is zero.
#[derive(Clone, Copy)]
struct Kept {
    hundred: u64,
    len: u8,
    text: [u8; TEXT_BYTES_MAX],
    /// The offsets of the last two digits in the text.
    last: [u8; 2],
}

impl Kept {
    const NONE: Self = Self { hundred: 0, len: 0, text: [0; TEXT_BYTES_MAX], last: [0; 2] };

    /// Returns `None` if `text` is too long, or if its last two digits are not those of `number`.
    fn of(number: PromoNumber, text: &str) -> Option<Self> {
        let mut kept = Self { hundred: number.to_e164() / FREE, ..Self::NONE };
        kept.text.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        kept.len = u8::try_from(text.len()).ok()?;
        let digits = text.bytes().enumerate().rev().filter(|(_, byte)| byte.is_ascii_digit());
        let mut value = number.to_e164();
        for (place, (at, byte)) in kept.last.iter_mut().zip(digits) {
            if u64::from(byte - b'0') != value % 10 {
                return None;
            }
            *place = u8::try_from(at).ok()?;
            value /= 10;
        }
        Some(kept)
    }
}

thread_local! {
    static TEXTS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Returns the national form of `number`. If the country code is 1, this is `NNN-NNN-NNNN`, as in
/// the published API.
#[must_use]
pub fn national(number: PromoNumber) -> String {
    if number.to_nanp().is_some() {
        return formatted(number);
    }
    let mut out = Vec::new();
    write(&mut out, number);
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the country code of `number`, or `None` if the data of libphonenumber does not cover the
/// number.
#[must_use]
pub fn country_code(number: PromoNumber) -> Option<u16> {
    if number.to_nanp().is_some() {
        return Some(1);
    }
    phonenumber::parse(None, number.to_string()).ok().map(|number| number.code().value())
}

/// Appends the national form of a number whose country code is not 1.
pub(crate) fn write(out: &mut Vec<u8>, number: PromoNumber) {
    let hundred = number.to_e164() / FREE;
    TEXTS.with_borrow_mut(|texts| {
        if texts.is_empty() {
            texts.resize(KEPT, Kept::NONE);
        }
        // Consecutive hundreds of numbers use different entries.
        let place = &mut texts[usize::try_from(hundred % KEPT as u64).unwrap_or_default()];
        if place.hundred != hundred {
            let text = look_up(number);
            match Kept::of(number, &text) {
                Some(kept) => *place = kept,
                None => return out.extend_from_slice(text.as_bytes()),
            }
        }
        let start = out.len();
        out.extend_from_slice(&place.text[..usize::from(place.len)]);
        let mut digits = number.to_e164();
        for at in place.last {
            out[start + usize::from(at)] = b'0' + u8::try_from(digits % 10).unwrap_or_default();
            digits /= 10;
        }
    });
}

/// Formats a number with libphonenumber's data. A number that libphonenumber cannot read is shown
/// with its country code.
fn look_up(number: PromoNumber) -> String {
    let international = number.to_string();
    phonenumber::parse(None, &international).map_or(international, |number| {
        number.format().mode(phonenumber::Mode::National).to_string()
    })
}

/// Returns `NNN-NNN-NNNN` if the country code is 1, and otherwise the national form.
pub(crate) fn formatted(number: PromoNumber) -> String {
    if number.to_nanp().is_none() {
        return national(number);
    }
    let text = number.to_string();
    format!("{}-{}-{}", &text[..3], &text[3..6], &text[6..])
}

#[cfg(test)]
mod tests;
