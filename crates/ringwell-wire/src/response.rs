//! Writes answers as bytes: the bulk response, row by row.
//!
//! Members are written in the documented order. `overflow` is written only if it is true, and
//! `request_id` only if the row had one.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ringwell_core::PromoNumber;

use crate::error_class::RowError;
use crate::json::{json_string, json_text};
use crate::national;
use crate::span::Span;

/// The answer to a row.
#[derive(Clone, Copy, Debug)]
pub enum ResponseRow<'a> {
    /// A number.
    Number {
        /// The number.
        number: PromoNumber,
        /// Whether the number is the pool's overflow number.
        overflow: bool,
        /// The pool URLs used to build the tracking URL, or `None` if the tracking URL is empty.
        tracking: Option<Tracking<'a>>,
    },
    /// The reason why the row got no number.
    Error(RowError),
}

/// The pool URLs used to build tracking URLs.
#[derive(Clone, Copy, Debug)]
pub struct Tracking<'a> {
    /// The pool's `tracking_url`, to which a query is appended.
    pub base: &'a str,
    /// The landing page.
    pub destination: &'a str,
}

/// All characters but letters, digits and `-._~` are escaped in a query value.
const QUERY_VALUE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The part of a row after its id, for a pool without a tracking URL. A brace replaces the comma if
/// the row has no id.
const NUMBER_ROW: &[u8; 87] =
    br#","promo_number_formatted":"000-000-0000","promo_number":"0000000000","tracking_url":""}"#;
const FORMATTED_AT: usize = 27;
const BARE_AT: usize = 57;

/// The beginning of a row, with space for a short id. In the first row, a bracket replaces the
/// comma.
const ID_ROW: &[u8; 31] = br#",{"request_id":0000000000000000"#;
const ID_AT: usize = 15;
/// The maximum length of ids that are copied through a register, without a function call.
const SHORT_ID: usize = ID_ROW.len() - ID_AT;

impl<'a> Tracking<'a> {
    /// Returns the tracking URL: `base?us=`, followed by the escaped URL of the landing page. The
    /// number is in the query of the landing page's URL.
    #[must_use]
    pub fn url(&self, number: PromoNumber) -> String {
        let mut url = String::new();
        self.write(number, |piece| url.push_str(piece));
        url
    }

    /// Passes the pieces of the URL to `put`, in order.
    fn write(&self, number: PromoNumber, mut put: impl FnMut(&str)) {
        let (page, fragment) = self.landing();
        let (ten, long);
        let digits = if let Some(digits) = number.to_nanp() {
            ten = ten_digits(digits);
            // The digits are valid UTF-8.
            str::from_utf8(&ten).unwrap_or_default()
        } else {
            // The `+` is escaped once for the landing page, and again for the tracking URL.
            long = format!("%252B{}", number.to_e164());
            &long
        };
        put(self.base);
        put("?us=");
        utf8_percent_encode(page, QUERY_VALUE).for_each(&mut put);
        put(match page.find('?') {
            None => "%3F",
            Some(_) if page.ends_with(['?', '&']) => "",
            Some(_) => "%26",
        });
        for piece in ["sid%3D", digits, "%26PPCPN%3D", digits] {
            put(piece);
        }
        utf8_percent_encode(fragment, QUERY_VALUE).for_each(put);
    }

    /// Splits the landing page's URL before its fragment, because the parameters with the number
    /// are inserted there.
    fn landing(&self) -> (&'a str, &'a str) {
        let cut = self.destination.find('#').unwrap_or(self.destination.len());
        self.destination.split_at(cut)
    }
}

/// Writes a bulk response.
#[derive(Debug)]
pub struct BulkResponse<'a> {
    out: &'a mut Vec<u8>,
    text: &'a [u8],
    /// The bracket or comma to write before the next row.
    before_row: u8,
}

