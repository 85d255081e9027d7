//! The header fields that contain the time taken to answer a request.

use std::time::Duration;

use hyper::Response;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

static PROCESSING_TIME: HeaderName = HeaderName::from_static("processing-time");
static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The beginning of the value of `Server-Timing`.
const NAME: &[u8] = b"total;dur=";
/// The number of decimals of a time in milliseconds.
const DECIMALS: usize = 3;
/// The maximum number of digits in a time in microseconds.
const DIGITS_MAX: usize = 20;
const BYTES_MAX: usize = NAME.len() + DIGITS_MAX + 1;

/// Sets the header fields to the time since the complete request arrived, in milliseconds: once as
/// an integer and once with decimals. Replaces earlier times.
pub(crate) fn time_headers<B>(response: &mut Response<B>, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let mut text = [0; BYTES_MAX];
    let (timing, whole) = write(us, &mut text);
    // A value that consists of digits and a name is always valid. Most answers take only a few
    // milliseconds. For these, the integer is a static string and needs no allocation.
    let whole = match usize::try_from(us / 1000) {
        Ok(ms) if ms < 10 => Ok(HeaderValue::from_static(&"0123456789"[ms..=ms])),
        _ => whole.try_into(),
    };
    let headers = response.headers_mut();
    if let (Ok(whole), Ok(timing)) = (whole, timing.try_into()) {
        set(headers, &PROCESSING_TIME, whole);
        set(headers, &SERVER_TIMING, timing);
    }
}

/// Sets a field. Answers have few fields, and the answer to a batch begins with the two timing
/// fields. Comparing each name is therefore cheaper than a look-up by hash.
fn set(headers: &mut HeaderMap, name: &HeaderName, value: HeaderValue) {
    match headers.iter_mut().find(|(known, _)| *known == name) {
        Some((_, place)) => *place = value,
        None => drop(headers.insert(name, value)),
    }
}

/// Writes the time into `text` from right to left, without the formatting machinery. Returns the
/// value of `Server-Timing`, and the part of that value with the whole milliseconds.
fn write(us: u64, text: &mut [u8; BYTES_MAX]) -> (&[u8], &[u8]) {
    let point = BYTES_MAX - DECIMALS - 1;
    text[point] = b'.';
    let (mut start, mut rest) = (BYTES_MAX, us);
    while rest > 0 || start >= point {
        start -= if start == point + 1 { 2 } else { 1 };
        text[start] = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
    }
    let name = start - NAME.len();
    text[name..start].copy_from_slice(NAME);
    (&text[name..], &text[start..point])
}

#[cfg(test)]
mod tests;
