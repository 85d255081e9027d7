//! The time that an answer took, in its header.

use std::time::Duration;

use hyper::Response;
use hyper::header::{HeaderName, HeaderValue};

const PROCESSING_TIME: HeaderName = HeaderName::from_static("processing-time");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The beginning of `Server-Timing`.
const NAME: &[u8] = b"total;dur=";
/// Decimals of a millisecond.
const DECIMALS: usize = 3;
/// The maximum number of digits of a time in microseconds.
const DIGITS_MAX: usize = 20;
const BYTES_MAX: usize = NAME.len() + DIGITS_MAX + 1;

/// Milliseconds since the request was complete, as an integer and with decimals. Replaces earlier
/// times.
pub(crate) fn time_headers<B>(response: &mut Response<B>, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let mut text = [0; BYTES_MAX];
    let (timing, whole) = write(us, &mut text);
    // Digits and a name are always valid. Most answers take less than a millisecond, and then the
    // value needs no memory of its own.
    let whole = if us < 1000 { Ok(HeaderValue::from_static("0")) } else { whole.try_into() };
    let mut values = [(PROCESSING_TIME, whole.ok()), (SERVER_TIMING, timing.try_into().ok())];
    // Answers have few fields, so checking each is cheaper than a look-up by the hash of its name.
    for (known, place) in response.headers_mut().iter_mut() {
        if let Some((_, value)) = values.iter_mut().find(|(name, _)| name == known)
            && let Some(value) = value.take()
        {
            *place = value;
        }
    }
    for (name, value) in values {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
}

/// Writes the time into `text`, from its end and without the formatting machinery. Returns the
/// value of `Server-Timing`, and the part of it that is the whole milliseconds.
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