impl<'a> BulkResponse<'a> {
    /// Begins a response. The spans of the rows refer to `text`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, text: &'a [u8]) -> Self {
        out.extend_from_slice(b"{\"responses\":");
        Self { out, text, before_row: b'[' }
    }

    /// Appends the next row's answer.
    pub fn row(&mut self, request_id: Option<Span>, answer: &ResponseRow<'_>) {
        let before = self.begin(request_id);
        let out = &mut *self.out;
        match answer {
            ResponseRow::Number { number, overflow, tracking } => {
                number_row(out, before, *number);
                // Removes the end of the row, which is written again after the URL.
                out.truncate(out.len() - 2);
                if let Some(tracking) = tracking {
                    tracking.write(*number, |piece| json_text(out, piece));
                }
                out.extend_from_slice(if *overflow { b"\",\"overflow\":true}" } else { b"\"}" });
            }
            ResponseRow::Error(error) => {
                out.push(before);
                out.extend_from_slice(b"\"error_class\":\"");
                out.extend_from_slice(error.class().as_bytes());
                out.extend_from_slice(b"\",\"message\":");
                json_string(out, &error.message(self.text));
                out.push(b'}');
            }
        }
    }

    /// Appends the next row's answer, which is `number`. The number must not be an overflow number,
    /// and its pool must have no tracking URLs.
    #[inline]
    pub fn number(&mut self, request_id: Option<Span>, number: PromoNumber) {
        let before = self.begin(request_id);
        number_row(self.out, before, number);
    }

    /// Begins a row, and returns the brace or comma to write before its next member.
    #[inline]
    fn begin(&mut self, request_id: Option<Span>) -> u8 {
        let out = &mut *self.out;
        let before_row = std::mem::replace(&mut self.before_row, b',');
        let Some(id) = request_id else {
            out.push(before_row);
            return b'{';
        };
        match self.text.get(id.start()..).and_then(|from| from.first_chunk::<SHORT_ID>()) {
            Some(wide) if id.len() <= SHORT_ID => {
                let row = extend(out, ID_ROW);
                row[0] = before_row;
                row[ID_AT..].copy_from_slice(wide);
                out.truncate(out.len() - (SHORT_ID - id.len()));
            }
            _ => {
                out.push(before_row);
                out.extend_from_slice(&ID_ROW[1..ID_AT]);
                out.extend_from_slice(id.of(self.text));
            }
        }
        b','
    }

    /// Ends the response.
    pub fn finish(self) {
        if self.before_row == b'[' {
            self.out.push(b'[');
        }
        self.out.extend_from_slice(b"]}");
    }
}

/// Appends `bytes` and returns the appended copy, so that the caller can change it in place.
/// Changing the bytes before copying them would stall the copy.
#[inline]
fn extend<'a, const N: usize>(out: &'a mut Vec<u8>, bytes: &[u8; N]) -> &'a mut [u8; N] {
    out.extend_from_slice(bytes);
    let Some(appended) = out.last_chunk_mut() else { unreachable!("it was appended") };
    appended
}

/// Writes the byte `before` and the members for `number`, with an empty tracking URL, and ends the
/// row.
#[inline]
fn number_row(out: &mut Vec<u8>, before: u8, number: PromoNumber) {
    let Some(digits) = number.to_nanp() else { return long_number_row(out, before, number) };
    let digits = ten_digits(digits);
    let row = extend(out, NUMBER_ROW);
    row[0] = before;
    row[FORMATTED_AT..FORMATTED_AT + 3].copy_from_slice(&digits[..3]);
    row[FORMATTED_AT + 4..FORMATTED_AT + 7].copy_from_slice(&digits[3..6]);
    row[FORMATTED_AT + 8..FORMATTED_AT + 12].copy_from_slice(&digits[6..]);
    row[BARE_AT..BARE_AT + 10].copy_from_slice(&digits);
}

/// Like [`number_row`], for numbers whose country code is not 1.
#[cold]
fn long_number_row(out: &mut Vec<u8>, before: u8, number: PromoNumber) {
    out.push(before);
    out.extend_from_slice(b"\"promo_number_formatted\":\"");
    // Digits and separators need no escapes.
    national::write(out, number);
    let rest = format!("\",\"promo_number\":\"{number}\",\"tracking_url\":\"\"}}");
    out.extend_from_slice(rest.as_bytes());
}

/// Returns the last ten digits of `number` as text.
#[inline]
#[must_use]
pub fn ten_digits(number: u64) -> [u8; 10] {
    let mut digits = [b'0'; 10];
    digits[..2].copy_from_slice(&PAIRS[(number / 100_000_000 % 100) as usize]);
    digits[2..].copy_from_slice(&eight_digits(number % 100_000_000).to_le_bytes());
    digits
}

/// All pairs of digits, as text.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut value = 0;
    while value < 100 {
        pairs[value as usize] = [b'0' + value / 10, b'0' + value % 10];
        value += 1;
    }
    pairs
};

/// Returns eight digits as text, with the first digit in the lowest byte. Splits the value into
/// halves, then pairs, then digits. Each step handles all parts of the word at once. Divides by
/// multiplication, which is exact for so few digits. No operation can overflow; wrapping operations
/// are used to avoid overflow checks.
#[inline]
const fn eight_digits(value: u64) -> u64 {
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = (halves.wrapping_mul(10_486) >> 20) & 0x7F_0000_007F;
    let pairs = hundreds | halves.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000F_000F_000F_000F;
    let digits = tens | pairs.wrapping_sub(tens.wrapping_mul(10)) << 8;
    digits | 0x3030_3030_3030_3030
}

#[cfg(test)]
mod tests;
